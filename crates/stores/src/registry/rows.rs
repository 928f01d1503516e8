//! Rows of a registry's file for those who only look, whether or not a node has it open.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags, Row};

use super::RegistryError;

/// Longer than a checkpoint by a node ever takes.
const BUSY: Duration = Duration::from_secs(10);

/// What `list` selects of `table`. None when there is no such file. Blocks, and changes nothing.
pub(super) fn read_rows<T>(
    database: &Path,
    table: &str,
    list: &str,
    row: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, RegistryError> {
    if !database.exists() {
        return Ok(Vec::new());
    }
    let read = || -> rusqlite::Result<Vec<T>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(database, flags)?;
        connection.busy_timeout(BUSY)?;
        let known = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
        // A registry of an earlier format has none.
        if !connection.query_row(known, [table], |row| row.get::<_, bool>(0))? {
            return Ok(Vec::new());
        }
        connection.prepare(list)?.query_map([], row)?.collect()
    };
    read().map_err(|source| RegistryError::Database { path: database.to_owned(), source })
}
