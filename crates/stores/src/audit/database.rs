//! The log's SQLite file.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags, limits::Limit};

use super::chain::Chain;
use crate::new_database::{self, NewDatabaseError, write_ahead_log};

/// Tells the file from other SQLite databases: `aegi`.
const APPLICATION: i64 = 0x6165_6769;
/// Format 2 added `consumed_approvals`; a log of format 1 is brought up when it is next written.
pub(super) const SCHEMA: i64 = 2;

const CONSUMED_APPROVALS: &str = "CREATE TABLE IF NOT EXISTS consumed_approvals
    (approval TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

/// Longer than a checkpoint by another process ever takes.
const BUSY: Duration = Duration::from_secs(10);

/// Nothing this crate writes comes near; a forged row can't make a reader allocate more.
const LONGEST_ROW: i32 = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("not an audit log")]
    NotALog,
    #[error("written in format {0}")]
    Newer(i64),
    #[error("empty")]
    Empty,
}

/// Makes the log, unless there is one. One that begins anew has its first entry from the start.
pub(super) fn ensure(path: &Path, first: Option<&[u8]>) -> Result<(), NewDatabaseError> {
    new_database::ensure(path, |connection| create(connection, path, first))
}

/// Opens the log for its one writer. One without tables is filled if a new log may begin here.
pub(super) fn open_writer(
    path: &Path,
    may_begin: bool,
    first: Option<&[u8]>,
) -> Result<Connection, OpenError> {
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(BUSY)?;
    // Before the first pragma that writes: a newer file stays as it is.
    let fresh = !check_format(&connection)?;
    if fresh && !may_begin {
        return Err(OpenError::Empty);
    }
    // Readers of other processes go on while the writer commits. NORMAL: a commit is in order, and on disk once the
    // syncer has synced the write-ahead log; SQLite itself syncs before it reuses that log.
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    // A checkpoint stops the writer for as long as two fsyncs take; this many pages are about 20,000 records.
    connection.pragma_update(None, "wal_autocheckpoint", 2048)?;
    // A long read keeps the write-ahead log from being reused; give the space back afterwards.
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    if fresh {
        create(&mut connection, path, first)?;
    } else if connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0))? < SCHEMA {
        let transaction = connection.transaction()?;
        transaction.execute_batch(&format!("{CONSUMED_APPROVALS} PRAGMA user_version = {SCHEMA};"))?;
        transaction.commit()?;
    }
    Ok(connection)
}

fn create(connection: &mut Connection, log: &Path, first: Option<&[u8]>) -> rusqlite::Result<()> {
    // Takes effect on an empty file only. Records of common length leave less of a page unused than with SQLite's own
    // choice, and a commit writes fewer pages.
    connection.pragma_update(None, "page_size", 8192)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(&format!(
        "CREATE TABLE entries (seq INTEGER PRIMARY KEY, body BLOB NOT NULL, hash BLOB NOT NULL) STRICT;
         CREATE TABLE heads (size INTEGER PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL,
             frontier BLOB NOT NULL) STRICT;
         CREATE TABLE open_intents (call TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
         {CONSUMED_APPROVALS}
         PRAGMA application_id = {APPLICATION};
         PRAGMA user_version = {SCHEMA};"
    ))?;
    if let Some(body) = first {
        let log = log.display();
        tracing::warn!(%log, "the audit log begins anew, and an earlier node has been at work here");
        let mut chain = Chain::empty();
        let seq = chain.append(body);
        transaction.execute(
            "INSERT INTO entries (seq, body, hash) VALUES (?1, ?2, ?3)",
            (seq, body, chain.last.as_bytes()),
        )?;
    }
    transaction.commit()
}

/// Opens the log for reading, whether or not a node is writing it.
pub(super) fn open_reader(path: &Path) -> Result<Connection, OpenError> {
    let attempt = |connection: rusqlite::Result<Connection>| -> Result<Connection, OpenError> {
        let connection = connection?;
        connection.busy_timeout(BUSY)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_ROW)?;
        // The file may come from anywhere; nothing in its schema is to be run.
        connection.pragma_update(None, "trusted_schema", false)?;
        if check_format(&connection)? { Ok(connection) } else { Err(OpenError::Empty) }
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match attempt(Connection::open_with_flags(path, flags)) {
        // On a read-only medium SQLite can't make the files it shares with writers. Then there is no writer.
        Err(OpenError::Sqlite(error))
            if matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly))
                && path.exists()
                && !write_ahead_log(path).exists() =>
        {
            let uri = format!("file:{}?immutable=1", uri_path(path));
            attempt(Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI))
        }
        attempted => attempted,
    }
}

fn uri_path(path: &Path) -> String {
    use std::{fmt::Write, os::unix::ffi::OsStrExt};
    path.as_os_str().as_bytes().iter().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"/._-".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

/// Whether the file is a log of ours already (and not just empty).
fn check_format(connection: &Connection) -> Result<bool, OpenError> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    let (all, ours): (i64, i64) = connection.query_row(
        "SELECT count(*), count(*) FILTER (WHERE type = 'table' AND name IN ('entries', 'heads')) FROM sqlite_schema",
        [],
        |row| row.try_into(),
    )?;
    match (application, version) {
        (APPLICATION, 1..=SCHEMA) if ours == 2 => Ok(true),
        (APPLICATION, found) if found > SCHEMA => Err(OpenError::Newer(found)),
        (0, 0) if all == 0 => Ok(false),
        _ => Err(OpenError::NotALog),
    }
}
