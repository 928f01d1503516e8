//! The registry's SQLite file.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use aegis_core::{
    Secret, Timestamp,
    id::{ContextName, CredentialId, TenantId, UserId},
};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, types::Type};

use super::{
    RegistryError, divide,
    seal::end_sessions,
    token::{NewToken, Token, TokenHash, fresh_id, fresh_secret},
};
use crate::new_database::{self, NewDatabaseError, write_ahead_log};

/// Tells the file from other SQLite databases: `aegr`.
const APPLICATION: i64 = 0x6165_6772;

/// Each step brings a file from the format of its index to the next. Steps are added, never changed.
const STEPS: &[&str] = &[
    include_str!("steps/1_tokens.sql"),
    include_str!("steps/2_seal.sql"),
    include_str!("steps/3_policy.sql"),
    include_str!("steps/4_approvals.sql"),
    include_str!("steps/5_upstream.sql"),
    include_str!("steps/6_approval_bodies.sql"),
];
/// The step after which requests for approval are divided into summary and body.
const APPROVAL_BODIES: usize = 5;

const COLUMNS: &str = "id, tenant, user, tier, context, created, expires, revoked, note, last_used";

/// The most rows one list returns.
const LONGEST_LIST: usize = 10_000;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
}

/// Longer than another process reads.
const BUSY: Duration = Duration::from_secs(10);

impl Store {
    /// With whether a killed node's write-ahead log is still there, because somebody reads the file.
    pub(super) fn open(path: PathBuf) -> Result<(Self, bool), RegistryError> {
        let failed = |source| RegistryError::Database { path: path.clone(), source };
        new_database::ensure(&path, |connection| bring_up(connection, 0)).map_err(|error| match error {
            NewDatabaseError::Sqlite(error) => failed(error),
            NewDatabaseError::Directory(error) => error.into(),
        })?;
        // The last process that had the file would have removed it.
        let was_killed = fs::metadata(write_ahead_log(&path)).is_ok_and(|log| log.len() > 0);
        let mut connection = Connection::open_with_flags(
            &path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        // Before the first pragma that writes: a newer file stays as it is.
        let format = format(&connection, &path)?;
        prepare(&mut connection, format).map_err(failed)?;
        let store = Self { connection, path };
        // It may hold arguments of calls that are over.
        let left_traces =
            was_killed && !store.empty_write_ahead_log().map_err(|error| store.failed(error))?;
        Ok((store, left_traces))
    }

    /// Brings the write-ahead log into the file and cuts it off: it has copies of what was deleted. False when somebody
    /// reads the file at this moment, for whom nobody here is to wait.
    pub(super) fn empty_write_ahead_log(&self) -> rusqlite::Result<bool> {
        self.connection.busy_timeout(Duration::ZERO)?;
        let emptied = self
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
            .map(|busy| busy == 0);
        self.connection.busy_timeout(BUSY)?;
        emptied
    }

    pub(super) fn failed(&self, source: rusqlite::Error) -> RegistryError {
        RegistryError::Database { path: self.path.clone(), source }
    }

    pub(super) fn create(&self, new: &NewToken) -> Result<(Token, Secret), RegistryError> {
        new.check()?;
        let (secret, hash) = fresh_secret()?;
        let token = Token {
            id: fresh_id()?,
            tenant: new.tenant.clone(),
            user: new.user.clone(),
            tier: new.tier,
            context: new.context.clone(),
            created: Timestamp::now(),
            expires: new.expires,
            revoked: None,
            note: new.note.clone(),
            last_used: None,
        };
        insert(&self.connection, &token, &hash).map_err(|error| self.failed(error))?;
        Ok((token, secret))
    }

    pub(super) fn find(&self, hash: &TokenHash) -> Result<Option<Token>, RegistryError> {
        let find = || {
            self.connection
                .prepare_cached(&format!("SELECT {COLUMNS} FROM tokens WHERE hash = ?1"))?
                .query_row([hash.0], token)
                .optional()
        };
        find().map_err(|error| self.failed(error))
    }

    pub(super) fn by_id(&self, id: &CredentialId) -> Result<Option<Token>, RegistryError> {
        self.connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1"))
            .and_then(|mut select| select.query_row([id.as_str()], token).optional())
            .map_err(|error| self.failed(error))
    }

    pub(super) fn list(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
        after: Option<&CredentialId>,
    ) -> Result<Vec<Token>, RegistryError> {
        let after = match after {
            None => 0,
            Some(id) => self
                .connection
                .query_row("SELECT number FROM tokens WHERE id = ?1", [id.as_str()], |row| {
                    row.get::<_, i64>(0)
                })
                .optional()
                .map_err(|error| self.failed(error))?
                .ok_or_else(|| RegistryError::NoSuchToken(id.clone()))?,
        };
        let limit = limit.min(LONGEST_LIST);
        let list = || -> rusqlite::Result<Vec<Token>> {
            match tenant {
            None => self
                .connection
                .prepare_cached(&format!("SELECT {COLUMNS} FROM tokens WHERE number > ?1 ORDER BY number LIMIT ?2"))?
                .query_map((after, limit), token)?
                .collect(),
            Some(tenant) => self
                .connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM tokens WHERE tenant = ?3 AND number > ?1 ORDER BY number LIMIT ?2"
                ))?
                .query_map((after, limit, tenant.as_str()), token)?
                .collect(),
        }
        };
        list().map_err(|error| self.failed(error))
    }

    pub(super) fn revoke(&self, id: &CredentialId, at: Timestamp) -> Result<Token, RegistryError> {
        let revoke = || {
            self.connection.execute(
                "UPDATE tokens SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL",
                (id.as_str(), at.millis()),
            )?;
            end_sessions(&self.connection, id, "its token was revoked", at)?;
            self.connection
                .query_row(&format!("SELECT {COLUMNS} FROM tokens WHERE id = ?1"), [id.as_str()], token)
                .optional()
        };
        revoke().map_err(|error| self.failed(error))?.ok_or_else(|| RegistryError::NoSuchToken(id.clone()))
    }

    pub(super) fn note_uses(&mut self, uses: &HashMap<CredentialId, Timestamp>) -> rusqlite::Result<()> {
        // Nobody is promised this, so nobody who looks a token up meanwhile should wait for the disk.
        self.connection.pragma_update(None, "synchronous", "normal")?;
        let noted = self.note_uses_unsynced(uses);
        self.connection.pragma_update(None, "synchronous", "full")?;
        noted
    }

    fn note_uses_unsynced(&mut self, uses: &HashMap<CredentialId, Timestamp>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        for (id, at) in uses {
            transaction
                .prepare_cached("UPDATE tokens SET last_used = ?2 WHERE id = ?1")?
                .execute((id.as_str(), at.millis()))?;
        }
        transaction.commit()
    }

    /// Which token is the operator's own.
    pub(super) fn operator_token(&self) -> Result<Option<CredentialId>, RegistryError> {
        self.connection
            .query_row("SELECT value FROM node WHERE name = 'operator-token'", [], |row| {
                row.get::<_, String>(0)
            })
            .optional()
            .map(|id| id.map(CredentialId::new))
            .map_err(|error| self.failed(error))
    }

    /// Puts a new operator token in the place of the present one, which is revoked in the same commit.
    pub(super) fn replace_operator_token(
        &mut self,
        new: &NewToken,
    ) -> Result<(Token, Secret), RegistryError> {
        let path = self.path.clone();
        let failed = |source| RegistryError::Database { path: path.clone(), source };
        let present = self.operator_token()?;
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let replace = || {
            if let Some(present) = present {
                match self.revoke(&present, Timestamp::now()) {
                    Ok(_) | Err(RegistryError::NoSuchToken(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let (token, secret) = self.create(new)?;
            self.connection
                .execute(
                    "INSERT OR REPLACE INTO node (name, value) VALUES ('operator-token', ?1)",
                    [token.id.as_str()],
                )
                .map_err(failed)?;
            self.connection.execute_batch("COMMIT").map_err(failed)?;
            Ok((token, secret))
        };
        let replaced = replace();
        if replaced.is_err() && !self.connection.is_autocommit() {
            self.connection.execute_batch("ROLLBACK").map_err(failed)?;
        }
        replaced
    }
}

fn format(connection: &Connection, path: &Path) -> Result<usize, RegistryError> {
    let failed = |source| RegistryError::Database { path: path.to_owned(), source };
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).map_err(failed);
    let (application, version) = (number("application_id")?, number("user_version")?);
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    match (application, usize::try_from(version)) {
        (APPLICATION, Ok(found)) if found > STEPS.len() => {
            Err(RegistryError::Newer { path: path.to_owned(), found, known: STEPS.len() })
        }
        (APPLICATION, Ok(found)) => Ok(found),
        (0, Ok(0)) if tables == 0 => Ok(0),
        _ => Err(RegistryError::NotARegistry { path: path.to_owned() }),
    }
}

fn prepare(connection: &mut Connection, format: usize) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "wal")?;
    // A token is handed out, or refused, only once that is on disk.
    connection.pragma_update(None, "synchronous", "full")?;
    // Arguments of calls that waited are gone from the file when they are deleted, not when the page is used again.
    connection.pragma_update(None, "secure_delete", true)?;
    if format == STEPS.len() { Ok(()) } else { bring_up(connection, format) }
}

