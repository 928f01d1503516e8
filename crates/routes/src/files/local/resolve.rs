//! From names to file descriptors, beneath the root and nowhere else.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::files::{error::FileError, place::Place, quota::Reservation};

/// Sets room aside for one directory that is about to be made.
pub(super) type Room<'a> = &'a dyn Fn() -> Result<Reservation<'a>, FileError>;

/// `openat2` answers EAGAIN when a directory on the way is renamed at that moment.
const ATTEMPTS: usize = 32;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Reading must not wait for the other end of a FIFO, nor take over a terminal.
pub(crate) const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Who keeps a path beneath the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// `openat2` with `RESOLVE_BENEATH`.
    Kernel,
    /// Component by component without following any symbolic link, where `openat2` is missing (before Linux 5.6,
    /// or hidden by a seccomp filter).
    Walk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// As long as they stay beneath where the resolution starts.
    Follow,
    Refuse,
}

#[derive(Debug)]
pub(crate) struct Root {
    fd: OwnedFd,
    confinement: Confinement,
}

impl Root {
    /// Opens the volume's directory; its own path is the operator's and may pass through links.
    pub(super) fn open(directory: &Path, wanted: Option<Confinement>) -> Result<Self, Errno> {
        let fd = rustix::fs::open(directory, DIRECTORY, Mode::empty())?;
        let confinement = match wanted {
            Some(confinement) => confinement,
            None => match rustix::fs::openat2(&fd, ".", DIRECTORY, Mode::empty(), ResolveFlags::BENEATH) {
                Err(Errno::NOSYS | Errno::PERM) => Confinement::Walk,
                _ => Confinement::Kernel,
            },
        };
        Ok(Self { fd, confinement })
    }

    pub(super) fn confinement(&self) -> Confinement {
        self.confinement
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn open_at(&self, place: &Place, flags: OFlags) -> Result<OwnedFd, FileError> {
        self.open_parts(place.scope(), place.rest(), flags)
    }

    pub(super) fn open_directory(&self, place: &Place) -> Result<OwnedFd, FileError> {
        self.open_at(place, DIRECTORY)
    }

    /// `rest` below `scope`; see [`Place`].
    pub(super) fn open_parts(&self, scope: &str, rest: &str, flags: OFlags) -> Result<OwnedFd, FileError> {
        if scope.is_empty() {
            return self.beneath(self.fd(), rest.as_bytes(), flags, Links::Follow);
        }
        if rest.is_empty() {
            return self.beneath(self.fd(), scope.as_bytes(), flags, Links::Refuse);
        }
        let base = self.beneath(self.fd(), scope.as_bytes(), OFlags::PATH | DIRECTORY, Links::Refuse)?;
        self.beneath(base.as_fd(), rest.as_bytes(), flags, Links::Follow)
    }

    /// The directory that holds `place`, ready to be changed and synced.
    /// With `make`, missing directories on the way are made.
    pub(super) fn parent<'p>(
        &self,
        place: &'p Place,
        make: Option<Room<'_>>,
    ) -> Result<(OwnedFd, &'p str), FileError> {
        let (scope, rest) = (place.scope(), place.rest());
        let split = |path: &'p str| path.rsplit_once('/').unwrap_or(("", path));
        if rest.is_empty() {
            if scope.is_empty() {
                return Err(FileError::MountPoint);
            }
            let (above, name) = split(scope);
            return Ok((self.directory(self.fd(), above, Links::Refuse, make)?.0, name));
        }
        let (above, name) = split(rest);
        if scope.is_empty() {
            return Ok((self.directory(self.fd(), above, Links::Follow, make)?.0, name));
        }
        let base = self.directory(self.fd(), scope, Links::Refuse, make)?.0;
        Ok((self.directory(base.as_fd(), above, Links::Follow, make)?.0, name))
    }

    /// Opens the directory `place` and makes what is missing of it; also answers whether anything was.
    pub(super) fn make_directory(&self, place: &Place, room: Room<'_>) -> Result<bool, FileError> {
        let (base, made) = self.directory(self.fd(), place.scope(), Links::Refuse, Some(room))?;
        Ok(self.directory(base.as_fd(), place.rest(), Links::Follow, Some(room))?.1 || made)
    }

