//! Another name for what is there, and never in the place of something else.

use rustix::{
    fs::{AtFlags, RenameFlags},
    io::Errno,
};

use super::{LocalDirectory, is_temporary};
use crate::files::{error::FileError, place::Place, storage::Terms};

impl LocalDirectory {
    pub(super) fn rename_entry(&self, from: &Place, to: &Place, terms: &Terms<'_>) -> Result<(), FileError> {
        let (old_directory, old_name) = self.root.parent(from, None)?;
        let (new_directory, new_name) = self.root.parent(to, Some(&|| self.room_for_one(terms)))?;
        if is_temporary(old_name.as_bytes()) || is_temporary(new_name.as_bytes()) {
            return Err(FileError::ReservedName);
        }
        let (old_at, new_at) = (rustix::fs::fstat(&old_directory)?, rustix::fs::fstat(&new_directory)?);
        let _both = self.locks.lock_both((&old_at, old_name), (&new_at, new_name));
        if terms.cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        let taken = || FileError::AlreadyExists(to.path().to_string());
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&old_directory, old_name, &new_directory, new_name, flags) {
            // A file system without the flag: the lock keeps the node's own writers away in between.
            Err(Errno::INVAL) => {
                match rustix::fs::statat(&new_directory, new_name, AtFlags::SYMLINK_NOFOLLOW) {
                    Err(Errno::NOENT) => {}
                    Ok(_) => return Err(taken()),
                    Err(error) => return Err(error.into()),
                }
                match rustix::fs::renameat(&old_directory, old_name, &new_directory, new_name) {
                    Err(Errno::INVAL) => return Err(FileError::IntoItself),
                    renamed => renamed?,
                }
            }
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(taken()),
            Err(Errno::XDEV) => return Err(FileError::ForeignMount(old_name.to_owned())),
            renamed => renamed?,
        }
        rustix::fs::fsync(&new_directory)?;
        rustix::fs::fsync(&old_directory)?;
        Ok(())
    }
}
