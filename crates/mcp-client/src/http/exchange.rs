//! Streamable HTTP: each request is a POST of its own, answered in one piece or as a stream of events.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use tokio::sync::oneshot;

use super::{Body, Endpoint, Kind, headers::header_value, kind_of, page, read_body, sse::Events};
use crate::{
    error::{Error, RpcError},
    message::{self, Message},
    shared::Shared,
    version::Version,
};

const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// How often the stream of one request is taken up again without anything new having come.
const MOST_RESUMPTIONS: usize = 5;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a connection waits for the stream of what the server says unasked: some answer only when they have
/// something to say.
const LONGEST_OPENING: Duration = Duration::from_secs(1);
/// Of an error's body, as much as is looked at.
const ERROR_BODY: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct Exchange {
    endpoint: Endpoint,
    session: Mutex<Option<HeaderValue>>,
    /// The version that `initialize` agreed on; sent from then on.
    agreed: OnceLock<Version>,
}

/// One request on its way.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) id: u64,
    pub(crate) version: Version,
    pub(crate) method: &'a str,
    pub(crate) name: Option<&'a str>,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Bytes,
}

impl Exchange {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, session: Mutex::new(None), agreed: OnceLock::new() }
    }

    pub(crate) fn agreed(&self, version: Version) {
        let _ = self.agreed.set(version);
    }

    fn session(&self) -> Option<HeaderValue> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn blank(&self, method: Method, body: Bytes) -> Request<Bytes> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        if let Ok(uri) = self.endpoint.url.as_str().parse() {
            *request.uri_mut() = uri;
        }
        if let Some(session) = self.session() {
            request.headers_mut().insert(SESSION, session);
        }
        if let Some(version) = self.agreed.get() {
            request.headers_mut().insert(PROTOCOL, HeaderValue::from_static(version.as_str()));
        }
        request
    }

    /// Sends a request and reads until it is answered. What else comes on the way is taken in as well.
    pub(crate) async fn ask(&self, shared: &Arc<Shared>, asked: Asked<'_>) -> Result<(), Error> {
        let Asked { id, version, method, name, headers, body } = asked;
        let mut request = self.blank(Method::POST, body);
        let head = request.headers_mut();
        head.insert(CONTENT_TYPE, JSON);
        head.insert(ACCEPT, BOTH);
        if version.stateless() {
            head.insert(PROTOCOL, HeaderValue::from_static(version.as_str()));
            head.extend(header_value(method).map(|value| (METHOD, value)));
            head.extend(name.and_then(header_value).map(|value| (NAME, value)));
        }
        head.extend(headers);
        let response = self.endpoint.send(request).await?;
        if method == "initialize" && response.status().is_success() {
            let session = response.headers().get(&SESSION).cloned();
            *self.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
        }
        let status = response.status().as_u16();
        match (status, kind_of(response.headers())) {
            (200, Kind::Json) => {
                let bytes = read_body(response.into_body(), shared.limits.message).await?;
                shared.take(&bytes, Some(id));
                if shared.pending.waits(id) {
                    return Err(Error::protocol("its answer is no answer to what was asked"));
                }
                Ok(())
            }
            (200, Kind::Stream) => self.follow(shared, id, version, response).await,
            (200, Kind::Other) => {
                let page = page(response.headers());
                Err(Error::protocol(format!("its answer is neither JSON nor a stream of events{page}")))
            }
            (202 | 204, _) => Err(Error::protocol("it took a request for a notification")),
            _ => Err(self.refusal(shared, id, response).await),
        }
    }

    /// Reads the stream of one request. One that breaks off is taken up again where it was, if the server keeps it.
    async fn follow(
        &self,
        shared: &Arc<Shared>,
        id: u64,
        version: Version,
        response: Response<Body>,
    ) -> Result<(), Error> {
        let mut events = Events::new(response.into_body(), shared.limits.message);
        let mut tries = 0;
        loop {
            let broken = loop {
                match events.next().await {
                    Ok(Some(event)) => {
                        tries = 0;
                        // Other names are not messages.
                        if event.name.is_empty() || event.name == "message" {
                            shared.take(event.data.as_bytes(), Some(id));
                        }
                        if !shared.pending.waits(id) {
                            return Ok(());
                        }
                    }
                    Ok(None) => break Error::Closed("its stream ended without an answer".into()),
                    Err(error @ Error::Closed(_)) => break error,
                    Err(error) => return Err(error),
                }
            };
            let (Some(last), false, true) =
                (events.last_id.take(), version.stateless(), tries < MOST_RESUMPTIONS)
            else {
                return Err(broken);
            };
            tries += 1;
            tokio::time::sleep(events.retry.unwrap_or(FIRST_RETRY)).await;
            let retry = events.retry;
            events = match self.resume(Some(&last)).await? {
                Some(response) => Events::new(response.into_body(), shared.limits.message),
                None => return Err(broken),
            };
            events.last_id = Some(last);
            events.retry = retry;
        }
    }

    /// Opens the stream of what the server says unasked, or of what came after `last`. `None` when it has no such.
    async fn resume(&self, last: Option<&str>) -> Result<Option<Response<Body>>, Error> {
        let mut request = self.blank(Method::GET, Bytes::new());
        request.headers_mut().insert(ACCEPT, STREAM);
        if let Some(last) = last.and_then(|last| HeaderValue::from_str(last).ok()) {
            request.headers_mut().insert(LAST_EVENT, last);
        }
        let response = self.endpoint.send(request).await?;
        match (response.status().as_u16(), kind_of(response.headers())) {
            (200, Kind::Stream) => Ok(Some(response)),
            (404, _) if self.session().is_some() => Err(Error::SessionLost),
            _ => Ok(None),
        }
    }

    async fn refusal(&self, shared: &Arc<Shared>, id: u64, response: Response<Body>) -> Error {
        let status = response.status().as_u16();
        let json = kind_of(response.headers()) == Kind::Json;
        let page = page(response.headers());
        let body = if json {
            read_body(response.into_body(), ERROR_BODY).await.unwrap_or_default()
        } else {
            Bytes::new()
        };
        match message::read(&body) {
            Ok(Message::Answer { id: answered, result: Err(error) }) if answered == id => {
                // A session that is gone is told in words that differ from server to server.
                if status == 404 && self.session().is_some() && error.code != RpcError::METHOD_NOT_FOUND {
                    return self.lost(shared);
                }
                Error::Rpc(error)
            }
            _ if status == 404 && self.session().is_some() => self.lost(shared),
            _ => Error::Status { status, detail: page.into() },
        }
    }

    fn lost(&self, shared: &Arc<Shared>) -> Error {
        shared.end(&Error::SessionLost);
        Error::SessionLost
    }

    /// Posts what wants no answer: a notification, or our answer to a question.
    pub(crate) async fn post_aside(&self, shared: &Shared, body: Bytes) -> Result<(), Error> {
        // The newest version has no such messages; what it wants to know it asks in results.
        if shared.facts.get().is_some_and(|facts| facts.version.stateless()) {
            return Ok(());
        }
        let mut request = self.blank(Method::POST, body);
        request.headers_mut().insert(CONTENT_TYPE, JSON);
        request.headers_mut().insert(ACCEPT, BOTH);
        let response = self.endpoint.send(request).await?;
        match response.status().as_u16() {
            200..=299 => Ok(()),
            404 if self.session().is_some() => Err(Error::SessionLost),
            status => Err(Error::Status { status, detail: "".into() }),
        }
    }

    /// Hears what the server says unasked, for as long as the connection is open, and takes leave at its end. Returns
    /// when the stream is open, or the server has none: what it says before that is lost.
    pub(crate) async fn keep_listening(&self, shared: &Arc<Shared>) {
        if shared.facts.get().is_none_or(|facts| facts.version.stateless()) {
            return;
        }
        let shared = Arc::clone(shared);
        let (opened, open) = oneshot::channel();
        tokio::spawn(async move {
            let crate::shared::Wire::Http(exchange) = &shared.wire else { return };
            tokio::select! {
                () = exchange.listen(&shared, opened) => shared.stopping.cancelled().await,
                () = shared.stopping.cancelled() => {}
            }
            let _ = tokio::time::timeout(shared.limits.farewell, exchange.leave()).await;
        });
        let _ = tokio::time::timeout(LONGEST_OPENING, open).await;
    }

    async fn listen(&self, shared: &Arc<Shared>, opened: oneshot::Sender<()>) {
        let mut last: Option<String> = None;
        let mut pause = FIRST_RETRY;
        let mut opened = Some(opened);
        loop {
            let resumed = self.resume(last.as_deref()).await;
            drop(opened.take());
            match resumed {
                Ok(Some(response)) => {
                    let mut events = Events::new(response.into_body(), shared.limits.message);
                    while let Ok(Some(event)) = events.next().await {
                        pause = FIRST_RETRY;
                        if event.name.is_empty() || event.name == "message" {
                            shared.take(event.data.as_bytes(), None);
                        }
                    }
                    last = events.last_id.take().or(last);
                    pause = events.retry.unwrap_or(pause);
                }
                // It has nothing to say.
                Ok(None) => return,
                Err(Error::SessionLost) => return shared.end(&Error::SessionLost),
                Err(error) => tracing::debug!(%error, "the stream of notices can't be opened"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn leave(&self) {
        if self.session().is_some() {
            let _ = self.endpoint.send(self.blank(Method::DELETE, Bytes::new())).await;
        }
    }
}
