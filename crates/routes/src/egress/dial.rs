//! Bare connections for programs in sandboxes, under the rules that hold for every fetch.

use std::net::IpAddr;

use aegis_core::Grant;
use tokio::net::TcpStream;

use super::{
    Egress,
    connect::ConnectError,
    error::Rule,
    fetch::{check_host, innermost},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// A rule closes the host.
    #[error("{0}")]
    Refused(Rule),
    /// It is open, and can't be reached.
    #[error("{0}")]
    Unreachable(String),
}

impl Egress {
    /// Connects to a host that the caller's grant and the node's address rules leave open. The name is resolved once,
    /// and the connection goes to an answer that was checked.
    pub(crate) async fn dial(&self, grant: &Grant, host: &str, port: u16) -> Result<TcpStream, DialError> {
        check_host(grant, host).map_err(DialError::Refused)?;
        self.0.connector.dial(host, port).await.map_err(|error| match error {
            ConnectError::Refused { class } => {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                DialError::Refused(Rule::Address { class, resolved: bare.parse::<IpAddr>().is_err() })
            }
            other => DialError::Unreachable(format!("{other}: {}", innermost(&other))),
        })
    }
}
