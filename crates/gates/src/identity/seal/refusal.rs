//! Why an envelope or an attestation is refused, with the protocol's own number beside the violation.

use aegis_core::{Caller, Violation, ViolationKind};
use aegis_stores::registry::Spent;

use super::{replay::Unaccepted, token::TokenFault};

pub(super) const MALFORMED: u16 = 1000;
pub(super) const INVALID_SIGNATURE: u16 = 1001;
pub(super) const EXPIRED: u16 = 1003;
pub(super) const TOKEN_INVALID: u16 = 1004;
pub(super) const SESSION_UNKNOWN: u16 = 1005;
pub(super) const SESSION_INACTIVE: u16 = 1006;
pub(super) const RATE_LIMIT: u16 = 2005;
pub(super) const WORKLOAD_UNKNOWN: u16 = 3000;
pub(super) const SCOPE_UNKNOWN: u16 = 3001;
pub(super) const ATTESTATION_FAILED: u16 = 3002;

#[derive(Debug, Clone, thiserror::Error)]
#[error("{violation}")]
pub struct Refusal {
    pub violation: Box<Violation>,
    /// The number in the protocol's own registry, where it has one.
    pub seal_code: Option<u16>,
    /// The JSON text of the request's id, if it could be read.
    pub id: Option<String>,
    /// Whose session the envelope claims to be of. Not proven: for the record only.
    pub claimed: Option<Box<Caller>>,
}

impl Refusal {
    pub(super) fn new(violation: Violation, seal_code: Option<u16>) -> Self {
        Self { violation: Box::new(violation), seal_code, id: None, claimed: None }
    }

    pub(super) fn of(kind: ViolationKind, seal_code: u16, message: impl Into<String>) -> Self {
        Self::new(Violation::new(kind, message), Some(seal_code))
    }

    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.violation.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(super) fn rule(mut self, rule: impl Into<String>) -> Self {
        self.violation.rule = Some(rule.into());
        self
    }
}

/// The number of a violation in the protocol's registry; none for those it does not know.
pub fn seal_code(kind: ViolationKind) -> Option<u16> {
    Some(match kind {
        ViolationKind::MalformedEnvelope => MALFORMED,
        ViolationKind::SignatureVerificationFailed => INVALID_SIGNATURE,
        ViolationKind::SessionExpired => EXPIRED,
        ViolationKind::TokenInvalid => TOKEN_INVALID,
        ViolationKind::SessionInactive => SESSION_INACTIVE,
        ViolationKind::ToolNotAllowed | ViolationKind::ToolNotFound => 2000,
        ViolationKind::ToolExplicitlyDenied => 2001,
        ViolationKind::PathOutsideBoundary | ViolationKind::PathTraversalAttempt => 2002,
        ViolationKind::CommandNotAllowed | ViolationKind::SubcommandNotAllowed => 2003,
        ViolationKind::DomainNotAllowed => 2004,
        ViolationKind::RateLimitExceeded => RATE_LIMIT,
        ViolationKind::PolicyForbids => 2006,
        ViolationKind::AttestationFailed => ATTESTATION_FAILED,
        _ => return None,
    })
}

pub(super) fn bad_token(fault: TokenFault) -> Refusal {
    if fault == TokenFault::Expired {
        return expired();
    }
    Refusal::of(ViolationKind::TokenInvalid, TOKEN_INVALID, format!("the token is not valid: {fault}"))
        .hint("use the token that /v1/seal/attest answered with, unchanged")
}

pub(super) fn expired() -> Refusal {
    Refusal::of(ViolationKind::SessionExpired, EXPIRED, "the session's time has run out")
        .hint("attest again: POST /v1/seal/attest")
}

pub(super) fn stale(window: i64) -> Refusal {
    Refusal::of(
        ViolationKind::SignatureVerificationFailed,
        EXPIRED,
        format!("the envelope's time is more than {window} s from the node's"),
    )
    .rule("spec.seal.window")
    .hint("sign each envelope when it is sent, and set the clock")
}

pub(super) fn not_accepted(why: &Unaccepted, window: i64) -> Refusal {
    match why {
        Unaccepted::Seen => Refusal::of(
            ViolationKind::SignatureVerificationFailed,
            EXPIRED,
            "this envelope was used before",
        )
        .hint("sign a new one for each call, with an `id` of its own"),
        Unaccepted::Unknowable => Refusal::of(
            ViolationKind::SignatureVerificationFailed,
            EXPIRED,
            "whether this envelope was used before can't be told any more: the node lost power or its clock was set \
             back",
        )
        .rule("spec.seal.window")
        .hint(format!("attest again, or send a new envelope in {} s", window + 1)),
        Unaccepted::Full => Refusal::new(
            Violation::new(ViolationKind::Overloaded, "more envelopes came than the node can remember")
                .hint("send fewer at once; try again in a few seconds")
                .retry_after(5),
            None,
        ),
        Unaccepted::Log(error) => internal(error),
    }
}

pub(super) fn too_many(seconds: u64) -> Refusal {
    let violation = Violation::new(ViolationKind::RateLimitExceeded, "too many attestations")
        .rule("spec.seal.attestations_per_minute")
        .hint("one session serves any number of calls: keep it until it expires")
        .retry_after(seconds);
    Refusal::new(violation, Some(RATE_LIMIT))
}

pub(super) fn spent(why: Spent) -> Refusal {
    let message = match why {
        Spent::Expired => "the workload's enrolment has expired",
        Spent::UsedUp => "the workload's enrolment is used up",
        Spent::Revoked => "the workload's enrolment was revoked",
    };
    Refusal::of(ViolationKind::AttestationFailed, WORKLOAD_UNKNOWN, message)
        .hint("ask the node's operator for a new one: `aegis seal enroll --context C`")
}

pub(super) fn token_gone() -> Refusal {
    Refusal::of(
        ViolationKind::AttestationFailed,
        WORKLOAD_UNKNOWN,
        "the token that was sent is no longer good",
    )
}

/// The cause is for the node's log, not for who asks.
pub(super) fn internal(error: &impl std::fmt::Display) -> Refusal {
    tracing::error!(%error, "SEAL can't do its work");
    let violation = Violation::new(ViolationKind::InternalError, "the node could not check the envelope");
    Refusal::new(violation, None)
}
