//! The whole log as lines of JSON: a header, the records, and each head after the last record it covers.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use rusqlite::{Connection, Row, Rows};
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::{
    database::{OpenError, open_reader},
    digest::Digest,
    head::Head,
};

pub(super) const FORMAT: u64 = 1;

/// The first line. It proves nothing; it tells a file that was cut off by accident from a whole one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    pub(super) format: u64,
    pub(super) records: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("can't read the audit log {path}: {source}")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{path} is not an audit log of aegis: give its audit.db")]
    NotALog { path: PathBuf },
    #[error(
        "{path} was written in format {found}, which this aegis does not know: use the newer one that wrote it"
    )]
    Newer { path: PathBuf, found: i64 },
    #[error(
        "record {seq} is damaged and can't be exported: run `aegis audit verify`, and keep the database itself"
    )]
    DamagedRecord { seq: i64 },
    #[error(
        "the head over {size} records is damaged: run `aegis audit verify`, and keep the database itself"
    )]
    DamagedHead { size: i64 },
    #[error("can't write the export: {0}")]
    Write(#[from] io::Error),
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Exported {
    pub records: u64,
    pub heads: u64,
}

/// Writes the log in `database` as of this moment, whether or not a node is running. Blocks. The writer should
/// buffer; it is flushed at the end.
pub fn export(database: &Path, to: &mut impl Write) -> Result<Exported, ExportError> {
    let connection = open_reader(database).map_err(|error| match error {
        OpenError::Sqlite(source) => ExportError::Database { path: database.to_owned(), source },
        OpenError::NotALog | OpenError::Empty => ExportError::NotALog { path: database.to_owned() },
        OpenError::Newer(found) => ExportError::Newer { path: database.to_owned(), found },
    })?;
    let exported = write(&connection, to).map_err(|stop| match stop {
        Stop::Sqlite(source) => ExportError::Database { path: database.to_owned(), source },
        Stop::Export(error) => error,
    })?;
    to.flush()?;
    Ok(exported)
}

enum Stop {
    Sqlite(rusqlite::Error),
    Export(ExportError),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Export(error.into())
    }
}

fn write(connection: &Connection, to: &mut impl Write) -> Result<Exported, Stop> {
    let transaction = connection.unchecked_transaction()?;
    let records: u64 =
        transaction.query_row("SELECT coalesce(max(seq), 0) FROM entries", [], |row| row.get(0))?;
    line(to, "export", &Header { format: FORMAT, records })?;

    let mut heads = transaction.prepare("SELECT size, body, signature FROM heads ORDER BY size")?;
    let mut entries = transaction.prepare("SELECT seq, body, hash FROM entries ORDER BY seq")?;
    let (mut heads, mut entries) = (heads.query([])?, entries.query([])?);
    let mut exported = Exported { records: 0, heads: 0 };
    let mut head = next_head(&mut heads)?;
    while let Some(row) = entries.next()? {
        let seq: i64 = row.get(0)?;
        while let Some(due) = head.take_if(|head| i64::try_from(head.size).is_ok_and(|size| size < seq)) {
            line(to, "head", &due)?;
            exported.heads += 1;
            head = next_head(&mut heads)?;
        }
        record(to, seq, row)?;
        exported.records += 1;
    }
    while let Some(due) = head {
        line(to, "head", &due)?;
        exported.heads += 1;
        head = next_head(&mut heads)?;
    }
    Ok(exported)
}

fn line(to: &mut impl Write, name: &str, value: &impl Serialize) -> Result<(), Stop> {
    write!(to, "{{\"{name}\":")?;
    serde_json::to_writer(&mut *to, value).map_err(io::Error::from)?;
    to.write_all(b"}\n")?;
    Ok(())
}

fn record(to: &mut impl Write, seq: i64, row: &Row<'_>) -> Result<(), Stop> {
    let damaged = || Stop::Export(ExportError::DamagedRecord { seq });
    let body = row.get_ref(1)?.as_blob().map_err(|_| damaged())?;
    let hash = row.get_ref(2)?.as_blob().ok().and_then(Digest::from_slice).ok_or_else(damaged)?;
    // A body goes into its line as it is, so it must be one line of JSON.
    if body.contains(&b'\n') || serde_json::from_slice::<IgnoredAny>(body).is_err() {
        return Err(damaged());
    }
    write!(to, "{{\"seq\":{seq},\"hash\":\"{hash}\",\"body\":")?;
    to.write_all(body)?;
    to.write_all(b"}\n")?;
    Ok(())
}

fn next_head(heads: &mut Rows<'_>) -> Result<Option<Head>, Stop> {
    let Some(row) = heads.next()? else { return Ok(None) };
    let (body, signature) = (row.get_ref(1)?.as_blob(), row.get_ref(2)?.as_blob());
    let head = body.ok().zip(signature.ok()).and_then(|(body, signature)| Head::parse(body, signature).ok());
    let Some(head) = head else {
        return Err(Stop::Export(ExportError::DamagedHead { size: row.get(0)? }));
    };
    Ok(Some(head))
}
