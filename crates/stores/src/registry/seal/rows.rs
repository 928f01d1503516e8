//! Enrolments and sessions in the registry's file.

use std::time::Duration;

use aegis_core::{
    Secret, Timestamp,
    caller::Tier,
    id::{ContextName, ContextVersion, CredentialId, SessionId, TenantId, UserId},
};
use ed25519_dalek::VerifyingKey;
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, types::Type};

use super::{
    Authority, OpenError,
    enrolment::{Enrolment, NewEnrolment, Spent, WorkloadHash, fresh_id, fresh_workload},
    session::{NewSession, Session},
};
use crate::registry::{RegistryError, store::Store};

/// The most rows one list returns.
const LONGEST_LIST: usize = 10_000;
/// How long a session's row stays after its end, so that its holder is told that it expired and not that it is unknown.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// Rows of forgotten sessions that are removed whenever one is opened: more than come in.
const SWEPT: usize = 8;

const ENROLMENT: &str =
    "hash, id, contexts, tier, tenant, user, key, uses, attested, created, expires, revoked, note";
const SESSION: &str = "id, credential, tenant, user, tier, context, pinned, workload, agent, execution, key, created, \
                       expires, revoked, reason";

/// An opened session, and its enrolment as it is now.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) session: Session,
    pub(super) enrolment: Option<(WorkloadHash, Enrolment)>,
}

impl Store {
    pub(super) fn usable_enrolments(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(WorkloadHash, Enrolment)>, RegistryError> {
        let list = || {
            self.connection
                .prepare_cached(&format!(
                    "SELECT {ENROLMENT} FROM seal_enrolments WHERE revoked IS NULL AND (expires IS NULL OR expires > ?1)
                     AND (uses IS NULL OR uses > 0) ORDER BY number DESC LIMIT ?2"
                ))?
                .query_map((now.millis(), limit), enrolment)?
                .collect::<rusqlite::Result<Vec<_>>>()
        };
        list().map_err(|error| self.failed(error))
    }

    pub(super) fn create_enrolment(
        &self,
        new: &NewEnrolment,
        now: Timestamp,
    ) -> Result<(Enrolment, Secret, WorkloadHash), RegistryError> {
        let (secret, hash) = fresh_workload()?;
        let enrolment = Enrolment {
            id: fresh_id()?,
            contexts: new.contexts.clone(),
            tier: new.tier,
            tenant: new.tenant.clone(),
            user: new.user.clone(),
            key: new.key,
            uses_left: new.uses,
            attested: 0,
            created: now,
            expires: new.expires,
            revoked: None,
            note: new.note.clone(),
        };
        let names: Vec<&str> = new.contexts.iter().map(ContextName::as_str).collect();
        self.connection
            .execute(
                "INSERT INTO seal_enrolments (id, hash, contexts, tier, tenant, user, key, uses, created, expires, note)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                (
                    enrolment.id.as_str(),
                    hash.0,
                    names.join(" "),
                    new.tier.as_str(),
                    new.tenant.as_str(),
                    new.user.as_str(),
                    new.key,
                    new.uses,
                    now.millis(),
                    new.expires.map(Timestamp::millis),
                    &new.note,
                ),
            )
            .map_err(|error| self.failed(error))?;
        Ok((enrolment, secret, hash))
    }

    pub(super) fn enrolments(&self, limit: usize) -> Result<Vec<Enrolment>, RegistryError> {
        let list = || {
            self.connection
                .prepare_cached(&format!(
                    "SELECT {ENROLMENT} FROM seal_enrolments ORDER BY number DESC LIMIT ?1"
                ))?
                .query_map([limit.min(LONGEST_LIST)], |row| enrolment(row).map(|(_, enrolment)| enrolment))?
                .collect::<rusqlite::Result<Vec<_>>>()
        };
        list().map_err(|error| self.failed(error))
    }