fn bring_up(connection: &mut Connection, format: usize) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for (step, statements) in STEPS.iter().enumerate().skip(format) {
        transaction.execute_batch(statements)?;
        if step == APPROVAL_BODIES {
            divide::divide(&transaction)?;
        }
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", STEPS.len())?;
    transaction.commit()
}

fn insert(connection: &Connection, token: &Token, hash: &TokenHash) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO tokens (id, hash, tenant, user, tier, context, created, expires, note)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute((
            token.id.as_str(),
            hash.0,
            token.tenant.as_str(),
            token.user.as_str(),
            token.tier.as_str(),
            token.context.as_str(),
            token.created.millis(),
            token.expires.map(Timestamp::millis),
            &token.note,
        ))?;
    Ok(())
}

fn token(row: &Row<'_>) -> rusqlite::Result<Token> {
    let time = |index| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<u64>>(index)?.map(Timestamp::from_millis))
    };
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    Ok(Token {
        id: CredentialId::new(text(0)?),
        tenant: TenantId::new(text(1)?),
        user: UserId::new(text(2)?),
        tier: text(3)?.parse().map_err(|error: String| {
            rusqlite::Error::FromSqlConversionFailure(3, Type::Text, error.into())
        })?,
        context: ContextName::new(text(4)?),
        created: Timestamp::from_millis(row.get(5)?),
        expires: time(6)?,
        revoked: time(7)?,
        note: row.get(8)?,
        last_used: time(9)?,
    })
}
