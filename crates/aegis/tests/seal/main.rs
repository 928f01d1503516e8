//! Signed envelopes over the wire, against a real node: as the published clients write and read them, and as nobody
//! should.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod agent;
mod clients;
#[path = "../common/mod.rs"]
mod common;
mod credentials;
mod error_table;
mod hostile;
mod modes;
mod operation;
