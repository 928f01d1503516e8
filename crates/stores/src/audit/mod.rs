//! The audit log: an append-only hash chain, tree heads signed over it, and a verifier that needs nothing but the
//! log and the public key.
//!
//! Entry `n` has the hash `SHA-256(0x00 ‖ hash of n-1 ‖ n as 8 bytes, big end first ‖ body)`, with 32 zero bytes
//! before the first. The same hash is the entry's leaf in a Merkle tree after RFC 6962, so one pass over the bytes
//! proves both. A head signs the root over the first `size` entries.

mod approvals;
mod chain;
mod database;
mod digest;
mod error;
mod export;
mod files;
mod head;
mod key;
mod log;
mod merkle;
mod place;
mod queue;
mod read;
mod syncer;
mod verify;
mod walk;
mod writer;

pub use self::{
    digest::Digest,
    error::AuditError,
    export::{ExportError, Exported, export},
    head::{Head, HeadFault, Signature},
    key::{KeyError, KeyId, PublicKey},
    log::{AuditLog, MAX_BODY, Progress},
    merkle::Frontier,
    read::{Filter, Follow, Kind, LogReader, ReadError, Status, Stored},
    verify::{Fault, FaultKind, Report, Source, VerifyError, verify},
};
