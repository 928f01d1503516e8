//! The MCP door: Streamable HTTP at `/mcp` and newline-delimited JSON on stdio, for every revision from 2024-11-05 to
//! 2026-07-28.
//!
//! A message is read (`message`), found to be of one era or the other (`ladder`, `era`), and answered by the
//! `conversation`, which knows nothing of what carries it. `http` and [`stdio`] carry; [`bridge`] carries stdio to a
//! node that runs elsewhere.

mod abilities;
mod answer;
pub mod bridge;
mod call;
mod carried;
mod conversation;
mod definitions;
mod ears;
mod era;
mod fault;
mod held;
mod http;
mod in_flight;
mod ladder;
mod level;
mod lines;
mod listen;
mod lists;
mod message;
mod metadata;
mod parked;
mod progress;
mod questions;
mod server_tasks;
mod session;
mod standing;
pub mod stdio;
mod streams;
mod tasks;
#[cfg(test)]
mod tests;
mod told;
mod wanted;
mod watches;

use std::sync::Arc;

use axum::{Router, routing::get};

pub use self::definitions::Names;
use self::{conversation::Conversation, http::Transport, progress::Pace};
use crate::Doors;

/// `/mcp` and the metadata about it.
pub fn routes(doors: &Arc<Doors>) -> Router {
    routes_at(doors, Pace::default())
}

fn routes_at(doors: &Arc<Doors>, pace: Pace) -> Router {
    let transport = Arc::new(Transport::new(Conversation::new(doors, pace)));
    let mcp = get(streams::stream).post(http::post).delete(http::end).fallback(http::no_such_method);
    Router::new()
        .route("/mcp", mcp.clone())
        .route("/mcp/", mcp)
        .route(metadata::PATH, get(metadata::document))
        .route(&format!("{}/mcp", metadata::PATH), get(metadata::document))
        .with_state(transport)
}
