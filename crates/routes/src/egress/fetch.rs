//! One fetch, hop by hop.

use std::{collections::HashSet, future::Future, time::Duration};

use aegis_core::Grant;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use http_body_util::Empty;
use hyper::body::Incoming;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Egress,
    body::Reply,
    connect::{self, ConnectError},
    error::{FetchError, Rule, Step},
    request::{BadWebAddress, Request, WebAddress, is_credential_header},
};
use crate::tool::Run;

const ACCEPT: HeaderValue =
    HeaderValue::from_static("text/html,application/xhtml+xml,application/json;q=0.9,text/*;q=0.9,*/*;q=0.5");
const ACCEPT_ENCODING: HeaderValue = HeaderValue::from_static("gzip, deflate, br");

impl Egress {
    /// Sends a GET and follows its redirects. The time limit holds on while the reply is read.
    pub async fn get(&self, run: &Run<'_>, request: Request) -> Result<Reply, FetchError> {
        let deadline = Deadline::new(request.timeout, run.cancel.clone());
        let Request { address, mut headers, follow_redirects, .. } = request;
        headers.insert(header::USER_AGENT, self.0.user_agent.clone());
        headers.insert(header::ACCEPT_ENCODING, ACCEPT_ENCODING);
        headers.entry(header::ACCEPT).or_insert(ACCEPT);
        let hops = self.follow(run.permit.limits(), address, headers, follow_redirects);
        let (address, response) = deadline.keep(hops).await?;
        Ok(Reply::new(address, response, deadline))
    }

    async fn follow(
        &self,
        grant: &Grant,
        mut address: WebAddress,
        mut headers: HeaderMap,
        follow_redirects: bool,
    ) -> Result<(WebAddress, http::Response<Incoming>), FetchError> {
        let mut step = Step { hop: 0, target: address.origin() };
        let mut seen = HashSet::new();
        loop {
            check(grant, &step, &address)?;
            let response = self.send(&step, &address, &headers).await?;
            let Some(location) = redirect(&response).filter(|_| follow_redirects) else {
                return Ok((address, response));
            };
            seen.insert(address.clone());
            let next = resolve(&step, &address, location)?;
            step = Step { hop: step.hop.saturating_add(1), target: next.origin() };
            if seen.contains(&next) {
                return Err(FetchError::Circle { step });
            }
            let limit = self.0.max_redirects;
            if step.hop > limit {
                return Err(FetchError::TooManyRedirects { step, limit });
            }
            if address.url().scheme() == "https" && next.url().scheme() == "http" {
                return Err(FetchError::Refused { step, rule: Rule::Downgrade });
            }
            if next.url().origin() != address.url().origin() {
                strip_credentials(&mut headers);
            }
            address = next;
        }
    }

    async fn send(
        &self,
        step: &Step,
        address: &WebAddress,
        headers: &HeaderMap,
    ) -> Result<http::Response<Incoming>, FetchError> {
        let broken = |reason: String| FetchError::Broken { step: step.clone(), reason };
        let uri = Uri::try_from(address.url().as_str()).map_err(|error| broken(error.to_string()))?;
        let mut request = http::Request::new(Empty::new());
        *request.uri_mut() = uri;
        *request.headers_mut() = headers.clone();
        self.0.client.request(request).await.map_err(|error| explain(step, address, &error))
    }
}

/// The rules that need no connection. The address itself is checked when a connection is opened.
fn check(grant: &Grant, step: &Step, address: &WebAddress) -> Result<(), FetchError> {
    let refused = |rule| Err(FetchError::Refused { step: step.clone(), rule });
    if address.has_credentials() {
        return refused(Rule::Credentials);
    }
    check_host(grant, address.host()).or_else(refused)
}

/// The caller's own domains.
pub(super) fn check_host(grant: &Grant, host: &str) -> Result<(), Rule> {
    if grant.denied_domains.iter().any(|domain| domain.matches(host)) {
        return Err(Rule::Denied { host: host.to_owned() });
    }
    match &grant.domains {
        Some(domains) if !domains.iter().any(|domain| domain.matches(host)) => {
            Err(Rule::Domain { host: host.to_owned(), grant: grant.rule.clone() })
        }
        _ => Ok(()),
    }
}

fn redirect<B>(response: &http::Response<B>) -> Option<&HeaderValue> {
    match response.status() {
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::SEE_OTHER
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => response.headers().get(header::LOCATION),
        _ => None,
    }
}

fn resolve(step: &Step, address: &WebAddress, location: &HeaderValue) -> Result<WebAddress, FetchError> {
    let bad = || FetchError::BadRedirect { step: step.clone() };
    let text = std::str::from_utf8(location.as_bytes()).map_err(|_| bad())?;
    let next = address.url().join(text).map_err(|_| bad())?;
    let (hop, target) = (step.hop.saturating_add(1), next.origin().ascii_serialization());
    WebAddress::from_url(next).map_err(|error| match error {
        BadWebAddress::Scheme(scheme) => FetchError::Refused {
            step: Step { hop, target: if target == "null" { format!("{scheme}:") } else { target } },
            rule: Rule::Scheme(scheme),
        },
        BadWebAddress::Unreadable(_) => bad(),
    })
}

fn strip_credentials(headers: &mut HeaderMap) {
    let secret: Vec<_> = headers
        .iter()
        .filter(|(name, value)| value.is_sensitive() || is_credential_header(name))
        .map(|(name, _)| name.clone())
        .collect();
    for name in secret {
        headers.remove(name);
    }
}

pub(super) fn explain(
    step: &Step,
    address: &WebAddress,
    error: &hyper_util::client::legacy::Error,
) -> FetchError {
    let step = step.clone();
    match connect::cause(error) {
        Some(ConnectError::Refused { class }) => {
            let resolved = address.url().domain().is_some();
            FetchError::Refused { step, rule: Rule::Address { class: *class, resolved } }
        }
        Some(ConnectError::Unresolved(_)) => FetchError::Unresolved { step },
        Some(ConnectError::Unreachable(reason)) => {
            FetchError::Unreachable { step, reason: reason.kind().to_string() }
        }
        Some(ConnectError::Tls(reason)) => FetchError::Tls { step, reason: reason.to_string() },
        Some(ConnectError::Slow(after)) => FetchError::SlowConnection { step, after: *after },
        None => FetchError::Broken { step, reason: innermost(error) },
    }
}

/// The client wraps the cause in layers that say less each time.
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// The time that a whole fetch has, and whether anyone still waits for it.
#[derive(Debug)]
pub(super) struct Deadline {
    at: Instant,
    after: Duration,
    cancel: CancellationToken,
}

impl Deadline {
    fn new(after: Duration, cancel: CancellationToken) -> Self {
        Self { at: Instant::now() + after, after, cancel }
    }

    pub(super) async fn keep<T>(
        &self,
        work: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(FetchError::Cancelled),
            ended = tokio::time::timeout_at(self.at, work) => {
                ended.unwrap_or(Err(FetchError::Timeout { after: self.after }))
            }
        }
    }
}
