//! Workloads that may attest: what an operator allowed, and the hash of the id that proves it.

use aegis_core::{
    Secret, Timestamp,
    caller::Tier,
    id::{ContextName, CredentialId, TenantId, UserId, is_dns_label},
};
use serde::Serialize;

use crate::registry::{RegistryError, mint};

/// How every workload id begins.
const PREFIX: &str = "wl_";

/// The most contexts that one enrolment names.
const MOST_CONTEXTS: usize = 32;

/// What an operator decides about a workload. Nothing of it can be chosen by who presents the id.
#[derive(Debug, Clone)]
pub struct NewEnrolment {
    /// Contexts that a session may be opened in; each session has one of them.
    pub contexts: Vec<ContextName>,
    pub tier: Tier,
    pub tenant: TenantId,
    pub user: UserId,
    pub expires: Option<Timestamp>,
    /// How many sessions may be opened; without a number, any.
    pub uses: Option<u32>,
    /// The one Ed25519 key that may attest; without one, whichever comes.
    pub key: Option<[u8; 32]>,
    pub note: Option<String>,
}

impl NewEnrolment {
    pub(super) fn check(&self, now: Timestamp) -> Result<(), RegistryError> {
        let invalid = |text: &str| Err(RegistryError::Invalid(text.to_owned()));
        let plain = |text: &str, most| text.len() <= most && !text.chars().any(char::is_control);
        if self.contexts.is_empty() || self.contexts.len() > MOST_CONTEXTS {
            return invalid("an enrolment names 1 to 32 contexts");
        }
        if !self.contexts.iter().all(|context| is_dns_label(context.as_str())) {
            return invalid("a context is 1 to 63 of a-z, 0-9 and -, with no - at the ends");
        }
        if !is_dns_label(self.tenant.as_str()) {
            return invalid("a tenant is 1 to 63 of a-z, 0-9 and -, with no - at the ends");
        }
        if self.user.as_str().is_empty() || !plain(self.user.as_str(), 128) {
            return invalid("a user is 1 to 128 bytes of text without control characters");
        }
        if !self.note.as_deref().is_none_or(|note| plain(note, 256)) {
            return invalid("a note is at most 256 bytes of text without control characters");
        }
        if self.expires.is_some_and(|expires| expires <= now) {
            return invalid("an enrolment that expires in the past can't be used: give a later time");
        }
        if self.uses == Some(0) {
            return invalid("an enrolment without a use can't be used: give 1 or more");
        }
        Ok(())
    }
}

/// All that is known of an enrolled workload, except its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Enrolment {
    pub id: CredentialId,
    pub contexts: Vec<ContextName>,
    pub tier: Tier,
    pub tenant: TenantId,
    pub user: UserId,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "super::in_base64")]
    pub key: Option<[u8; 32]>,
    /// Sessions that may still be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses_left: Option<u32>,
    /// Sessions that were opened.
    pub attested: u64,
    pub created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Why an enrolled workload can't attest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    Expired,
    UsedUp,
    Revoked,
}

impl Enrolment {
    pub fn usable_at(&self, now: Timestamp) -> Result<(), Spent> {
        if self.revoked.is_some() {
            return Err(Spent::Revoked);
        }
        if self.expires.is_some_and(|at| at <= now) {
            return Err(Spent::Expired);
        }
        if self.uses_left == Some(0) {
            return Err(Spent::UsedUp);
        }
        Ok(())
    }
}

/// The SHA-256 of a workload id. Only hashes are compared, so how long that takes tells nothing about how much of a
/// guess was right; and with 256 random bits in the id there is nothing to guess.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkloadHash(pub(super) [u8; 32]);

impl WorkloadHash {
    /// None for text that can't be a workload id, which then costs no lookup.
    pub fn of(text: &str) -> Option<Self> {
        mint::hash_of(PREFIX, text).map(Self)
    }
}

impl std::fmt::Debug for WorkloadHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WorkloadHash(…)")
    }
}

/// A new workload id and its hash.
pub(super) fn fresh_workload() -> Result<(Secret, WorkloadHash), RegistryError> {
    let (secret, hash) = mint::secret(PREFIX)?;
    Ok((secret, WorkloadHash(hash)))
}

/// The public handle of a new enrolment. It has nothing to do with the workload id.
pub(super) fn fresh_id() -> Result<CredentialId, RegistryError> {
    mint::handle("enr_")
}
