//! A client of SEAL, the signed envelopes in which an agent's calls reach an `aegis` node.
//!
//! An operator enrols a workload (`aegis seal enroll --context workspace`), which gives an id. The client makes a key
//! that nobody else ever sees, attests with id and public key, and signs every call. What is taken from the wire is
//! worth nothing: the token needs the key, and an envelope is taken once.
//!
//! ```no_run
//! # async fn run() -> Result<(), aegis_seal_client::Error> {
//! use serde_json::{Map, json};
//!
//! let client = aegis_seal_client::Client::new("http://127.0.0.1:8088", "wl_…", "workspace")?;
//! let arguments = Map::from_iter([("path".to_owned(), json!("notes.txt"))]);
//! let answer = client.call("fs.read", &arguments).await?;
//! if answer.is_error() {
//!     eprintln!("{}", answer.result["error"]);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] speaks plain HTTP, to a node on the same machine. [`Key`], [`call`], [`list`] and [`answer`] do the rest
//! of the work without a network, for agents that have an HTTP client of their own.

pub mod answer;
mod canonical;
mod client;
mod envelope;
mod error;
mod http;

pub use answer::{Answer, Attested};
pub use canonical::{canonical, message};
pub use client::Client;
pub use envelope::{Key, PROTOCOL, call, list};
pub use error::{Error, Refused};
