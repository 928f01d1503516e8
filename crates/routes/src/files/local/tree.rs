//! Goes through a tree of any depth with a few open descriptors and no recursion, and never through a link.

use std::{
    ffi::{CStr, CString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags},
    io::Errno,
};
use tokio_util::sync::CancellationToken;

use super::{
    is_temporary,
    resolve::{Confinement, Root},
    size_of,
};
use crate::files::{error::FileError, quota::PER_ENTRY};

/// Levels whose descriptors stay open. Deeper ones are found again through `..`, which is believed only when it
/// is the directory that was left.
const HELD: usize = 32;
const BUFFER: usize = 32 << 10;
const ENTER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const RETURN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) trait Visit {
    /// An entry that is no directory.
    fn file(&mut self, directory: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<(), FileError>;

    /// Everything below the directory `name` has been visited.
    fn left(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<Left, FileError>;

    /// The directory `name` can't be entered.
    fn refused(&mut self, name: &CStr, why: FileError) -> Result<(), FileError>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Done,
    /// Something is in it (again): go through it once more.
    Again,
}

struct Level {
    name: CString,
    identity: (u64, u64),
    fd: Option<OwnedFd>,
    directories: Vec<CString>,
}

/// Visits everything below `top`, parents after their children.
pub(super) fn visit(
    root: &Root,
    top: BorrowedFd<'_>,
    cancel: &CancellationToken,
    visit: &mut impl Visit,
) -> Result<(), FileError> {
    let mut buffer = Vec::with_capacity(BUFFER);
    let fd = rustix::fs::openat(top, ".", ENTER, Mode::empty())?;
    let mut levels = vec![enter(fd, CString::default(), &mut buffer, cancel, visit)?];
    let device = levels[0].identity.0;
    while let Some(level) = levels.last_mut() {
        let at = level.fd.as_ref().ok_or(FileError::TreeMoved)?;
        if let Some(name) = level.directories.pop() {
            let fd = match open_below(root, at.as_fd(), &name, device) {
                Ok(fd) => fd,
                Err(Errno::NOENT) => continue,
                Err(Errno::XDEV) => {
                    let shown = name.to_string_lossy().into_owned();
                    visit.refused(&name, FileError::ForeignMount(shown))?;
                    continue;
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    visit.file(at.as_fd(), &name, FileType::Unknown)?;
                    continue;
                }
                Err(error) => {
                    visit.refused(&name, error.into())?;
                    continue;
                }
            };
            let below = enter(fd, name, &mut buffer, cancel, visit)?;
            if levels.len() > HELD
                && let Some(level) = levels.last_mut()
            {
                level.fd = None;
            }
            levels.push(below);
        } else {
            let Some(done) = levels.pop() else { break };
            let Some(parent) = levels.last_mut() else { break };
            if parent.fd.is_none() {
                let child = done.fd.as_ref().ok_or(FileError::TreeMoved)?;
                let up = rustix::fs::openat(child, "..", RETURN, Mode::empty())?;
                if identity(up.as_fd())? != parent.identity {
                    return Err(FileError::TreeMoved);
                }
                parent.fd = Some(up);
            }
            let at = parent.fd.as_ref().ok_or(FileError::TreeMoved)?;
            if visit.left(at.as_fd(), &done.name)? == Left::Again {
                parent.directories.push(done.name);
            }
        }
    }
    Ok(())
}

/// Never across a mount: what is mounted inside a volume is not the volume's to count or to delete. Without
/// `openat2` only mounts of other devices are seen.
fn open_below(root: &Root, at: BorrowedFd<'_>, name: &CStr, device: u64) -> Result<OwnedFd, Errno> {
    if root.confinement() == Confinement::Kernel {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        return rustix::fs::openat2(at, name, ENTER, Mode::empty(), resolve);
    }
    let fd = rustix::fs::openat(at, name, ENTER, Mode::empty())?;
    if rustix::fs::fstat(&fd)?.st_dev != device { Err(Errno::XDEV) } else { Ok(fd) }
}

fn enter(
    fd: OwnedFd,
    name: CString,
    buffer: &mut Vec<u8>,
    cancel: &CancellationToken,
    visit: &mut impl Visit,
) -> Result<Level, FileError> {
    if cancel.is_cancelled() {
        return Err(FileError::Cancelled);
    }
    let mut directories = Vec::new();
    entries(fd.as_fd(), buffer, |name, kind| {
        if kind == FileType::Directory {
            directories.push(name.to_owned());
            return Ok(());
        }
        visit.file(fd.as_fd(), name, kind)
    })?;
    Ok(Level { name, identity: identity(fd.as_fd())?, fd: Some(fd), directories })
}

/// Calls `each` for every entry but `.` and `..`, with its real kind (links are not followed).
pub(crate) fn entries(
    directory: BorrowedFd<'_>,
    buffer: &mut Vec<u8>,
    mut each: impl FnMut(&CStr, FileType) -> Result<(), FileError>,
) -> Result<(), FileError> {
    buffer.clear();
    buffer.reserve(BUFFER);
    let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Ok(entry) => entry,
            // The directory itself was removed while it was read.
            Err(Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        each(name, kind_of(directory, name, entry.file_type()))?;
    }
    Ok(())
}

/// Some file systems leave the kind out of their directory entries.
fn kind_of(directory: BorrowedFd<'_>, name: &CStr, said: FileType) -> FileType {
    if said != FileType::Unknown {
        return said;
    }
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

fn identity(fd: BorrowedFd<'_>) -> Result<(u64, u64), FileError> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// What the files and directories of the volume take up. Files being written count in their writers' reservations
/// instead.
pub(super) fn usage(root: &Root, cancel: &CancellationToken) -> Result<Total, FileError> {
    let mut total = Total::default();
    visit(root, root.fd(), cancel, &mut total)?;
    Ok(total)
}

/// Bytes as far as they can be seen, and how many directories can't be looked into.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) bytes: u64,
    pub(super) unread: u64,
}

impl Visit for Total {
    fn file(&mut self, directory: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<(), FileError> {
        if is_temporary(name.to_bytes()) {
            return Ok(());
        }
        let bytes = match kind {
            FileType::RegularFile => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(0, |stat| size_of(&stat)),
            _ => 0,
        };
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(PER_ENTRY);
        Ok(())
    }

    fn left(&mut self, _: BorrowedFd<'_>, _: &CStr) -> Result<Left, FileError> {
        self.bytes = self.bytes.saturating_add(PER_ENTRY);
        Ok(Left::Done)
    }

    /// What is mounted inside is not the volume's. Of what is, the directory counts; to take a volume that holds one
    /// for full would let whoever may change a mode stop everybody else.
    fn refused(&mut self, _: &CStr, why: FileError) -> Result<(), FileError> {
        if !matches!(why, FileError::ForeignMount(_)) {
            self.bytes = self.bytes.saturating_add(PER_ENTRY);
            self.unread = self.unread.saturating_add(1);
        }
        Ok(())
    }
}
