//! Whether the log is where it should be, or may begin there.

use std::{fs, io, path::PathBuf, sync::Arc};

use super::{
    database::{self, OpenError},
    error::AuditError,
    log::AuditLog,
};
use crate::data_dir::{DataDirError, DataPaths};

impl AuditLog {
    /// What would keep a node from opening its log, as far as a look at it tells. Makes no log, and needs no lock. Blocks.
    pub fn check(paths: &DataPaths) -> Result<(), AuditError> {
        let may_begin = may_begin(paths)?;
        let path = paths.audit_database();
        match path.try_exists() {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(source) => return Err(out_of_sight(path, source)),
        }
        match database::open_reader(&path) {
            Ok(_) => Ok(()),
            Err(OpenError::Empty) if may_begin => Ok(()),
            Err(error) => Err(unopenable(paths, error)),
        }
    }
}

/// Whether a new log may begin here. The first start makes the log before its key, so a key without a log is never
/// one that was interrupted.
pub(super) fn may_begin(paths: &DataPaths) -> Result<bool, AuditError> {
    let Some(key) = signer(paths) else { return Ok(true) };
    let path = paths.audit_database();
    match fs::metadata(&path) {
        Ok(found) if found.len() > 0 => Ok(false),
        Ok(_) => Err(AuditError::Lost { path, key }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(AuditError::Lost { path, key }),
        Err(source) => Err(out_of_sight(path, source)),
    }
}

pub(super) fn unopenable(paths: &DataPaths, error: OpenError) -> AuditError {
    let path = paths.audit_database();
    match error {
        OpenError::Sqlite(source) => AuditError::Unopenable { path, source: Arc::new(source) },
        OpenError::Empty => AuditError::Lost { path, key: signer(paths).unwrap_or(paths.audit_key()) },
        OpenError::NotALog => AuditError::NotALog { path },
        OpenError::Newer(found) => AuditError::Newer { path, found, known: database::SCHEMA },
    }
}

/// The file that says that there was a log.
fn signer(paths: &DataPaths) -> Option<PathBuf> {
    [paths.audit_key(), paths.audit_public_key()].into_iter().find(|key| key.exists())
}

pub(super) fn out_of_sight(path: PathBuf, source: io::Error) -> AuditError {
    DataDirError::Io { action: "look at", path, source }.into()
}
