//! The vocabulary of the plane: what a call, a caller, a verdict, a label and an outcome are.
//!
//! Nothing in this crate touches a file, a socket, a clock or a process. Every other crate speaks in these
//! types, so that a gate never needs to know a route, nor a door a store.

pub mod approval;
pub mod asking;
pub mod call;
pub mod caller;
pub mod command;
pub mod config;
pub mod document;
pub mod domain;
pub mod event;
pub mod failure;
pub mod id;
pub mod label;
pub mod manifest;
pub mod mode;
pub mod nearest;
pub mod outcome;
pub mod patch;
pub mod path;
pub mod permit;
pub mod progress;
pub mod quantity;
pub mod record;
pub mod redact;
pub mod runtimes;
pub mod secret;
pub mod time;
pub mod tool;
pub mod trace;
pub mod upstream;
pub mod verdict;
pub mod violation;

pub use approval::{Approval, ApprovalState, Ask, Asker};
pub use call::Call;
pub use caller::{Caller, Door, Tier};
pub use event::Event;
pub use failure::{Failure, FailureKind};
pub use label::{Label, TrustClass};
pub use outcome::Outcome;
pub use path::VolumePath;
pub use permit::{Grant, Permit};
pub use secret::Secret;
pub use time::Timestamp;
pub use tool::ToolSpec;
pub use verdict::{Gate, GateVerdict, Verdict};
pub use violation::{Violation, ViolationKind};
