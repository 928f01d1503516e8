//! The handle that callers hold.

use std::{sync::Arc, time::Duration};

use http::{HeaderName, HeaderValue};
use serde_json::value::RawValue;
use tokio_util::sync::DropGuard;

use crate::{
    command::Command,
    error::Error,
    handler::{Handler, Progress},
    handshake::{self, Facts, Identity, Preference},
    hosted::Host,
    http::Endpoint,
    limits::Limits,
    message::{self, Meta},
    shared::{Shared, Wire},
    stdio,
    version::Version,
};

/// One connection to one server. Clones share it; when the last is dropped it is closed, and a child is ended.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    _open: Arc<DropGuard>,
}

/// What is asked. Parameters are a JSON object without `_meta`, which the client writes itself.
#[derive(Clone, derive_more::Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    pub params: Option<&'a RawValue>,
    /// What the request is about, for the `Mcp-Name` header: a tool, a prompt, a resource, a task.
    pub name: Option<&'a str>,
    #[debug(skip)]
    pub progress: Option<Arc<dyn Progress>>,
    /// Whoever can be asked while this request is under way. Without one the server is told that nobody can.
    #[debug(skip)]
    pub questions: Option<Arc<dyn Handler>>,
    /// What can be asked during this request, as the JSON text of client capabilities; the connection's own when left
    /// out. Only the newest version says it with every request.
    pub capabilities: Option<String>,
    /// Further members of `_meta`, each as `"name":value`.
    pub meta: Vec<String>,
    /// Further headers, where there are headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl<'a> Request<'a> {
    pub fn new(method: &'a str) -> Self {
        Self {
            method,
            params: None,
            name: None,
            progress: None,
            questions: None,
            capabilities: None,
            meta: Vec::new(),
            headers: Vec::new(),
        }
    }

    #[must_use]
    pub fn params(mut self, params: &'a RawValue) -> Self {
        self.params = Some(params);
        self
    }

    #[must_use]
    pub fn about(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// A member of `_meta`, such as `traceparent`.
    #[must_use]
    pub fn meta(mut self, name: &str, value: &str) -> Self {
        let mut member = String::new();
        message::push_string(&mut member, name);
        member.push(':');
        message::push_string(&mut member, value);
        self.meta.push(member);
        self
    }
}

impl Client {
    fn over(shared: Arc<Shared>) -> Self {
        let open = Arc::new(shared.stopping.clone().drop_guard());
        Self { shared, _open: open }
    }

    /// Starts a child and agrees with it on a version. A child that dies when asked a question from the newest
    /// version is started again and greeted as its elders were.
    pub async fn spawn(
        command: &Command,
        identity: &Identity,
        limits: &Limits,
        handler: &Arc<dyn Handler>,
    ) -> Result<Self, Error> {
        let start = || std::future::ready(stdio::spawn(command, identity, limits, handler));
        Self::greeted(start, command.preference).await
    }

    /// As [`Client::spawn`], with a program that someone else starts and looks after.
    pub async fn hosted(
        host: &dyn Host,
        preference: Preference,
        identity: &Identity,
        limits: &Limits,
        handler: &Arc<dyn Handler>,
    ) -> Result<Self, Error> {
        let start = || async { Ok(stdio::host(host.start().await?, identity, limits, handler)) };
        Self::greeted(start, preference).await
    }

    async fn greeted<S>(start: impl Fn() -> S, preference: Preference) -> Result<Self, Error>
    where
        S: Future<Output = Result<Arc<Shared>, Error>>,
    {
        let greet = |preference| {
            let starting = start();
            async move {
                let client = Self::over(starting.await?);
                handshake::run(&client.shared, preference).await?;
                Ok(client)
            }
        };
        match greet(preference).await {
            Err(Error::Closed(reason)) if preference == Preference::Any => {
                tracing::debug!(%reason, "the server ended at the first question; trying the older greeting");
                greet(Preference::Handshake).await
            }
            ended => ended,
        }
    }

    /// Opens an HTTP endpoint, of whichever transport it turns out to have.
    pub async fn connect(
        endpoint: &Endpoint,
        identity: &Identity,
        limits: &Limits,
        handler: &Arc<dyn Handler>,
    ) -> Result<Self, Error> {
        let shared = endpoint.open(identity, limits, handler);
        let client = Self::over(shared);
        match handshake::run(&client.shared, endpoint.preference).await {
            Ok(()) => {}
            // A server of the first transport knows no POST here.
            Err(Error::Status { status: 400 | 404 | 405 | 406 | 415, .. })
                if endpoint.preference != Preference::Stateless =>
            {
                return Self::connect_older(endpoint, identity, limits, handler).await;
            }
            Err(error) => return Err(error),
        }
        if let Wire::Http(exchange) = &client.shared.wire {
            exchange.keep_listening(&client.shared).await;
        }
        Ok(client)
    }

    /// Opens an endpoint of the older HTTP+SSE transport.
    pub async fn connect_older(
        endpoint: &Endpoint,
        identity: &Identity,
        limits: &Limits,
        handler: &Arc<dyn Handler>,
    ) -> Result<Self, Error> {
        let client = Self::over(endpoint.open_mailbox(identity, limits, handler).await?);
        handshake::run(&client.shared, Preference::Handshake).await?;
        Ok(client)
    }

