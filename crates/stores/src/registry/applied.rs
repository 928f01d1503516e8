//! Contexts that operators applied while the node ran.

use std::path::Path;

use aegis_core::{
    Timestamp,
    id::{ContextName, ContextVersion, UserId},
};
use rusqlite::{OptionalExtension, Row};
use serde::Serialize;

use super::{Registry, RegistryError, rows::read_rows, store::Store};

const LIST: &str = "SELECT name, version, text, applied, applied_by FROM applied_contexts ORDER BY name";

/// Applied contexts that a node keeps; each is in memory and compiled.
pub const MOST_APPLIED_CONTEXTS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedContext {
    pub name: ContextName,
    pub version: ContextVersion,
    /// The context as JSON.
    pub text: String,
    pub applied: Timestamp,
    pub applied_by: UserId,
}

impl Registry {
    /// By name.
    pub async fn applied_contexts(&self) -> Result<Vec<AppliedContext>, RegistryError> {
        self.blocking(|inner| inner.store().applied_contexts()).await
    }

    /// Puts a context in the place of the one of its name. On disk before it returns.
    pub async fn apply_context(&self, context: AppliedContext) -> Result<(), RegistryError> {
        self.blocking(move |inner| inner.store().apply_context(&context)).await
    }

    /// Takes an applied context away, and returns it.
    pub async fn withdraw_context(
        &self,
        name: &ContextName,
    ) -> Result<Option<AppliedContext>, RegistryError> {
        let name = name.clone();
        self.blocking(move |inner| inner.store().withdraw_context(&name)).await
    }
}

/// The applied contexts in a registry's file, whether or not a node has it open. None when there is no such file.
/// Blocks, and changes nothing.
pub fn read_applied_contexts(database: &Path) -> Result<Vec<AppliedContext>, RegistryError> {
    read_rows(database, "applied_contexts", LIST, applied)
}

impl Store {
    fn applied_contexts(&self) -> Result<Vec<AppliedContext>, RegistryError> {
        let list = || -> rusqlite::Result<Vec<AppliedContext>> {
            self.connection.prepare_cached(LIST)?.query_map([], applied)?.collect()
        };
        list().map_err(|error| self.failed(error))
    }

    fn apply_context(&self, context: &AppliedContext) -> Result<(), RegistryError> {
        let others: usize = self
            .connection
            .query_row(
                "SELECT count(*) FROM applied_contexts WHERE name <> ?1",
                [context.name.as_str()],
                |row| row.get(0),
            )
            .map_err(|error| self.failed(error))?;
        if others >= MOST_APPLIED_CONTEXTS {
            return Err(RegistryError::Invalid(format!(
                "{MOST_APPLIED_CONTEXTS} contexts are applied, which is the most: delete one, or define them in the \
                 configuration file"
            )));
        }
        self.connection
            .execute(
                "INSERT OR REPLACE INTO applied_contexts (name, version, text, applied, applied_by)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                (
                    context.name.as_str(),
                    context.version.as_str(),
                    &context.text,
                    context.applied.millis(),
                    context.applied_by.as_str(),
                ),
            )
            .map(drop)
            .map_err(|error| self.failed(error))
    }

    fn withdraw_context(&self, name: &ContextName) -> Result<Option<AppliedContext>, RegistryError> {
        self.connection
            .query_row(
                "DELETE FROM applied_contexts WHERE name = ?1
                 RETURNING name, version, text, applied, applied_by",
                [name.as_str()],
                applied,
            )
            .optional()
            .map_err(|error| self.failed(error))
    }
}

fn applied(row: &Row<'_>) -> rusqlite::Result<AppliedContext> {
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    Ok(AppliedContext {
        name: ContextName::new(text(0)?),
        version: ContextVersion::new(text(1)?),
        text: row.get(2)?,
        applied: Timestamp::from_millis(row.get(3)?),
        applied_by: UserId::new(text(4)?),
    })
}