    fn directory(
        &self,
        base: BorrowedFd<'_>,
        path: &str,
        links: Links,
        make: Option<Room<'_>>,
    ) -> Result<(OwnedFd, bool), FileError> {
        let mut there = path;
        let mut fd = loop {
            match self.beneath(base, there.as_bytes(), DIRECTORY, links) {
                Err(FileError::NotFound) if make.is_some() && !there.is_empty() => {
                    there = there.rsplit_once('/').map_or("", |(above, _)| above);
                }
                found => break found?,
            }
        };
        let mut made = false;
        let Some(room) = make else { return Ok((fd, made)) };
        let missing = path[there.len()..].split('/').filter(|name| !name.is_empty());
        for name in missing {
            match room()?.commit(|| rustix::fs::mkdirat(&fd, name, Mode::from_raw_mode(0o755))) {
                Ok(()) => made = true,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            // Whatever has come to be there meanwhile: a link is not followed.
            let below = match rustix::fs::openat(&fd, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
                Err(Errno::NOTDIR | Errno::LOOP) if is_link(fd.as_fd(), name.as_bytes()) => {
                    return Err(FileError::LinkRefused);
                }
                opened => opened?,
            };
            if made {
                give_to_owner_of(fd.as_fd(), below.as_fd());
                rustix::fs::fsync(&fd)?;
            }
            fd = below;
        }
        Ok((fd, made))
    }

    /// The one way down: everything that names a file goes through here.
    pub(crate) fn beneath(
        &self,
        base: BorrowedFd<'_>,
        path: &[u8],
        flags: OFlags,
        links: Links,
    ) -> Result<OwnedFd, FileError> {
        match self.confinement {
            Confinement::Kernel => kernel(base, path, flags, links),
            Confinement::Walk => walk(base, path, flags),
        }
    }
}

fn kernel(base: BorrowedFd<'_>, path: &[u8], flags: OFlags, links: Links) -> Result<OwnedFd, FileError> {
    let path = if path.is_empty() { b"." } else { path };
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if links == Links::Refuse {
        resolve |= ResolveFlags::NO_SYMLINKS;
    }
    let mut last = Errno::AGAIN;
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(base, path, flags, Mode::empty(), resolve) {
            Err(error @ (Errno::AGAIN | Errno::INTR)) => last = error,
            Err(Errno::LOOP) if links == Links::Refuse => return Err(FileError::LinkRefused),
            opened => return Ok(opened?),
        }
    }
    Err(FileError::System(last.into()))
}

fn walk(base: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, FileError> {
    let mut components = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    if components.peek().is_none() {
        return Ok(rustix::fs::openat(base, ".", flags, Mode::empty())?);
    }
    let mut held: Option<OwnedFd> = None;
    while let Some(name) = components.next() {
        let at = held.as_ref().map_or(base, AsFd::as_fd);
        // A `..` would climb; parsed paths have none, and the kernel's own answer would be a refusal too.
        if name == b".." {
            return Err(FileError::LeadsOut);
        }
        let last = components.peek().is_none();
        let flags = if last { flags } else { OFlags::PATH | DIRECTORY };
        let opened = rustix::fs::openat(at, name, flags | OFlags::NOFOLLOW, Mode::empty());
        let fd = match opened {
            Err(Errno::LOOP | Errno::NOTDIR) if is_link(at, name) => return Err(FileError::LinkRefused),
            opened => opened?,
        };
        // With `O_PATH` the kernel opens the link itself instead of refusing it.
        if flags.contains(OFlags::PATH)
            && FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) == FileType::Symlink
        {
            return Err(FileError::LinkRefused);
        }
        held = Some(fd);
    }
    held.ok_or(FileError::NotFound)
}

pub(super) fn is_link(directory: BorrowedFd<'_>, name: &[u8]) -> bool {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// A node that runs as root makes directories in other people's trees; they should be theirs. For any other user
/// the call fails and the directory stays the node's, as it must.
pub(super) fn give_to_owner_of(parent: BorrowedFd<'_>, child: BorrowedFd<'_>) {
    let (Ok(theirs), Ok(ours)) = (rustix::fs::fstat(parent), rustix::fs::fstat(child)) else { return };
    if (theirs.st_uid, theirs.st_gid) != (ours.st_uid, ours.st_gid) {
        let _ = rustix::fs::fchown(child, Some(owner(&theirs)), Some(group(&theirs)));
    }
}

pub(super) fn owner(stat: &Stat) -> rustix::fs::Uid {
    rustix::fs::Uid::from_raw(stat.st_uid)
}

pub(super) fn group(stat: &Stat) -> rustix::fs::Gid {
    rustix::fs::Gid::from_raw(stat.st_gid)
}

/// What a thing that is no regular file is called in messages.
pub(super) fn special(kind: FileType) -> FileError {
    match kind {
        FileType::Directory => FileError::IsADirectory,
        FileType::Fifo => FileError::NotARegularFile("FIFO (named pipe)"),
        FileType::Socket => FileError::NotARegularFile("socket"),
        FileType::CharacterDevice | FileType::BlockDevice => FileError::NotARegularFile("device"),
        _ => FileError::NotARegularFile("special file"),
    }
}