    /// Whether it speaks the older HTTP+SSE transport.
    pub fn is_older(&self) -> bool {
        matches!(self.shared.wire, Wire::Mailbox(_))
    }

    /// The process behind the connection, where there is one.
    pub fn pid(&self) -> Option<u32> {
        self.shared.pid.get().copied()
    }

    /// What the server said of itself.
    pub fn facts(&self) -> Option<&Facts> {
        self.shared.facts.get()
    }

    pub fn version(&self) -> Version {
        self.facts().map_or(Version::NEWEST_WITH_HANDSHAKE, |facts| facts.version)
    }

    /// Why the connection ended, when it has.
    pub fn ended(&self) -> Option<Error> {
        self.shared.pending.ended()
    }

    /// Waits until the connection has ended.
    pub async fn end(&self) -> Error {
        self.shared.stopping.cancelled().await;
        self.ended().unwrap_or_else(|| Error::Closed("it was closed here".into()))
    }

    /// Waits until nothing is left of a connection that has ended: a child has gone.
    pub async fn gone(&self) {
        self.shared.stopping.cancelled().await;
        if self.pid().is_some() {
            self.shared.gone.cancelled().await;
        }
    }

    /// Requests that wait for an answer.
    pub fn pending(&self) -> usize {
        self.shared.pending.len()
    }

    /// Closes the connection for every holder.
    pub fn close(&self, reason: &str) {
        self.shared.end(&Error::Closed(reason.into()));
    }

    /// Asks, and waits for the answer. Dropping the future tells the server that nobody waits any more.
    pub async fn request(&self, request: Request<'_>) -> Result<Box<RawValue>, Error> {
        exchange(&self.shared, self.version(), request).await
    }

    pub async fn notify(&self, method: &str, params: Option<&RawValue>) -> Result<(), Error> {
        self.shared.send(message::notice(method, params.map(RawValue::get))).await
    }

    /// Whether the server answers at all. The newest version has no `ping`; there it is asked who it is.
    pub async fn ping(&self, patience: Duration) -> Result<(), Error> {
        let method = if self.version().stateless() { "server/discover" } else { "ping" };
        match tokio::time::timeout(patience, self.request(Request::new(method))).await {
            Ok(answered) => answered.map(drop),
            Err(_) => Err(Error::Silent(patience)),
        }
    }
}

/// One request and its answer, in the words of `version`.
pub(crate) async fn exchange(
    shared: &Arc<Shared>,
    version: Version,
    request: Request<'_>,
) -> Result<Box<RawValue>, Error> {
    let Request { method, params, name, progress, questions, capabilities, meta, headers } = request;
    let asks_back = questions.is_some();
    let meta = Meta {
        version,
        client: &shared.identity.client,
        capabilities: match &capabilities {
            Some(own) => own,
            None if asks_back => &shared.identity.capabilities,
            None => &shared.identity.without_questions,
        },
        progress: progress.is_some(),
        further: &meta,
    };
    let (id, mut answered) = shared.pending.enter(progress, questions)?;
    let mut guard = Guard { shared, version, id, cancellable: method != "initialize" };
    let bytes = message::request(id, method, params, &meta);
    let sent = match &shared.wire {
        Wire::Pipe(_) | Wire::Mailbox(_) => shared.send(bytes).await,
        Wire::Http(http) => {
            let asked = crate::http::Asked { id, version, method, name, headers, body: bytes.into() };
            tokio::select! {
                biased;
                answer = &mut answered => {
                    guard.cancellable = false;
                    return answer.unwrap_or_else(|_| Err(gone(shared)));
                }
                ended = http.ask(shared, asked) => ended,
            }
        }
    };
    if let Err(error) = sent {
        guard.cancellable = false;
        // An answer that came first counts.
        return match answered.try_recv() {
            Ok(answer) => answer,
            Err(_) => Err(error),
        };
    }
    let answer = answered.await;
    guard.cancellable = false;
    answer.unwrap_or_else(|_| Err(gone(shared)))
}

fn gone(shared: &Shared) -> Error {
    shared.pending.ended().unwrap_or_else(|| Error::Closed("the answer was lost".into()))
}

/// Takes a request back when its future is dropped.
struct Guard<'a> {
    shared: &'a Arc<Shared>,
    version: Version,
    id: u64,
    cancellable: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.shared.pending.leave(self.id) || !self.cancellable {
            return;
        }
        match &self.shared.wire {
            Wire::Pipe(queue) => {
                // A server that reads nothing can't be told.
                let _ = queue.try_send(message::cancelled(self.id).into());
            }
            // The stream is closed by being dropped, which is how the newest version says it.
            Wire::Http(_) if self.version.stateless() => {}
            Wire::Http(_) | Wire::Mailbox(_) => {
                let (shared, id) = (Arc::clone(self.shared), self.id);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move {
                        let told = shared.send(message::cancelled(id));
                        let _ = tokio::time::timeout(shared.limits.farewell, told).await;
                    });
                }
            }
        }
    }
}
