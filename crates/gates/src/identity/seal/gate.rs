//! The gate itself: who signed an envelope, and who may have a session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aegis_core::{
    Caller, Secret, Timestamp, ViolationKind,
    config::{SealConfig, security_context::is_open_to},
    id::{CredentialId, SessionId, TenantId},
};
use aegis_stores::{
    DataDir, Registry,
    data_dir::DataDirError,
    registry::{Enrolment, LiveSession, NewEnrolment, RegistryError, Session},
    replay::{ReplayLog, Used},
};
use sha2::{Digest, Sha256};

use super::{
    clock::{Clock, SystemClock, second},
    envelope::{Envelope, Request},
    keys::{KeyId, Keys, KeysError},
    limiter::Limiter,
    refusal::{
        INVALID_SIGNATURE, Refusal, SESSION_INACTIVE, SESSION_UNKNOWN, TOKEN_INVALID, bad_token, expired,
        internal, not_accepted, stale,
    },
    replay::{self, Replay},
    token::{self, Claims, Terms},
};

/// Bodies above this are read on a thread of their own: so much work would hold up the reactor.
const LARGE: usize = 128 << 10;

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error(transparent)]
    Registry(RegistryError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("the log of used envelopes can't be written: {0}")]
    Replay(std::io::Error),
    #[error("{0}")]
    Invalid(String),
    #[error("there is no session `{0}`: `aegis seal sessions` shows those there are")]
    NoSuchSession(SessionId),
    #[error("there is no enrolment `{0}`: `aegis seal enrolments` shows those there are")]
    NoSuchEnrolment(CredentialId),
    #[error("the node is stopping")]
    Stopped,
}

impl From<RegistryError> for SealError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Invalid(message) => Self::Invalid(message),
            RegistryError::NoSuchSession(id) => Self::NoSuchSession(id),
            RegistryError::NoSuchEnrolment(id) => Self::NoSuchEnrolment(id),
            RegistryError::Stopped => Self::Stopped,
            other => Self::Registry(other),
        }
    }
}

impl From<DataDirError> for SealError {
    fn from(error: DataDirError) -> Self {
        Self::Keys(error.into())
    }
}

/// An envelope whose sender is known.
#[derive(Debug)]
pub struct Verified {
    pub caller: Caller,
    /// The JSON text of the request's id.
    pub id: String,
    pub request: Request,
    /// SHA-256 of the signed bytes.
    pub digest: [u8; 32],
    /// In base64, as it came: with the digest and the session's key, what proves who asked.
    pub signature: String,
}

/// Who signed, and who may have a session. Clones share everything.
#[derive(Debug, Clone)]
pub struct SealGate {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) registry: Registry,
    pub(super) keys: Keys,
    pub(super) terms: Terms,
    pub(super) token_seconds: u64,
    window: i64,
    pub(super) replay: Mutex<Replay>,
    /// By enrolment or token.
    pub(super) attestations: Mutex<Limiter<CredentialId>>,
    /// All that come with no known workload, together: whoever is known is never held up by them.
    pub(super) strangers: Mutex<Limiter<()>>,
    clock: Arc<dyn Clock>,
}

