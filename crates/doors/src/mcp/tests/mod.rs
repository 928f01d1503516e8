//! This door in front of a real plane.

mod approvals;
mod fuzz;
pub(super) mod harness;
mod http;
mod server;
mod sessions;
mod stdio;
