//! SEAL as a client meets it: real keys, a real data directory, a clock that the test sets.
#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop where it is")]

mod attestation;
mod bad_input;
mod canonical;
mod replay;
mod sessions;
mod stage;
mod tokens;
mod vectors;
