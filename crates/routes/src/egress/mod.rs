//! HTTP that goes only where it may.
//!
//! One client for the node, so that connections are reused. Every hop of a fetch meets the same checks: the scheme,
//! the domains of the caller's grant, and the address that its host resolves to. Everything is bounded: time, hops,
//! headers, and the body after decompression.

mod address;
mod body;
mod connect;
mod dial;
mod error;
mod fetch;
mod outlet;
mod request;
mod rules;
mod text;
mod tls;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aegis_core::config::EgressConfig;
use bytes::Bytes;
use http::HeaderValue;
use http_body_util::Empty;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};

pub use address::{AddressClass, class_of};
pub use body::{Body, Limit, Reply};
pub(crate) use dial::DialError;
pub use error::{FetchError, Rule, Step};
pub(crate) use outlet::Outlet;
pub use request::{BadWebAddress, Request, WebAddress, is_credential_header};
pub use rules::AddressRules;
pub use text::ContentType;

use connect::Connector;

/// Header blocks larger than this are no answer that anyone meant to give.
const LARGEST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 128;
/// Whatever the configuration says; each hop is a request to somewhere new.
const MOST_REDIRECTS: u8 = 20;
const IDLE_PER_HOST: usize = 8;
const IDLE_FOR: Duration = Duration::from_secs(60);

/// The node's way out. Clones share one pool of connections.
#[derive(Clone, derive_more::Debug)]
#[debug("Egress")]
pub struct Egress(Arc<Shared>);

struct Shared {
    connector: Connector,
    client: Client<Connector, Empty<Bytes>>,
    user_agent: HeaderValue,
    max_redirects: u8,
    max_body: u64,
}

/// The configuration asks for something that can't be had.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    #[error("the certificates in `egress.extra_ca_file` ({}) can't be used: {reason}", path.display())]
    CaFile { path: PathBuf, reason: String },
    #[error("`egress.user_agent` can't be sent as a header: write printable ASCII")]
    UserAgent,
    #[error("TLS can't be set up: {0}")]
    Tls(#[source] rustls::Error),
}

impl Egress {
    /// Reads the operator's certificates, so it belongs to the start of the node.
    pub fn new(config: &EgressConfig) -> Result<Self, EgressError> {
        let user_agent = HeaderValue::from_str(&config.user_agent).map_err(|_| EgressError::UserAgent)?;
        let tls = tls::client_config(config.extra_ca_file.as_deref().map(Path::new))?;
        let rules = AddressRules::new(&config.allow_private);
        let connector = Connector::new(rules, Arc::new(tls), config.connect_timeout.0);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            .http1_max_buf_size(LARGEST_HEAD)
            .http1_max_headers(MOST_HEADERS)
            .http2_max_header_list_size(LARGEST_HEAD as u32)
            .build(connector.clone());
        Ok(Self(Arc::new(Shared {
            connector,
            client,
            user_agent,
            max_redirects: config.max_redirects.min(MOST_REDIRECTS),
            max_body: config.max_body.0,
        })))
    }

    /// The largest body, after decompression, that the operator lets in.
    pub fn max_body(&self) -> u64 {
        self.0.max_body
    }
}