    pub(super) fn revoke_enrolment(
        &mut self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Enrolment, RegistryError> {
        let mut revoke = || {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            transaction.execute(
                "UPDATE seal_enrolments SET revoked = ?2 WHERE id = ?1 AND revoked IS NULL",
                (id.as_str(), now.millis()),
            )?;
            end_sessions(&transaction, id, "its enrolment was revoked", now)?;
            let found = enrolment_by_id(&transaction, id)?;
            transaction.commit()?;
            Ok(found.map(|(_, enrolment)| enrolment))
        };
        let revoked = revoke();
        revoked.map_err(|error| self.failed(error))?.ok_or_else(|| RegistryError::NoSuchEnrolment(id.clone()))
    }

    pub(super) fn open_session(
        &mut self,
        authority: &Authority,
        new: &NewSession,
        now: Timestamp,
    ) -> Result<Opened, OpenError> {
        let opened = open(&mut self.connection, authority, new, now);
        opened.map_err(|error| match error {
            Failed::Refused(refused) => refused,
            Failed::Database(error) => OpenError::Registry(self.failed(error)),
        })
    }

    pub(super) fn token_end(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, RegistryError> {
        token_end(&self.connection, id, now).map_err(|error| self.failed(error))
    }

    pub(super) fn find_session(
        &self,
        token_hash: &[u8; 32],
    ) -> Result<Option<(Session, VerifyingKey)>, RegistryError> {
        let find = || {
            let found = self
                .connection
                .prepare_cached(&format!("SELECT {SESSION} FROM seal_sessions WHERE hash = ?1"))?
                .query_row([token_hash], session)
                .optional()?;
            let Some(found) = found else { return Ok(None) };
            let key = VerifyingKey::from_bytes(&found.public_key).map_err(|error| {
                rusqlite::Error::FromSqlConversionFailure(10, Type::Blob, Box::new(error))
            })?;
            Ok(Some((found, key)))
        };
        find().map_err(|error| self.failed(error))
    }

    pub(super) fn session_by_id(&self, id: &str) -> Result<Option<Session>, RegistryError> {
        session_named(&self.connection, id).map_err(|error| self.failed(error))
    }

    pub(super) fn sessions(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<Session>, RegistryError> {
        let limit = limit.min(LONGEST_LIST);
        let list = || -> rusqlite::Result<Vec<Session>> {
            match tenant {
                None => self
                    .connection
                    .prepare_cached(&format!(
                        "SELECT {SESSION} FROM seal_sessions ORDER BY number DESC LIMIT ?1"
                    ))?
                    .query_map([limit], session)?
                    .collect(),
                Some(tenant) => self
                    .connection
                    .prepare_cached(&format!(
                        "SELECT {SESSION} FROM seal_sessions WHERE tenant = ?2 ORDER BY number DESC LIMIT ?1"
                    ))?
                    .query_map((limit, tenant.as_str()), session)?
                    .collect(),
            }
        };
        list().map_err(|error| self.failed(error))
    }

    pub(super) fn revoke_session(
        &self,
        id: &str,
        reason: &str,
        now: Timestamp,
    ) -> Result<Session, RegistryError> {
        let revoke = || {
            self.connection.execute(
                "UPDATE seal_sessions SET revoked = ?2, reason = ?3 WHERE (id = ?1 OR execution = ?1) AND revoked IS NULL",
                (id, now.millis(), reason),
            )?;
            session_named(&self.connection, id)
        };
        revoke()
            .map_err(|error| self.failed(error))?
            .ok_or_else(|| RegistryError::NoSuchSession(SessionId::new(id)))
    }

    pub(super) fn count_sessions(&self, now: Timestamp) -> Result<u64, RegistryError> {
        let sql = "SELECT count(*) FROM seal_sessions WHERE expires > ?1 AND revoked IS NULL";
        self.connection.query_row(sql, [now.millis()], |row| row.get(0)).map_err(|error| self.failed(error))
    }

    pub(super) fn last_session_end(&self) -> Result<Option<Timestamp>, RegistryError> {
        self.connection
            .query_row("SELECT max(expires) FROM seal_sessions", [], |row| row.get::<_, Option<u64>>(0))
            .map(|end| end.map(Timestamp::from_millis))
            .map_err(|error| self.failed(error))
    }
}

enum Failed {
    Refused(OpenError),
    Database(rusqlite::Error),
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

/// The count goes down and the session comes in by one commit: neither without the other.
fn open(
    connection: &mut Connection,
    authority: &Authority,
    new: &NewSession,
    now: Timestamp,
) -> Result<Opened, Failed> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let enrolment = match authority {
        Authority::Enrolment(id) => Some(use_up(&transaction, id, now)?),
        Authority::Token(id) if token_end(&transaction, id, now)?.is_some() => None,
        Authority::Token(_) => return Err(Failed::Refused(OpenError::TokenGone)),
    };
    let session = Session {
        id: new.id.clone(),
        credential: authority.id().clone(),
        tenant: new.tenant.clone(),
        user: new.user.clone(),
        tier: new.tier,
        context: new.context.clone(),
        pinned: new.pinned.clone(),
        workload: new.workload.clone(),
        agent: new.agent.clone(),
        execution: new.execution.clone(),
        public_key: new.key.to_bytes(),
        created: new.created,
        expires: new.expires,
        revoked: None,
        reason: None,
    };
    transaction
        .prepare_cached(
            "INSERT INTO seal_sessions (hash, id, credential, tenant, user, tier, context, pinned, workload, agent,
             execution, key, created, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .execute((
            new.token_hash,
            session.id.as_str(),
            session.credential.as_str(),
            session.tenant.as_str(),
            session.user.as_str(),
            session.tier.as_str(),
            session.context.as_str(),
            session.pinned.as_ref().map(ContextVersion::as_str),
            &session.workload,
            &session.agent,
            &session.execution,
            session.public_key,
            session.created.millis(),
            session.expires.millis(),
        ))?;
    transaction
        .prepare_cached(
            "DELETE FROM seal_sessions WHERE number IN (SELECT number FROM seal_sessions WHERE expires < ?1 LIMIT ?2)",
        )?
        .execute((now.minus(REMEMBERED).millis(), SWEPT))?;
    transaction.commit()?;
    Ok(Opened { session, enrolment })
}

fn use_up(
    connection: &Connection,
    id: &CredentialId,
    now: Timestamp,
) -> Result<(WorkloadHash, Enrolment), Failed> {
    let (hash, mut enrolment) =
        enrolment_by_id(connection, id)?.ok_or(Failed::Refused(OpenError::Spent(Spent::Revoked)))?;
    enrolment.usable_at(now).map_err(|spent| Failed::Refused(OpenError::Spent(spent)))?;
    connection
        .prepare_cached("UPDATE seal_enrolments SET uses = uses - 1, attested = attested + 1 WHERE id = ?1")?
        .execute([id.as_str()])?;
    enrolment.uses_left = enrolment.uses_left.map(|uses| uses.saturating_sub(1));
    enrolment.attested += 1;
    Ok((hash, enrolment))
}

/// When a token ends, if it is still good.
fn token_end(
    connection: &Connection,
    id: &CredentialId,
    now: Timestamp,
) -> rusqlite::Result<Option<Timestamp>> {
    let found = connection
        .prepare_cached("SELECT expires FROM tokens WHERE id = ?1 AND revoked IS NULL")?
        .query_row([id.as_str()], |row| row.get::<_, Option<u64>>(0))
        .optional()?;
    Ok(found.map(|expires| Timestamp::from_millis(expires.unwrap_or(u64::MAX))).filter(|end| *end > now))
}

/// Ends the sessions that were opened with a credential.
pub(in crate::registry) fn end_sessions(
    connection: &Connection,
    credential: &CredentialId,
    reason: &str,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    connection.execute(
        "UPDATE seal_sessions SET revoked = ?2, reason = ?3 WHERE credential = ?1 AND revoked IS NULL",
        (credential.as_str(), now.millis(), reason),
    )
}

fn enrolment_by_id(
    connection: &Connection,
    id: &CredentialId,
) -> rusqlite::Result<Option<(WorkloadHash, Enrolment)>> {
    connection
        .prepare_cached(&format!("SELECT {ENROLMENT} FROM seal_enrolments WHERE id = ?1"))?
        .query_row([id.as_str()], enrolment)
        .optional()
}

fn session_named(connection: &Connection, id: &str) -> rusqlite::Result<Option<Session>> {
    connection
        .prepare_cached(&format!(
            "SELECT {SESSION} FROM seal_sessions WHERE id = ?1 OR execution = ?1 ORDER BY number DESC LIMIT 1"
        ))?
        .query_row([id], session)
        .optional()
}

fn tier(row: &Row<'_>, index: usize) -> rusqlite::Result<Tier> {
    let text = row.get_ref(index)?.as_str().map_err(rusqlite::Error::from)?;
    text.parse()
        .map_err(|error: String| rusqlite::Error::FromSqlConversionFailure(index, Type::Text, error.into()))
}

fn time(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Timestamp>> {
    Ok(row.get::<_, Option<u64>>(index)?.map(Timestamp::from_millis))
}

fn enrolment(row: &Row<'_>) -> rusqlite::Result<(WorkloadHash, Enrolment)> {
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    let enrolment = Enrolment {
        id: CredentialId::new(text(1)?),
        contexts: text(2)?.split(' ').map(ContextName::new).collect(),
        tier: tier(row, 3)?,
        tenant: TenantId::new(text(4)?),
        user: UserId::new(text(5)?),
        key: row.get(6)?,
        uses_left: row.get(7)?,
        attested: row.get(8)?,
        created: Timestamp::from_millis(row.get(9)?),
        expires: time(row, 10)?,
        revoked: time(row, 11)?,
        note: row.get(12)?,
    };
    Ok((WorkloadHash(row.get(0)?), enrolment))
}

fn session(row: &Row<'_>) -> rusqlite::Result<Session> {
    let text = |index| row.get_ref(index)?.as_str().map_err(rusqlite::Error::from);
    Ok(Session {
        id: SessionId::new(text(0)?),
        credential: CredentialId::new(text(1)?),
        tenant: TenantId::new(text(2)?),
        user: UserId::new(text(3)?),
        tier: tier(row, 4)?,
        context: ContextName::new(text(5)?),
        pinned: row.get::<_, Option<String>>(6)?.map(ContextVersion::new),
        workload: row.get(7)?,
        agent: row.get(8)?,
        execution: row.get(9)?,
        public_key: row.get(10)?,
        created: Timestamp::from_millis(row.get(11)?),
        expires: Timestamp::from_millis(row.get(12)?),
        revoked: time(row, 13)?,
        reason: row.get(14)?,
    })
}
