use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::version::Version;

/// Why a request came to nothing. Cheap to clone: when a connection ends, everyone who waits gets the same one.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the server answered with an error: {0}")]
    Rpc(RpcError),
    #[error("`{program}` can't be started: {reason}")]
    Start { program: Arc<str>, reason: Arc<str> },
    /// The connection is gone, and with it every answer that was still to come.
    #[error("the connection ended: {0}")]
    Closed(Arc<str>),
    #[error("the server did not answer within {} s", .0.as_secs_f32())]
    Silent(Duration),
    #[error("the server and this client share no protocol version ({0})")]
    NoVersion(Arc<str>),
    #[error("the server broke the protocol: {0}")]
    Protocol(Arc<str>),
    #[error("the message is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{limit} requests to this server wait for an answer already")]
    TooManyPending { limit: usize },
    #[error("the list does not end: {0}")]
    Endless(Arc<str>),
    #[error("the server asked for input {0} times over and was not satisfied")]
    NeverSatisfied(usize),
    #[error("the server can't be reached: {0}")]
    Unreachable(Arc<str>),
    #[error("the server answered with HTTP status {status}{detail}")]
    Status { status: u16, detail: Arc<str> },
    #[error("the server refused our credentials with HTTP status {status}")]
    Unauthorised { status: u16 },
    #[error("the server redirects to {to}; credentials don't go there, so write that address if it is right")]
    Redirected { to: Arc<str> },
    #[error("no credentials for the server: {0}")]
    Credentials(Arc<str>),
    /// The server forgot the session. It ran nothing; a new connection may ask again.
    #[error("the server no longer knows the session")]
    SessionLost,
}

impl Error {
    pub(crate) fn protocol(what: impl Into<Arc<str>>) -> Self {
        Self::Protocol(what.into())
    }

    /// Whether the server certainly ran nothing, so that asking once more is no second deed.
    pub fn never_ran(&self) -> bool {
        matches!(
            self,
            Self::Start { .. }
                | Self::TooManyPending { .. }
                | Self::Unauthorised { .. }
                | Self::Redirected { .. }
                | Self::Credentials(_)
                | Self::SessionLost
        )
    }
}

/// An error as the server worded it: text from outside.
#[derive(Debug, Clone, Deserialize)]
pub struct RpcError {
    pub code: i64,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

impl RpcError {
    pub const METHOD_NOT_FOUND: i64 = -32601;
    pub const INVALID_PARAMS: i64 = -32602;
    pub const INTERNAL: i64 = -32603;
    pub const UNSUPPORTED_VERSION: i64 = -32022;

    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Whether a refused version is among those that the server says it has.
    pub(crate) fn supports(&self, version: Version) -> bool {
        #[derive(Deserialize)]
        struct Data {
            #[serde(default)]
            supported: Vec<String>,
        }
        let data = self.data.as_ref().and_then(|data| serde_json::from_str::<Data>(data.get()).ok());
        self.code == Self::UNSUPPORTED_VERSION
            && data.is_some_and(|data| data.supported.iter().any(|name| name == version.as_str()))
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const LONGEST: usize = 500;
        let cut = self.message.char_indices().nth(LONGEST).map_or(self.message.len(), |(at, _)| at);
        write!(f, "{} ({})", &self.message[..cut], self.code)
    }
}
