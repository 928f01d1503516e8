//! Files on their way to becoming others.

use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};
use tokio_util::sync::CancellationToken;

use super::{
    resolve::{READ, Root},
    tree::{self, Left, Visit},
};
use crate::files::error::FileError;

const START: &str = ".aegis-";
const END: &str = ".part";
const MIDDLE: usize = 32;

/// Whether a name is one that [`Temporary`] gives. Nothing shows such files.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    name.strip_prefix(START.as_bytes()).and_then(|rest| rest.strip_suffix(END.as_bytes())).is_some_and(
        |middle| {
            middle.len() == MIDDLE && middle.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        },
    )
}

/// A new file beside the one it will replace. Dropped before [`Temporary::rename`], it is removed.
#[derive(Debug)]
pub(super) struct Temporary<D: AsFd> {
    directory: D,
    name: String,
    fd: OwnedFd,
    renamed: bool,
}

impl<D: AsFd> Temporary<D> {
    pub(super) fn create(directory: D) -> Result<Self, Errno> {
        let name = format!("{START}{}{END}", uuid::Uuid::now_v7().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&directory, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        let temporary = Self { directory, name, fd, renamed: false };
        // Held until the descriptor closes, also by a kill: what nobody holds is a leftover. File systems without
        // locks have no sweep.
        let _ = rustix::fs::flock(&temporary.fd, FlockOperation::NonBlockingLockExclusive);
        Ok(temporary)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn write_all(&self, mut content: &[u8]) -> Result<(), Errno> {
        while !content.is_empty() {
            match rustix::io::write(&self.fd, content) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => content = &content[written..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, name: &str) -> Result<(), Errno> {
        rustix::fs::renameat(&self.directory, self.name.as_str(), &self.directory, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl<D: AsFd> Drop for Temporary<D> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = rustix::fs::unlinkat(&self.directory, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// Removes the temporary files of writers that are no more, in the whole volume.
pub(super) fn sweep(root: &Root) -> Result<u64, FileError> {
    let mut leftovers = Leftovers { removed: 0 };
    tree::visit(root, root.fd(), &CancellationToken::new(), &mut leftovers)?;
    Ok(leftovers.removed)
}

struct Leftovers {
    removed: u64,
}

impl Visit for Leftovers {
    fn file(&mut self, directory: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<(), FileError> {
        if kind == FileType::RegularFile && is_temporary(name.to_bytes()) && abandoned(directory, name) {
            self.removed += u64::from(rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_ok());
        }
        Ok(())
    }

    fn left(&mut self, _: BorrowedFd<'_>, _: &CStr) -> Result<Left, FileError> {
        Ok(Left::Done)
    }

    fn refused(&mut self, _: &CStr, _: FileError) -> Result<(), FileError> {
        Ok(())
    }
}

fn abandoned(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    rustix::fs::openat(directory, name, READ | OFlags::NOFOLLOW, Mode::empty())
        .and_then(|fd| rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive))
        .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_temporary() {
        assert!(is_temporary(b".aegis-0123456789abcdef0123456789abcdef.part"));
        for name in [
            ".aegis-0123456789abcdef0123456789abcdeg.part",
            ".aegis-.part",
            ".aegis-notes",
            "aegis-0123456789abcdef0123456789abcdef.part",
            ".aegis-0123456789abcdef0123456789abcdef.part~",
        ] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
