use std::{fmt, io, time::Duration};

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The node said no. Nothing ran, unless the message says that it may have.
    #[error(transparent)]
    Refused(Box<Refused>),
    #[error("`{0}` is no address of a node: write http://HOST:PORT")]
    Address(String),
    #[error("the node at {address} can't be reached: {source}")]
    Unreachable { address: String, source: io::Error },
    #[error("the connection to the node broke: {0}")]
    Broken(String),
    /// The call may have run all the same.
    #[error("the node did not answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("the node's answer can't be read: {0}")]
    Unreadable(String),
    #[error("no random bytes for a key: {0}")]
    Randomness(String),
}

/// A refusal, as the node gave it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    /// JSON-RPC's.
    pub code: i64,
    /// SEAL's own numbering, where it has a number.
    pub seal_code: Option<u16>,
    /// The rule's name, e.g. `PathOutsideBoundary`; `aegis explain` has a page on each.
    pub violation: Option<String>,
    pub message: String,
    /// Which rule fired and where it is set.
    pub rule: Option<String>,
    /// What to do next.
    pub hint: Option<String>,
    pub retry_after_seconds: Option<u64>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// The session is over, and a new one may be asked for.
    pub(crate) fn is_session_end(&self) -> bool {
        self.violation.as_deref() == Some("SessionExpired")
    }
}
