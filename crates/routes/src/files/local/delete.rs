//! Deleting a tree through descriptors: a directory that is swapped for a link meanwhile loses the link, never
//! what the link points to.

use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::{
    resolve::Root,
    size_of,
    tree::{self, Left, Visit},
};
use crate::files::{
    error::FileError,
    place::Place,
    quota::PER_ENTRY,
    storage::{Deleted, Terms},
};

/// How often directories may turn out to be filled again before the work is given up.
const PATIENCE: u32 = 64;
const ENTER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) fn delete(
    root: &Root,
    place: &Place,
    recursive: bool,
    terms: &Terms<'_>,
) -> Result<Deleted, FileError> {
    let (parent, name) = root.parent(place, None)?;
    let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let deleted = if kind != FileType::Directory {
        rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
        let bytes = if kind == FileType::RegularFile { size_of(&stat) } else { 0 };
        given_back(Deleted { entries: 1, bytes }, terms)
    } else if recursive {
        delete_tree(root, parent.as_fd(), name, terms)?
    } else {
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(FileError::DirectoryNotEmpty),
            removed => removed?,
        }
        given_back(Deleted { entries: 1, bytes: 0 }, terms)
    };
    rustix::fs::fsync(&parent)?;
    Ok(deleted)
}

fn delete_tree(
    root: &Root,
    parent: BorrowedFd<'_>,
    name: &str,
    terms: &Terms<'_>,
) -> Result<Deleted, FileError> {
    let top = rustix::fs::openat(parent, name, ENTER, Mode::empty())?;
    if rustix::fs::fstat(&top)?.st_dev != rustix::fs::fstat(parent)?.st_dev {
        return Err(FileError::ForeignMount(name.to_owned()));
    }
    let mut removal = Removal { deleted: Deleted::default(), patience: PATIENCE };
    let outcome = loop {
        if let Err(error) = tree::visit(root, top.as_fd(), terms.cancel, &mut removal) {
            break Err(error);
        }
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => match removal.spend_patience() {
                Ok(()) => {}
                Err(error) => break Err(error),
            },
            removed => break removed.map_err(FileError::from),
        }
    };
    removal.deleted.entries += u64::from(outcome.is_ok());
    let deleted = given_back(removal.deleted, terms);
    match outcome {
        Ok(()) => Ok(deleted),
        Err(error) if deleted.entries == 0 => Err(error),
        Err(error) => Err(FileError::PartlyDeleted { entries: deleted.entries, source: Box::new(error) }),
    }
}

/// Books what is no longer there.
fn given_back(deleted: Deleted, terms: &Terms<'_>) -> Deleted {
    terms.quota.release(deleted.bytes.saturating_add(deleted.entries.saturating_mul(PER_ENTRY)));
    deleted
}

struct Removal {
    deleted: Deleted,
    patience: u32,
}

impl Removal {
    fn spend_patience(&mut self) -> Result<(), FileError> {
        self.patience = self.patience.checked_sub(1).ok_or(FileError::KeepsFilling)?;
        Ok(())
    }
}

impl Visit for Removal {
    fn file(&mut self, directory: BorrowedFd<'_>, name: &CStr, kind: FileType) -> Result<(), FileError> {
        let bytes = match kind {
            FileType::RegularFile => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(0, |stat| size_of(&stat)),
            _ => 0,
        };
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Ok(()) => {
                self.deleted.entries += 1;
                self.deleted.bytes += bytes;
                Ok(())
            }
            // Gone already, or a directory by now, which the parent's removal will find.
            Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn left(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<Left, FileError> {
        match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.deleted.entries += 1;
                Ok(Left::Done)
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(Left::Done),
            Err(Errno::NOTEMPTY | Errno::EXIST) => self.spend_patience().map(|()| Left::Again),
            Err(error) => Err(error.into()),
        }
    }

    fn refused(&mut self, _: &CStr, why: FileError) -> Result<(), FileError> {
        Err(why)
    }
}
