//! Questions that an approver has settled for a while.

use aegis_core::{Caller, Timestamp, approval::Standing, id::TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    Registry, RegistryError,
    approval_rows::{read, written},
};

/// The most rows one look returns, and the most that are in force at once.
const MOST_ROWS: usize = 10_000;

impl Registry {
    pub async fn add_standing(&self, standing: Standing) -> Result<(), RegistryError> {
        self.blocking(move |inner| {
            let text = written(&standing)?;
            let store = inner.store();
            let inserted = store.connection.execute(
                "INSERT INTO standing_approvals (id, tenant, until, standing) SELECT ?1, ?2, ?3, ?4
                 WHERE (SELECT count(*) FROM standing_approvals) < ?5",
                params![standing.id, standing.tenant.as_str(), standing.until.millis(), text, MOST_ROWS],
            );
            match inserted.map_err(|error| store.failed(error))? {
                0 => Err(RegistryError::Invalid(format!(
                    "there are {MOST_ROWS} standing approvals, which is the most: revoke some first"
                ))),
                _ => Ok(()),
            }
        })
        .await
    }

    pub async fn find_standing(&self, id: &str) -> Result<Option<Standing>, RegistryError> {
        let id = id.to_owned();
        self.blocking(move |inner| {
            let store = inner.store();
            found(&store.connection, &id).map_err(|error| store.failed(error))
        })
        .await
    }

    /// The newest first, those of one tenant or of every one: those in force, or also those that are over or revoked.
    pub async fn list_standing(
        &self,
        tenant: Option<&TenantId>,
        all: bool,
        limit: usize,
    ) -> Result<Vec<Standing>, RegistryError> {
        let tenant = tenant.cloned();
        self.blocking(move |inner| {
            let store = inner.store();
            let select = || -> rusqlite::Result<Vec<Standing>> {
                store
                    .connection
                    .prepare_cached(
                        "SELECT standing, revoked, revoked_by FROM standing_approvals
                         WHERE (?1 IS NULL OR tenant = ?1) AND (?2 OR (revoked IS NULL AND until > ?3))
                         ORDER BY number DESC LIMIT ?4",
                    )?
                    .query_map(
                        params![
                            tenant.as_ref().map(TenantId::as_str),
                            all,
                            Timestamp::now().millis(),
                            limit.min(MOST_ROWS)
                        ],
                        standing,
                    )?
                    .filter_map(Result::transpose)
                    .collect()
            };
            select().map_err(|error| store.failed(error))
        })
        .await
    }

    /// Takes one back. Again, and nothing changes. `None` when there is no such row.
    pub async fn revoke_standing(&self, id: &str, by: &Caller) -> Result<Option<Standing>, RegistryError> {
        let (id, by) = (id.to_owned(), by.clone());
        self.blocking(move |inner| {
            let by = written(&by)?;
            let store = inner.store();
            let revoke = || -> rusqlite::Result<Option<Standing>> {
                store.connection.execute(
                    "UPDATE standing_approvals SET revoked = ?2, revoked_by = ?3 WHERE id = ?1 AND revoked IS NULL",
                    params![id, Timestamp::now().millis(), by],
                )?;
                found(&store.connection, &id)
            };
            revoke().map_err(|error| store.failed(error))
        })
        .await
    }

    /// Forgets those that were over before `before`.
    pub async fn prune_standing(&self, before: Timestamp) -> Result<usize, RegistryError> {
        self.blocking(move |inner| {
            let store = inner.store();
            store
                .connection
                .execute("DELETE FROM standing_approvals WHERE until < ?1 OR revoked < ?1", [before.millis()])
                .map_err(|error| store.failed(error))
        })
        .await
    }
}

fn found(connection: &Connection, id: &str) -> rusqlite::Result<Option<Standing>> {
    connection
        .prepare_cached("SELECT standing, revoked, revoked_by FROM standing_approvals WHERE id = ?1")?
        .query_row([id], standing)
        .optional()
        .map(Option::flatten)
}

fn standing(row: &Row<'_>) -> rusqlite::Result<Option<Standing>> {
    let revoked = row.get::<_, Option<u64>>(1)?.map(Timestamp::from_millis);
    let revoked_by = read(row, 2)?;
    Ok(read::<Standing>(row, 0)?.map(|standing| Standing { revoked, revoked_by, ..standing }))
}
