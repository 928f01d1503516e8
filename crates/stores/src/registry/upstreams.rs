//! MCP servers that operators added while the node ran.

use std::path::Path;

use aegis_core::{Timestamp, id::UserId};
use rusqlite::{OptionalExtension, Row};
use serde::Serialize;

use super::{Registry, RegistryError, rows::read_rows};

const LIST: &str = "SELECT name, text, added, added_by FROM upstreams ORDER BY name";

/// Added servers that a node keeps.
pub const MOST_ADDED_SERVERS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AddedServer {
    pub name: String,
    /// Its configuration as JSON.
    pub text: String,
    pub added: Timestamp,
    pub added_by: UserId,
}

impl Registry {
    /// By name.
    pub async fn added_servers(&self) -> Result<Vec<AddedServer>, RegistryError> {
        self.blocking(|inner| {
            let store = inner.store();
            let list = || -> rusqlite::Result<Vec<AddedServer>> {
                store.connection.prepare_cached(LIST)?.query_map([], added)?.collect()
            };
            list().map_err(|error| store.failed(error))
        })
        .await
    }

    /// Puts a server in the place of the one of its name. On disk before it returns.
    pub async fn add_server(&self, server: AddedServer) -> Result<(), RegistryError> {
        self.blocking(move |inner| {
            let store = inner.store();
            let others: usize = store
                .connection
                .query_row("SELECT count(*) FROM upstreams WHERE name <> ?1", [&server.name], |row| row.get(0))
                .map_err(|error| store.failed(error))?;
            if others >= MOST_ADDED_SERVERS {
                return Err(RegistryError::Invalid(format!(
                    "{MOST_ADDED_SERVERS} servers were added, which is the most: remove one, or define them in the \
                     configuration file"
                )));
            }
            store
                .connection
                .execute(
                    "INSERT OR REPLACE INTO upstreams (name, text, added, added_by) VALUES (?1, ?2, ?3, ?4)",
                    (&server.name, &server.text, server.added.millis(), server.added_by.as_str()),
                )
                .map(drop)
                .map_err(|error| store.failed(error))
        })
        .await
    }

    /// Takes an added server away, and returns it.
    pub async fn remove_server(&self, name: &str) -> Result<Option<AddedServer>, RegistryError> {
        let name = name.to_owned();
        self.blocking(move |inner| {
            let store = inner.store();
            store
                .connection
                .query_row(
                    "DELETE FROM upstreams WHERE name = ?1 RETURNING name, text, added, added_by",
                    [&name],
                    added,
                )
                .optional()
                .map_err(|error| store.failed(error))
        })
        .await
    }
}

/// The added servers in a registry's file, whether or not a node has it open. None when there is no such file. Blocks,
/// and changes nothing.
pub fn read_added_servers(database: &Path) -> Result<Vec<AddedServer>, RegistryError> {
    read_rows(database, "upstreams", LIST, added)
}

fn added(row: &Row<'_>) -> rusqlite::Result<AddedServer> {
    Ok(AddedServer {
        name: row.get(0)?,
        text: row.get(1)?,
        added: Timestamp::from_millis(row.get(2)?),
        added_by: UserId::new(row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?),
    })
}
