//! Reads a log's database for the verifier.

use std::path::Path;

use rusqlite::{Connection, Row, types::ValueRef};

use super::{
    VerifyError,
    pipe::{Enough, Item, Pipe},
};
use crate::audit::{
    database::{OpenError, open_reader},
    digest::Digest,
    head::{Head, HeadFault},
    key::PublicKey,
};

enum Stop {
    Sqlite(rusqlite::Error),
    Enough,
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Enough> for Stop {
    fn from(_: Enough) -> Self {
        Self::Enough
    }
}

pub(super) fn read(path: &Path, key: &PublicKey, mut pipe: Pipe) {
    let result = read_into(path, key, &mut pipe);
    pipe.finish(result);
}

fn read_into(path: &Path, key: &PublicKey, pipe: &mut Pipe) -> Result<(), VerifyError> {
    let connection = open_reader(path).map_err(|error| match error {
        OpenError::Sqlite(source) => VerifyError::Database { path: path.to_owned(), source },
        OpenError::NotALog | OpenError::Empty => VerifyError::NotALog { path: path.to_owned() },
        OpenError::Newer(found) => VerifyError::Newer { path: path.to_owned(), found },
    })?;
    match rows(&connection, key, pipe) {
        Ok(()) | Err(Stop::Enough) => Ok(()),
        Err(Stop::Sqlite(source)) => Err(VerifyError::Database { path: path.to_owned(), source }),
    }
}

fn rows(connection: &Connection, key: &PublicKey, pipe: &mut Pipe) -> Result<(), Stop> {
    // Both tables as of one moment, however much the node writes meanwhile.
    let transaction = connection.unchecked_transaction()?;
    let mut heads = transaction.prepare("SELECT size, body, signature FROM heads ORDER BY size")?;
    let mut entries = transaction.prepare("SELECT seq, body, hash FROM entries ORDER BY seq")?;
    let (mut heads, mut entries) = (heads.query([])?, entries.query([])?);
    let mut head = heads.next()?.map(|row| head(row, key)).transpose()?;
    while let Some(row) = entries.next()? {
        let seq: i64 = row.get(0)?;
        while let Some((_, item)) = head.take_if(|(size, _)| *size < seq) {
            pipe.item(item)?;
            head = heads.next()?.map(|row| self::head(row, key)).transpose()?;
        }
        let body = blob(row.get_ref(1)?);
        pipe.record(seq, Digest::from_slice(blob(row.get_ref(2)?)), body)?;
    }
    while let Some((_, item)) = head {
        pipe.item(item)?;
        head = heads.next()?.map(|row| self::head(row, key)).transpose()?;
    }
    Ok(())
}

fn head(row: &Row<'_>, key: &PublicKey) -> Result<(i64, Item), Stop> {
    let size: i64 = row.get(0)?;
    let head = Head::parse(blob(row.get_ref(1)?), blob(row.get_ref(2)?)).and_then(|head| {
        if i64::try_from(head.size) != Ok(size) {
            return Err(HeadFault::Malformed);
        }
        head.check(key)?;
        Ok(head)
    });
    Ok((
        size,
        match head {
            Ok(head) => Item::Head(Box::new(head)),
            Err(fault) => Item::BadHead(u64::try_from(size).unwrap_or(0), fault),
        },
    ))
}

/// What is no blob was not written by us, and matches no hash.
fn blob(value: ValueRef<'_>) -> &[u8] {
    value.as_blob().unwrap_or_default()
}
