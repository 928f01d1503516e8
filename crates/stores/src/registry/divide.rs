//! Requests for approval, from the format that held each of them whole.

use aegis_core::Approval;
use rusqlite::Connection;

use super::{
    RegistryError,
    approval_rows::{Body, read, unreadable, written},
};

/// Brings rows that held their request whole to what is kept now: a summary of each, and a body of those that are open.
pub(super) fn divide(connection: &Connection) -> rusqlite::Result<()> {
    let numbers: Vec<i64> = connection
        .prepare("SELECT number FROM approvals")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let mut select = connection.prepare("SELECT request, ended IS NULL FROM approvals WHERE number = ?1")?;
    let mut update = connection.prepare(
        "UPDATE approvals SET request = ?2, credential = ?3, body_bytes = ?4,
             bytes = ?5 + coalesce(length(CAST(outcome AS BLOB)), 0)
         WHERE number = ?1",
    )?;
    let mut insert = connection.prepare("INSERT INTO approval_bodies (number, body) VALUES (?1, ?2)")?;
    let text = |value: Result<String, RegistryError>| value.map_err(|error| unreadable(0, error.into()));
    for number in numbers {
        let (whole, open): (Option<Approval>, bool) =
            select.query_row([number], |row| Ok((read(row, 0)?, row.get(1)?)))?;
        let mut whole = whole.ok_or_else(|| unreadable(0, "there is no request".into()))?;
        whole.arguments_bytes = text(written(&whole.arguments))?.len() as u64;
        let (request, body) = (text(written(&whole.summary()))?, text(written(&Body::of(&whole)))?);
        let body_bytes = if open { insert.execute((number, &body)).map(|_| body.len())? } else { 0 };
        let bytes = request.len();
        update.execute((number, request, whole.caller.credential.as_str(), body_bytes, bytes))?;
    }
    Ok(())
}
