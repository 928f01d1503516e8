//! SEAL: calls that come in signed envelopes.
//!
//! A workload attests once, with a key of its own, and gets a session and a token. Each call then is an envelope:
//! payload, token and time, signed with that key. The token alone is worth nothing; a stolen envelope is worth nothing
//! after its first use.

mod attest;
pub mod canonical;
mod clock;
pub mod envelope;
mod gate;
mod instant;
mod keys;
mod limiter;
mod opening;
mod refusal;
mod replay;
mod subject;
pub mod token;

pub use aegis_stores::registry::{Enrolment, NewEnrolment, Session, SessionStatus};

pub use self::{
    attest::{Attestation, read_key},
    clock::{Clock, SystemClock},
    envelope::Request,
    gate::{SealError, SealGate, Verified},
    keys::{KeyId, KeysError, Material, Ring},
    opening::{Attested, Provision},
    refusal::{Refusal, seal_code},
};
