//! Whether the log's files are still those that are written to.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{error::AuditError, place::out_of_sight};
use crate::new_database::write_ahead_log;

/// The files that the log was opened with: the database and its write-ahead log. The kernel goes on writing to a file
/// that was removed, and every sync of it succeeds.
#[derive(Debug, Clone)]
pub(super) struct Files {
    database: (PathBuf, Identity),
    ahead: (PathBuf, Identity),
}

/// Device and number.
type Identity = (u64, u64);

impl Files {
    pub(super) fn of(database: &Path) -> Result<Self, AuditError> {
        let known = |path: PathBuf| match fs::metadata(&path) {
            Ok(found) => Ok((path, (found.dev(), found.ino()))),
            Err(source) => Err(out_of_sight(path, source)),
        };
        Ok(Self { database: known(database.to_owned())?, ahead: known(write_ahead_log(database))? })
    }

    /// The write-ahead log, to be synced.
    pub(super) fn open_ahead(&self) -> io::Result<File> {
        File::open(&self.ahead.0)
    }

    /// An error once somebody has removed, replaced or emptied them: what is written from then on is lost.
    pub(super) fn check(&self) -> Result<(), AuditError> {
        let is_there = |(path, identity): &(PathBuf, Identity), least: u64| {
            fs::metadata(path)
                .is_ok_and(|found| (found.dev(), found.ino()) == *identity && found.len() >= least)
        };
        // The write-ahead log is empty when everything in it has gone into the database.
        if is_there(&self.database, 1) && is_there(&self.ahead, 0) {
            return Ok(());
        }
        Err(AuditError::Gone { path: self.database.0.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_moved_replaced_or_emptied_are_noticed() {
        let place = tempfile::tempdir().unwrap();
        let (database, ahead) = (place.path().join("audit.db"), place.path().join("audit.db-wal"));
        let aside = place.path().join("aside");
        fs::write(&database, "x").unwrap();
        fs::write(&ahead, "").unwrap();
        let files = Files::of(&database).unwrap();
        files.check().unwrap();
        for path in [&database, &ahead] {
            fs::rename(path, &aside).unwrap();
            assert!(matches!(files.check(), Err(AuditError::Gone { .. })));
            fs::write(path, "x").unwrap();
            assert!(files.check().is_err(), "another one");
            fs::rename(&aside, path).unwrap();
            files.check().unwrap();
        }
        fs::write(&database, "").unwrap();
        assert!(files.check().is_err());
    }
}
