//! New content is written beside the old, made durable, and put in its place by one rename.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};
use tokio_util::sync::CancellationToken;

use super::{
    LocalDirectory, is_temporary, read_portion,
    resolve::{READ, group, owner, special},
    size_of,
    temporary::Temporary,
};
use crate::files::{
    error::FileError,
    place::Place,
    quota::{PER_ENTRY, Reservation},
    storage::{Change, Portion, Rewritten, Storage, Terms},
};

/// Of files that were not there before.
const NEW_FILE: Mode = Mode::from_raw_mode(0o644);
/// Never set-user-id or set-group-id: the kernel, too, takes those away when a file gets new content.
const KEPT_MODE: u32 = 0o777;

impl LocalDirectory {
    pub(super) fn write_file(
        &self,
        place: &Place,
        content: &[u8],
        terms: &Terms<'_>,
    ) -> Result<(), FileError> {
        let (directory, name) = self.root.parent(place, Some(&|| self.room_for_one(terms)))?;
        let at = rustix::fs::fstat(&directory)?;
        let _one_writer = self.locks.lock(&at, name);
        let old = replaceable(directory.as_fd(), name)?;
        let cost = |bytes: u64| bytes.saturating_add(PER_ENTRY);
        let old_cost = old.as_ref().map_or(0, |old| cost(size_of(old)));
        let reservation = self.reserve(cost(content.len() as u64), old_cost, terms)?;
        let replacement = Replacement { directory: &directory, at: &at, name, old: old.as_ref() };
        replacement.put(content, reservation, terms.cancel, Expect::Anything)
    }

    pub(super) fn rewrite_file(
        &self,
        place: &Place,
        limit: u64,
        change: &mut Change<'_>,
        terms: &Terms<'_>,
    ) -> Result<Rewritten, FileError> {
        let (directory, name) = self.root.parent(place, None)?;
        let at = rustix::fs::fstat(&directory)?;
        let _one_writer = self.locks.lock(&at, name);
        let fd = match rustix::fs::openat(&directory, name, READ | OFlags::NOFOLLOW, Mode::empty()) {
            Err(Errno::LOOP) => return Err(link(directory.as_fd(), name)),
            opened => opened?,
        };
        let old = self.readable(fd.as_fd())?;
        writable(&old)?;
        let bytes = read_portion(&fd, &old, Portion::Whole(limit))?.bytes;
        let text = std::str::from_utf8(&bytes).map_err(|error| FileError::NotUtf8(error.valid_up_to()))?;
        let old_size = text.len() as u64;
        let Some(changed) = change(text)? else {
            return Ok(Rewritten { old_size, new_size: old_size });
        };
        let new_size = changed.len() as u64;
        let reservation = self.reserve(new_size, old_size, terms)?;
        let replacement = Replacement { directory: &directory, at: &at, name, old: Some(&old) };
        replacement.put(changed.as_bytes(), reservation, terms.cancel, Expect::Unchanged)?;
        Ok(Rewritten { old_size, new_size })
    }

    /// For a directory.
    pub(super) fn room_for_one<'t>(&self, terms: &Terms<'t>) -> Result<Reservation<'t>, FileError> {
        self.reserve(PER_ENTRY, 0, terms)
    }

    pub(super) fn reserve<'t>(
        &self,
        new: u64,
        old: u64,
        terms: &Terms<'t>,
    ) -> Result<Reservation<'t>, FileError> {
        terms.quota.reserve(new, old, &|| self.usage(terms.cancel))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Anything,
    /// That what is replaced is still what was read.
    Unchanged,
}

pub(super) struct Replacement<'a> {
    pub(super) directory: &'a OwnedFd,
    pub(super) at: &'a Stat,
    pub(super) name: &'a str,
    pub(super) old: Option<&'a Stat>,
}

impl Replacement<'_> {
    fn put(
        &self,
        content: &[u8],
        reservation: Reservation<'_>,
        cancel: &CancellationToken,
        expect: Expect,
    ) -> Result<(), FileError> {
        let mut new = self.ready(self.directory.as_fd(), content)?;
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        reservation.commit(|| {
            if expect == Expect::Unchanged && !self.unchanged() {
                return Err(FileError::ChangedWhileEditing);
            }
            renamed(&mut new, self.name)
        })?;
        rustix::fs::fsync(self.directory)?;
        Ok(())
    }

    /// The new content in a file beside the old one, on disk.
    pub(super) fn ready<D: AsFd>(&self, directory: D, content: &[u8]) -> Result<Temporary<D>, FileError> {
        let new = Temporary::create(directory)?;
        new.write_all(content)?;
        self.keep_owner_and_mode(new.fd())?;
        rustix::fs::fsync(new.fd())?;
        Ok(new)
    }

    fn keep_owner_and_mode(&self, new: BorrowedFd<'_>) -> Result<(), FileError> {
        let ours = rustix::fs::fstat(new)?;
        let theirs = self.old.unwrap_or(self.at);
        if (theirs.st_uid, theirs.st_gid) != (ours.st_uid, ours.st_gid) {
            match (rustix::fs::fchown(new, Some(owner(theirs)), Some(group(theirs))), self.old) {
                (Ok(()), _) => {}
                // A new file need not belong to the directory's owner.
                (Err(Errno::PERM), None) => {}
                (Err(Errno::PERM), Some(old)) => {
                    return Err(FileError::OwnerNotKept { uid: old.st_uid, gid: old.st_gid });
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
        let mode = self.old.map_or(NEW_FILE, |old| Mode::from_raw_mode(old.st_mode & KEPT_MODE));
        Ok(rustix::fs::fchmod(new, mode)?)
    }

    pub(super) fn unchanged(&self) -> bool {
        let now = rustix::fs::statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW).ok();
        now.as_ref().map(version) == self.old.map(version)
    }
}

pub(super) fn renamed<D: AsFd>(new: &mut Temporary<D>, name: &str) -> Result<(), FileError> {
    new.rename(name).map_err(|error| match error {
        Errno::NOENT => FileError::TreeMoved,
        Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => FileError::IsADirectory,
        other => other.into(),
    })
}

fn version(stat: &Stat) -> impl PartialEq + use<> {
    (
        (stat.st_dev, stat.st_ino, stat.st_size),
        (stat.st_mtime, stat.st_mtime_nsec),
        (stat.st_ctime, stat.st_ctime_nsec),
    )
}

/// What is at the name now: nothing, or a file that may be replaced.
pub(super) fn replaceable(directory: BorrowedFd<'_>, name: &str) -> Result<Option<Stat>, FileError> {
    if is_temporary(name.as_bytes()) {
        return Err(FileError::ReservedName);
    }
    let stat = match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => writable(&stat).map(|()| Some(stat)),
        FileType::Symlink => Err(link(directory, name)),
        other => Err(special(other)),
    }
}

/// Replacing a file needs no right on the file itself, so its mode is asked here: who takes every write bit away
/// wants the file kept, whoever the node runs as.
pub(super) fn writable(stat: &Stat) -> Result<(), FileError> {
    if stat.st_mode & 0o222 == 0 {
        return Err(FileError::WriteProtected { mode: stat.st_mode & KEPT_MODE });
    }
    Ok(())
}

fn link(directory: BorrowedFd<'_>, name: &str) -> FileError {
    match rustix::fs::readlinkat(directory, name, Vec::new()) {
        Ok(target) => FileError::LinkTarget { target: target.to_string_lossy().into_owned() },
        Err(_) => FileError::LinkRefused,
    }
}
