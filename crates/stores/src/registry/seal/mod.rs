//! Enrolled workloads and their sessions. The registry is the one owner of their state: what ends a session, ends it
//! here, in the store and in memory at once.

mod enrolment;
mod memory;
mod rows;
mod session;

use std::sync::Arc;

use aegis_core::{
    Secret, Timestamp,
    id::{CredentialId, SessionId, TenantId},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serializer;

pub use self::{
    enrolment::{Enrolment, NewEnrolment, Spent, WorkloadHash},
    session::{LiveSession, NewSession, Session, SessionStatus},
};
pub(super) use self::{memory::Memory, rows::end_sessions};
use super::{Registry, RegistryError};

/// Usable enrolments kept at once. They are all in memory, so that a flood of unknown ids never gets to the disk.
pub const MOST_ENROLMENTS: usize = 10_000;

/// What a session is opened by.
#[derive(Debug, Clone)]
pub enum Authority {
    Enrolment(CredentialId),
    /// A bearer token; the session ends with it.
    Token(CredentialId),
}

impl Authority {
    fn id(&self) -> &CredentialId {
        match self {
            Self::Enrolment(id) | Self::Token(id) => id,
        }
    }
}

/// Why no session was opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the enrolment can't be used any more")]
    Spent(Spent),
    #[error("the token is gone")]
    TokenGone,
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Registry {
    /// Takes the usable enrolments into memory. Until then none is known.
    pub async fn load_enrolments(&self, now: Timestamp) -> Result<(), RegistryError> {
        self.blocking(move |inner| {
            let store = inner.store();
            let usable = store.usable_enrolments(now, MOST_ENROLMENTS)?;
            inner.seal().know(usable);
            drop(store);
            Ok(())
        })
        .await
    }

    /// Enrols a workload. Its id can't be had again.
    pub async fn enroll(
        &self,
        new: NewEnrolment,
        now: Timestamp,
    ) -> Result<(Enrolment, Secret), RegistryError> {
        self.blocking(move |inner| {
            new.check(now)?;
            let store = inner.store();
            if !inner.seal().has_room(now) {
                return Err(RegistryError::Invalid(format!(
                    "{MOST_ENROLMENTS} workloads are enrolled, which is the limit: revoke some first"
                )));
            }
            let (enrolment, secret, hash) = store.create_enrolment(&new, now)?;
            inner.seal().know([(hash, enrolment.clone())]);
            drop(store);
            Ok((enrolment, secret))
        })
        .await
    }

    /// Enrolments, the newest first.
    pub async fn enrolments(&self, limit: usize) -> Result<Vec<Enrolment>, RegistryError> {
        self.blocking(move |inner| inner.store().enrolments(limit)).await
    }

    /// Takes an enrolment back and ends the sessions that were opened with it. Again, and nothing changes.
    pub async fn revoke_enrolment(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Enrolment, RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let mut store = inner.store();
            let enrolment = store.revoke_enrolment(&id, now)?;
            inner.seal().forget_credential(&id);
            drop(store);
            Ok(enrolment)
        })
        .await
    }

    /// The enrolment that a workload id proves. Never looks at the disk.
    pub fn enrolment(&self, hash: &WorkloadHash) -> Option<Arc<Enrolment>> {
        self.inner.seal().enrolment(hash)
    }

    /// Opens a session, and with it uses up one of the enrolment's. On disk before it returns.
    pub async fn open_session(
        &self,
        authority: Authority,
        new: NewSession,
        now: Timestamp,
    ) -> Result<Arc<LiveSession>, OpenError> {
        self.blocking(move |inner| {
            let mut store = inner.store();
            let opened = match store.open_session(&authority, &new, now) {
                Ok(opened) => opened,
                Err(OpenError::Registry(error)) => return Err(error),
                Err(refused) => return Ok(Err(refused)),
            };
            let live = Arc::new(LiveSession::new(opened.session, new.key, new.era));
            let mut memory = inner.seal();
            memory.keep(new.token_hash, Arc::clone(&live));
            if let Some(enrolment) = opened.enrolment {
                memory.replace(enrolment);
            }
            drop(memory);
            drop(store);
            Ok(Ok(live))
        })
        .await?
    }

    /// When a bearer token ends (never is far away), or none when it has ended.
    pub async fn token_end(
        &self,
        id: &CredentialId,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| inner.store().token_end(&id, now)).await
    }

    /// The session of the token with this hash, if it is in memory.
    pub fn session_in_memory(&self, token_hash: &[u8; 32]) -> Option<Arc<LiveSession>> {
        self.inner.seal().session(token_hash)
    }

    /// The session of the token with this hash, whatever its state. What it costs does not depend on how many there are.
    pub async fn session(&self, token_hash: &[u8; 32]) -> Result<Option<Arc<LiveSession>>, RegistryError> {
        if let Some(live) = self.session_in_memory(token_hash) {
            return Ok(Some(live));
        }
        let hash = *token_hash;
        self.blocking(move |inner| {
            let store = inner.store();
            let Some((session, key)) = store.find_session(&hash)? else { return Ok(None) };
            let live = Arc::new(LiveSession::new(session, key, 0));
            // With the store in hand: a session that is revoked meanwhile does not come back.
            inner.seal().keep(hash, Arc::clone(&live));
            drop(store);
            Ok(Some(live))
        })
        .await
    }

    pub async fn session_by_id(&self, id: &SessionId) -> Result<Option<Session>, RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| inner.store().session_by_id(id.as_str())).await
    }

    /// Whether a session could make a call now. Blocks, for the time of one read.
    pub fn session_is_live(&self, id: &SessionId, now: Timestamp) -> bool {
        let found = self.inner.store().session_by_id(id.as_str());
        matches!(found, Ok(Some(session)) if session.status_at(now) == SessionStatus::Active)
    }

    /// Sessions, the newest first, those of one tenant or all.
    pub async fn sessions(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<Session>, RegistryError> {
        let tenant = tenant.cloned();
        self.blocking(move |inner| inner.store().sessions(tenant.as_ref(), limit)).await
    }

    /// Ends a session, named by its own id or its execution's. Again, and nothing changes.
    pub async fn revoke_session(
        &self,
        id: &SessionId,
        reason: &str,
        now: Timestamp,
    ) -> Result<Session, RegistryError> {
        let (id, reason) = (id.clone(), reason.to_owned());
        self.blocking(move |inner| {
            let store = inner.store();
            let session = store.revoke_session(id.as_str(), &reason, now)?;
            inner.seal().forget_session(&session);
            drop(store);
            Ok(session)
        })
        .await
    }

    /// How many sessions could make a call now.
    pub async fn count_sessions(&self, now: Timestamp) -> Result<u64, RegistryError> {
        self.blocking(move |inner| inner.store().count_sessions(now)).await
    }

    /// When the last of all sessions ends.
    pub async fn last_session_end(&self) -> Result<Option<Timestamp>, RegistryError> {
        self.blocking(|inner| inner.store().last_session_end()).await
    }
}

pub(super) fn in_base64_always<S: Serializer>(key: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(key))
}

pub(super) fn in_base64<S: Serializer>(key: &Option<[u8; 32]>, serializer: S) -> Result<S::Ok, S::Error> {
    match key {
        Some(key) => in_base64_always(key, serializer),
        None => serializer.serialize_none(),
    }
}
