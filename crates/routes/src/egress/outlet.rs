//! Requests with a body, to one server that an operator named, under the same address rules as every fetch.

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};

use super::{
    Egress, IDLE_FOR, LARGEST_HEAD, MOST_HEADERS,
    connect::Connector,
    error::{FetchError, Step},
    fetch::explain,
    request::{BadWebAddress, WebAddress},
};

/// As many connections as one server may be kept waiting with.
const IDLE: usize = 64;

/// A way out with connections of its own. Redirects are answers: nobody follows them here.
#[derive(Clone, derive_more::Debug)]
#[debug("Outlet")]
pub(crate) struct Outlet {
    client: Client<Connector, Full<Bytes>>,
    user_agent: HeaderValue,
}

impl Egress {
    pub(crate) fn outlet(&self) -> Outlet {
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(IDLE)
            .http1_max_buf_size(LARGEST_HEAD)
            .http1_max_headers(MOST_HEADERS)
            .http2_max_header_list_size(LARGEST_HEAD as u32)
            .build(self.0.connector.clone());
        Outlet { client, user_agent: self.0.user_agent.clone() }
    }
}

impl Outlet {
    pub(crate) async fn send(&self, mut request: Request<Bytes>) -> Result<Response<Incoming>, FetchError> {
        let address = WebAddress::parse(&request.uri().to_string());
        let address = address.map_err(|error| {
            let step = Step { hop: 0, target: request.uri().host().unwrap_or_default().to_owned() };
            let reason = match error {
                BadWebAddress::Scheme(scheme) => format!("{scheme} is not spoken here"),
                BadWebAddress::Unreadable(reason) => reason.to_string(),
            };
            FetchError::Unreachable { step, reason }
        })?;
        request.headers_mut().entry(header::USER_AGENT).or_insert_with(|| self.user_agent.clone());
        let step = Step { hop: 0, target: address.origin() };
        self.client.request(request.map(Full::new)).await.map_err(|error| explain(&step, &address, &error))
    }
}