pub(super) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SealGate {
    /// Opens the gate on what earlier processes left: keys, enrolments, sessions, used envelopes.
    pub async fn open(data: &DataDir, registry: Registry, config: &SealConfig) -> Result<Self, SealError> {
        Self::open_with(data, registry, config, Arc::new(SystemClock), replay::MOST).await
    }

    /// As [`SealGate::open`], by another clock, holding `most` used envelopes at once.
    pub async fn open_with(
        data: &DataDir,
        registry: Registry,
        config: &SealConfig,
        clock: Arc<dyn Clock>,
        most: usize,
    ) -> Result<Self, SealError> {
        let now = clock.now();
        registry.load_enrolments(now).await?;
        let sessions = registry.last_session_end().await?.is_some();
        let window = i64::try_from(config.window.0.as_secs()).unwrap_or(60);
        let (data, trusted) = (data.clone(), config.trusted_keys.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let keys = Keys::open(&data, &trusted, now)?;
            let (log, found) = ReplayLog::open(&data).map_err(SealError::Replay)?;
            let replay =
                Replay::new(log, found, sessions, window, most, second(now)).map_err(SealError::Replay)?;
            Ok::<_, SealError>((keys, replay))
        });
        let (keys, replay) = opened.await.map_err(|_| SealError::Stopped)??;
        let inner = Inner {
            registry,
            keys,
            terms: Terms { issuer: config.issuer.clone(), audiences: config.audiences.clone() },
            token_seconds: config.token_ttl.0.as_secs(),
            window,
            replay: Mutex::new(replay),
            attestations: Mutex::new(Limiter::new(config.attestations_per_minute)),
            strangers: Mutex::new(Limiter::new(config.attestations_per_minute)),
            clock,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Enrols a workload. The secret is what it sends as `workload_id`, and can't be had again.
    pub async fn enroll(&self, new: NewEnrolment) -> Result<(Enrolment, Secret), SealError> {
        for context in &new.contexts {
            is_open_to(context.as_str(), new.tenant.as_str(), new.tier).map_err(SealError::Invalid)?;
        }
        Ok(self.inner.registry.enroll(new, self.now()).await?)
    }

    pub async fn enrolments(&self, limit: usize) -> Result<Vec<Enrolment>, SealError> {
        Ok(self.inner.registry.enrolments(limit).await?)
    }

    /// Takes an enrolment back, and ends its sessions.
    pub async fn revoke_enrolment(&self, id: &str) -> Result<Enrolment, SealError> {
        Ok(self.inner.registry.revoke_enrolment(&CredentialId::new(id), self.now()).await?)
    }

    pub async fn sessions(&self, tenant: Option<&TenantId>, limit: usize) -> Result<Vec<Session>, SealError> {
        Ok(self.inner.registry.sessions(tenant, limit).await?)
    }

    /// How many sessions could make a call now.
    pub async fn count_sessions(&self) -> Result<u64, SealError> {
        Ok(self.inner.registry.count_sessions(self.now()).await?)
    }

    /// A session, named by its own id or its execution's.
    pub async fn session(&self, id: &SessionId) -> Result<Session, SealError> {
        let found = self.inner.registry.session_by_id(id).await?;
        found.ok_or_else(|| SealError::NoSuchSession(id.clone()))
    }

    /// Ends a session: its next envelope is refused.
    pub async fn revoke_session(&self, id: &SessionId, reason: &str) -> Result<Session, SealError> {
        Ok(self.inner.registry.revoke_session(id, reason, self.now()).await?)
    }

    /// Whether a session could still make a call. Looks into the store, which is quick but not nothing: for calls that
    /// were parked, not for each call.
    pub fn is_live(&self, session: &SessionId) -> bool {
        self.inner.registry.session_is_live(session, self.now())
    }

    /// Signs with a new key from now on. The present one verifies until the last session there is ends.
    pub async fn rotate_keys(&self) -> Result<KeyId, SealError> {
        let now = self.now();
        // A token that is being signed at this moment is not among the sessions yet.
        let longest = now.plus(std::time::Duration::from_secs(self.inner.token_seconds));
        let until = self.inner.registry.last_session_end().await?.unwrap_or(now).max(longest);
        let inner = Arc::clone(&self.inner);
        let rotated = tokio::task::spawn_blocking(move || inner.keys.rotate(now, until));
        Ok(rotated.await.map_err(|_| SealError::Stopped)??)
    }

    /// The public keys that verify this node's tokens.
    pub fn jwks(&self) -> serde_json::Value {
        self.inner.keys.jwks()
    }

    /// Leaves the log of used envelopes in order. The gate is not used afterwards.
    pub async fn close(&self) {
        let inner = Arc::clone(&self.inner);
        let closed = tokio::task::spawn_blocking(move || held(&inner.replay).close()).await;
        if let Ok(Err(error)) = closed {
            tracing::warn!(%error, "the log of used envelopes did not close cleanly");
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Says who signed an envelope, and takes it for the only time.
    pub async fn verify(&self, body: &[u8]) -> Result<Verified, Refusal> {
        let envelope = if body.len() > LARGE {
            let body = body.to_vec();
            let read = tokio::task::spawn_blocking(move || Envelope::read(&body)).await;
            read.map_err(|_| internal(&SealError::Stopped))?
        } else {
            Envelope::read(body)
        };
        let envelope = envelope.map_err(|malformed| malformed.refusal())?;
        let token_hash: [u8; 32] = Sha256::digest(&envelope.token).into();
        let live = match self.inner.registry.session_in_memory(&token_hash) {
            Some(live) => Some(live),
            None => self.in_store(&envelope, &token_hash).await?,
        };
        let Some(live) = live else {
            let mut refusal = Refusal::of(
                ViolationKind::TokenInvalid,
                SESSION_UNKNOWN,
                "no session of this node has this token",
            )
            .hint("attest again: POST /v1/seal/attest");
            refusal.id = envelope.id();
            return Err(refusal);
        };
        if body.len() > LARGE {
            let gate = self.clone();
            let judged = tokio::task::spawn_blocking(move || gate.judge(envelope, &live)).await;
            return judged.map_err(|_| internal(&SealError::Stopped))?;
        }
        self.judge(envelope, &live)
    }

    /// Looks in the store, for a token that was signed here: strangers can make up any number of others.
    async fn in_store(
        &self,
        envelope: &Envelope,
        token_hash: &[u8; 32],
    ) -> Result<Option<Arc<LiveSession>>, Refusal> {
        let with_id = |mut refusal: Refusal| {
            refusal.id = envelope.id();
            refusal
        };
        let now = self.now().millis() / 1000;
        token::verify(&envelope.token, &self.inner.keys.ring(), &self.inner.terms, now)
            .map_err(|fault| with_id(bad_token(fault)))?;
        self.inner.registry.session(token_hash).await.map_err(|error| with_id(internal(&error)))
    }

    fn judge(&self, envelope: Envelope, live: &LiveSession) -> Result<Verified, Refusal> {
        let judged = self.check(&envelope, live).and_then(|digest| {
            let (id, request) = envelope.request().map_err(|malformed| malformed.refusal())?;
            Ok((digest, id, request))
        });
        match judged {
            Ok((digest, id, request)) => {
                let (caller, signature) = (live.caller.clone(), envelope.signature);
                Ok(Verified { caller, id, request, digest, signature })
            }
            Err(mut refusal) => {
                refusal.id = envelope.id();
                refusal.claimed = Some(Box::new(live.caller.clone()));
                Err(refusal)
            }
        }
    }

    /// Freshness, signature, token, replay, liveness, in this order. What is cheap and what an outsider can get wrong
    /// comes first; nothing is remembered of an envelope that its key did not sign.
    fn check(&self, envelope: &Envelope, live: &LiveSession) -> Result<[u8; 32], Refusal> {
        let now = self.now();
        let now_second = second(now);
        if now_second.abs_diff(envelope.second) > self.inner.window.unsigned_abs() {
            return Err(stale(self.inner.window));
        }
        let Some(message) = envelope.verify(&live.key) else {
            return Err(Refusal::of(
                ViolationKind::SignatureVerificationFailed,
                INVALID_SIGNATURE,
                "the signature is not by the session's key over this payload, token and time",
            )
            .hint("sign the canonical form of {payload, security_token, timestamp}; `aegis explain SignatureVerificationFailed`"));
        };
        if !live.token_was_verified() {
            let claims = token::verify(
                &envelope.token,
                &self.inner.keys.ring(),
                &self.inner.terms,
                now.millis() / 1000,
            )
            .map_err(bad_token)?;
            bound(&claims, &live.session)?;
            live.token_is_verified();
        }
        if live.session.expires <= now {
            return Err(expired());
        }
        let digest: [u8; 32] = Sha256::digest(&message).into();
        // The signer and the digest of the message stand for signer and message.
        let key = Sha256::new().chain_update(live.key.as_bytes()).chain_update(digest).finalize().into();
        let accepted =
            held(&self.inner.replay).accept(Used { key, second: envelope.second }, live.era, now_second);
        accepted.map_err(|unaccepted| not_accepted(&unaccepted, self.inner.window))?;
        if live.session.revoked.is_some() {
            let reason = live.session.reason.as_deref().unwrap_or("it was revoked");
            return Err(Refusal::of(
                ViolationKind::SessionInactive,
                SESSION_INACTIVE,
                format!("the session has been ended: {reason}"),
            )
            .hint("ask the operator; a new session needs a new attestation"));
        }
        Ok(digest)
    }
}

/// Everything a token says must be what the session was opened with.
fn bound(claims: &Claims, session: &Session) -> Result<(), Refusal> {
    let same = claims.jti == session.id.as_str()
        && claims.sub == session.agent
        && claims.scp == session.context.as_str()
        && claims.wid == session.workload
        && claims.exec_id == session.execution
        && claims.tenant_id == session.tenant.as_str()
        && claims.exp.saturating_mul(1000) == session.expires.millis();
    if same {
        return Ok(());
    }
    Err(Refusal::of(
        ViolationKind::TokenInvalid,
        TOKEN_INVALID,
        "the token says something else than the session it is used for",
    ))
}
