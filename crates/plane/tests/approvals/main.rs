//! Calls that wait for a person: every way such a call can go.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod bad_input;
mod broken_registry;
mod property;
mod restart;
mod stage;
mod standing;
mod states;
