//! A client of the Model Context Protocol, for servers that may be hostile.
//!
//! One [`Client`] is one connection: a child process on its pipes, a Streamable HTTP endpoint, or an endpoint of the
//! older HTTP+SSE transport. Requests share it, each with an id of its own. Parameters and results pass through as
//! the JSON text they are; nobody pays for a parse that is not needed.
//!
//! Everything a server can make large is bounded ([`Limits`]), and every request gets an answer: when a server dies,
//! hangs up or breaks the protocol, whoever waits is told why.

mod client;
mod command;
mod error;
mod handler;
mod handshake;
mod hosted;
pub mod http;
mod inputs;
mod limits;
mod lines;
mod listen;
mod message;
pub mod oauth;
mod pages;
mod pending;
mod shared;
mod stdio;
mod version;

pub use client::{Client, Request};
pub use command::Command;
pub use error::{Error, RpcError};
pub use handler::{Handler, Progress, ProgressUpdate};
pub use handshake::{Facts, Identity, Preference};
pub use hosted::{Host, Hosted, Keeper};
pub use http::{Credentials, Endpoint, Http};
pub use inputs::MOST_ROUNDS;
pub use limits::Limits;
pub use listen::Interests;
pub use pages::Listed;
pub use version::Version;
