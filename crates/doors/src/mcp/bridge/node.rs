//! The node at the other end, as an HTTP client sees it.

use std::{io, time::Duration};

use aegis_core::Secret;
use axum::http::{HeaderValue, Method, Request as HttpRequest, Response, Uri, header, uri::Scheme};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};

use crate::mcp::{
    fault::Fault,
    ladder::{METHOD_HEADER, NAME_HEADER, VERSION_HEADER, encode},
    message::{Request, string},
};

pub(super) type Answered = Response<hyper::body::Incoming>;

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// More than any answer of a node.
const LARGEST_ANSWER: usize = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("`{0}` is no address of a node: use http://HOST:PORT/mcp")]
    Address(String),
    #[error(
        "https is not spoken here: run the bridge on the node's machine, or put a TLS proxy on this side"
    )]
    Https,
    #[error("the {0} has characters that no HTTP header can carry")]
    Unsendable(&'static str),
    #[error("the pipe to the client broke: {0}")]
    Pipe(#[from] io::Error),
}

/// A request got no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Gone {
    #[error("the node at {authority} does not answer: {reason}")]
    NoAnswer { authority: String, reason: String },
    #[error("the node's answer broke off: {0}")]
    BrokenOff(String),
}

impl Gone {
    pub(super) fn fault(&self) -> Fault {
        Fault::new(
            axum::http::StatusCode::OK,
            -32603,
            format!("{self}; is it running? `aegis up` starts one"),
        )
    }
}

#[derive(Debug)]
pub(super) struct Node {
    client: Client<HttpConnector, Full<Bytes>>,
    url: Uri,
    authorization: HeaderValue,
    context: Option<HeaderValue>,
}

/// What the headers of a stateless request repeat from its body.
#[derive(Debug, Clone, Default)]
pub(super) struct Routing {
    version: Option<String>,
    method: Option<String>,
    name: Option<String>,
    session: Option<String>,
}

impl Routing {
    pub(super) fn of(request: &Request<'_>) -> Self {
        let subject = request.params.name.or(request.params.uri).or(request.params.task_id);
        Self {
            version: request
                .params
                .meta
                .version
                .and_then(string)
                .map(|version| encode(&version).into_owned()),
            method: Some(encode(&request.method).into_owned()),
            name: subject.and_then(string).map(|name| encode(&name).into_owned()),
            session: None,
        }
    }

    /// For a request within a session.
    pub(super) fn within(session: Option<&str>, revision: Option<&str>) -> Self {
        Self { version: revision.map(str::to_owned), session: session.map(str::to_owned), ..Self::default() }
    }
}

impl Node {
    pub(super) fn new(url: &str, token: &Secret, context: Option<&str>) -> Result<Self, BridgeError> {
        let address: Uri = url.parse().map_err(|_| BridgeError::Address(url.to_owned()))?;
        match address.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP && address.host().is_some() => {}
            Some(scheme) if *scheme == Scheme::HTTPS => return Err(BridgeError::Https),
            _ => return Err(BridgeError::Address(url.to_owned())),
        }
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
            .map_err(|_| BridgeError::Unsendable("token"))?;
        authorization.set_sensitive(true);
        let context = context
            .map(HeaderValue::from_str)
            .transpose()
            .map_err(|_| BridgeError::Unsendable("name of the context"))?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIME));
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: address,
            authorization,
            context,
        })
    }

    pub(super) async fn post(&self, body: Bytes, routing: &Routing) -> Result<Answered, Gone> {
        self.send(Method::POST, body, routing).await
    }

    pub(super) async fn delete(&self, routing: &Routing) -> Result<Answered, Gone> {
        self.send(Method::DELETE, Bytes::new(), routing).await
    }

    /// The stream of what the node says unasked.
    pub(super) async fn get(&self, routing: &Routing) -> Result<Answered, Gone> {
        self.send(Method::GET, Bytes::new(), routing).await
    }

    async fn send(&self, method: Method, body: Bytes, routing: &Routing) -> Result<Answered, Gone> {
        let mut request = HttpRequest::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.url.clone();
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        if let Some(context) = &self.context {
            headers.insert(crate::guard::CONTEXT_HEADER, context.clone());
        }
        for (name, value) in [
            (VERSION_HEADER, &routing.version),
            (METHOD_HEADER, &routing.method),
            (NAME_HEADER, &routing.name),
            (crate::mcp::http::SESSION_HEADER, &routing.session),
        ] {
            if let Some(value) = value.as_deref().and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(name, value);
            }
        }
        self.client.request(request).await.map_err(|error| Gone::NoAnswer {
            authority: self.url.authority().map(ToString::to_string).unwrap_or_default(),
            reason: innermost(&error),
        })
    }
}

/// The whole body of an answer.
pub(super) async fn body(response: Answered) -> Result<Bytes, Gone> {
    match Limited::new(response.into_body(), LARGEST_ANSWER).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) => Err(Gone::BrokenOff(error.to_string())),
    }
}

/// The part of an error that says something: outer ones only repeat that there was one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
