use std::{path::PathBuf, sync::Arc};

use aegis_core::id::ApprovalId;

use super::{key::KeyError, log::MAX_BODY, verify::Fault};
use crate::data_dir::DataDirError;

/// Cloned to everyone who waited for the same commit.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Directory(Arc<DataDirError>),
    #[error(transparent)]
    Key(Arc<KeyError>),
    #[error("can't open the audit log {path}: {source}")]
    Unopenable { path: PathBuf, source: Arc<rusqlite::Error> },
    #[error("{path} is not an audit log of aegis: name another data directory, or move the file away")]
    NotALog { path: PathBuf },
    #[error(
        "the audit log {path} is missing or empty, and {key} says that there was one: put the log back from a backup. To \
         begin a new one, move audit.key and audit.pub away, and keep audit.pub: it verifies what was exported of the \
         old log. The new log says in its first entry that it was begun anew. No log was made"
    )]
    Lost { path: PathBuf, key: PathBuf },
    #[error(
        "{path} was written in format {found}, and this aegis reads up to {known}: use the newer aegis that wrote it; \
         the file was left as it is"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "the audit log {path} is damaged: {fault}. Run `aegis audit verify` for the whole report; keep the file as \
         evidence, and move it away together with audit.key and audit.pub to begin a new log"
    )]
    Damaged { path: PathBuf, fault: Fault },
    #[error(
        "the audit log {path} was removed, replaced or emptied while it is written to, so nothing runs: stop the node, and \
         put the log back from where it is, or from a backup"
    )]
    Gone { path: PathBuf },
    #[error("an audit entry of {bytes} bytes is over the limit of {MAX_BODY}; nothing was recorded")]
    TooLarge { bytes: usize },
    #[error("an audit entry can't be written as JSON: {0}")]
    Unserialisable(Arc<serde_json::Error>),
    #[error(
        "the audit log can't be written ({0}), and nothing happens here without a record: free disk space or mend the \
         disk; the node goes on by itself once a write succeeds"
    )]
    Unwritable(Arc<rusqlite::Error>),
    #[error(
        "the audit log could not be brought to the disk ({0}), and nothing happens here without a record: mend the \
         disk; the node goes on by itself once a write succeeds"
    )]
    Unsynced(Arc<std::io::Error>),
    #[error("the approval `{0}` has been used up already; nothing was recorded")]
    Consumed(ApprovalId),
    #[error("the audit log is closed: the node is stopping")]
    Closed,
    #[error("the thread that writes the audit log could not start: {0}")]
    NoThread(Arc<std::io::Error>),
}

impl From<DataDirError> for AuditError {
    fn from(error: DataDirError) -> Self {
        Self::Directory(Arc::new(error))
    }
}

impl From<KeyError> for AuditError {
    fn from(error: KeyError) -> Self {
        Self::Key(Arc::new(error))
    }
}
