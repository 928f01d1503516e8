//! Servers behind a URL. How a request gets there is given: whoever holds the way out decides what may be reached.

mod exchange;
mod headers;
mod mailbox;
mod sse;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use url::Url;

pub(crate) use exchange::{Asked, Exchange};
pub use headers::{HeaderMistake, header_parameters, parameter_headers};
pub(crate) use mailbox::Mailbox;

use crate::{
    error::Error,
    handler::Handler,
    handshake::{Identity, Preference},
    limits::Limits,
    shared::{Shared, Wire},
};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// The way out: one request, one answer, no redirect followed.
pub trait Http: Send + Sync {
    /// An error is a sentence for people: what could not be reached, and why.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, String>>;
}

/// What shows a server who we are. Asked before every request, so it keeps what it can.
pub trait Credentials: Send + Sync {
    /// `refused`: what was given last time was not accepted, so it is worth getting anew.
    fn headers(&self, refused: bool) -> BoxFuture<'_, Result<HeaderMap, String>>;
}

/// A server that anyone may use.
impl Credentials for () {
    fn headers(&self, _refused: bool) -> BoxFuture<'_, Result<HeaderMap, String>> {
        Box::pin(async { Ok(HeaderMap::new()) })
    }
}

/// Where a server is, and how it is reached.
#[derive(Clone, derive_more::Debug)]
pub struct Endpoint {
    pub url: Url,
    #[debug(skip)]
    pub http: Arc<dyn Http>,
    #[debug(skip)]
    pub credentials: Arc<dyn Credentials>,
    /// Sent with every request; a node marks its own so that it knows them when they come back to it.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub preference: Preference,
}

impl Endpoint {
    pub(crate) fn open(
        &self,
        identity: &Identity,
        limits: &Limits,
        handler: &Arc<dyn Handler>,
    ) -> Arc<Shared> {
        let wire = Wire::Http(Exchange::new(self.clone()));
        Shared::new(wire, identity.clone(), limits.clone(), Arc::clone(handler))
    }

    pub(crate) async fn open_mailbox(
        &self,
        identity: &Identity,
        limits: &Limits,
        handler: &Arc<dyn Handler>,
    ) -> Result<Arc<Shared>, Error> {
        mailbox::open(self, identity, limits, handler).await
    }

    /// Sends with our headers and credentials. Credentials that were refused are got anew, once; a redirect within
    /// the same origin is followed, once.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Error> {
        let mut url = self.url.clone();
        let mut refused = false;
        let mut moved = false;
        loop {
            let mut next = Request::new(request.body().clone());
            *next.method_mut() = request.method().clone();
            *next.headers_mut() = request.headers().clone();
            let given = if refused || moved { url.as_str().to_owned() } else { request.uri().to_string() };
            *next.uri_mut() =
                given.parse().map_err(|_| Error::Unreachable("the address can't be used".into()))?;
            for (name, value) in &self.headers {
                next.headers_mut().insert(name.clone(), value.clone());
            }
            let own = self.credentials.headers(refused).await;
            next.headers_mut().extend(own.map_err(|reason| Error::Credentials(reason.into()))?);
            let sent = self.http.send(next).await;
            let response = sent.map_err(|reason| Error::Unreachable(reason.into()))?;
            match response.status().as_u16() {
                401 if !refused => {
                    refused = true;
                    url = Url::parse(&given).unwrap_or(url);
                }
                status @ (401 | 403) => return Err(Error::Unauthorised { status }),
                status @ 300..=399 => {
                    let here = Url::parse(&given).unwrap_or_else(|_| self.url.clone());
                    let to = response
                        .headers()
                        .get(http::header::LOCATION)
                        .and_then(|to| to.to_str().ok())
                        .and_then(|to| here.join(to).ok());
                    match to {
                        Some(to) if matches!(status, 307 | 308) && !moved && to.origin() == here.origin() => {
                            moved = true;
                            url = to;
                        }
                        Some(to) => {
                            return Err(Error::Redirected { to: to.origin().ascii_serialization().into() });
                        }
                        None => return Err(Error::Redirected { to: "nowhere".into() }),
                    }
                }
                _ => return Ok(response),
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Stream,
    Other,
}

pub(crate) fn kind_of(headers: &HeaderMap) -> Kind {
    let text =
        headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Kind::Json,
        "text/event-stream" => Kind::Stream,
        _ => Kind::Other,
    }
}

/// What to say besides of an answer that is a page for people.
pub(crate) fn page(headers: &HeaderMap) -> &'static str {
    let kind =
        headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.trim_start().to_ascii_lowercase().starts_with("text/html") {
        ", but a web page: an MCP server may be at another path of this address"
    } else {
        ""
    }
}

/// A whole body, up to a limit.
pub(crate) async fn read_body(mut body: Body, limit: usize) -> Result<Bytes, Error> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::Closed(format!("its answer broke off ({error})").into()))?;
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + piece.len() > limit {
            return Err(Error::TooLarge { limit });
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}
