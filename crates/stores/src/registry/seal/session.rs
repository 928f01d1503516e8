//! Sessions of attested workloads.

use std::sync::atomic::{AtomicBool, Ordering};

use aegis_core::{
    Caller, Door, Timestamp,
    caller::Tier,
    id::{ContextName, ContextVersion, CredentialId, SessionId, TenantId, UserId},
};
use ed25519_dalek::VerifyingKey;
use serde::Serialize;

/// What a session is opened with. Identity comes from the enrolment or token; the key from the workload.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub id: SessionId,
    pub tenant: TenantId,
    pub user: UserId,
    pub tier: Tier,
    pub context: ContextName,
    pub pinned: Option<ContextVersion>,
    pub workload: String,
    pub agent: String,
    pub execution: String,
    pub key: VerifyingKey,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// SHA-256 of the session's token.
    pub token_hash: [u8; 32],
    /// Kept with the session for as long as it is in memory; see [`LiveSession::era`].
    pub era: u64,
}

/// All that is known of a session, except its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Session {
    pub id: SessionId,
    /// The enrolment (`enr_…`) or token (`tok_…`) it was opened with.
    pub credential: CredentialId,
    pub tenant: TenantId,
    pub user: UserId,
    pub tier: Tier,
    pub context: ContextName,
    /// The version of the context that the session keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<ContextVersion>,
    /// `wid` of its token.
    pub workload: String,
    /// `sub` of its token.
    pub agent: String,
    /// `exec_id` of its token.
    pub execution: String,
    #[serde(serialize_with = "super::in_base64_always")]
    pub public_key: [u8; 32],
    pub created: Timestamp,
    pub expires: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum SessionStatus {
    Active,
    Expired,
    Revoked,
}

impl SessionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Expired => "Expired",
            Self::Revoked => "Revoked",
        }
    }
}

impl Session {
    pub fn status_at(&self, now: Timestamp) -> SessionStatus {
        if self.revoked.is_some() {
            SessionStatus::Revoked
        } else if self.expires <= now {
            SessionStatus::Expired
        } else {
            SessionStatus::Active
        }
    }
}

/// A session in memory, with what each of its calls needs at hand.
#[derive(Debug)]
pub struct LiveSession {
    pub session: Session,
    /// Decompressed once, not at each call.
    pub key: VerifyingKey,
    pub caller: Caller,
    /// The gate's count of clock and process generations when the session was opened; 0 for one that was read from
    /// the store.
    pub era: u64,
    token_verified: AtomicBool,
}

impl LiveSession {
    pub(super) fn new(session: Session, key: VerifyingKey, era: u64) -> Self {
        let caller = Caller {
            tenant: session.tenant.clone(),
            user: session.user.clone(),
            tier: session.tier,
            context: session.context.clone(),
            credential: session.credential.clone(),
            door: Door::Seal,
            session: Some(session.id.clone()),
            pinned: session.pinned.clone(),
        };
        Self { session, key, caller, era, token_verified: AtomicBool::new(false) }
    }

    /// Whether the token's signature and claims were found good. They can't change; its time is looked at each call.
    pub fn token_was_verified(&self) -> bool {
        self.token_verified.load(Ordering::Acquire)
    }

    pub fn token_is_verified(&self) {
        self.token_verified.store(true, Ordering::Release);
    }
}
