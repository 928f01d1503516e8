//! Streamable HTTP. Authentication comes before anything of JSON-RPC; Host and Origin were checked before that.

mod framing;

use std::sync::Arc;

use aegis_core::{Caller, Door};
use axum::{
    body::to_bytes,
    extract::{Request as HttpRequest, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::Response,
};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::{
    abilities::{self, Abilities},
    call::{Client, Withdrawal},
    conversation::{Conversation, Step},
    definitions::View,
    era::{Era, Revision},
    fault::{Fault, INVALID_REQUEST},
    ladder::{self, Header, Headers},
    message::{self, Message, Request},
    metadata, progress,
    session::{Session, Sessions},
};
use crate::guard;

pub(super) use framing::{accepts, answer, events, fault, json, nothing};
use framing::{empty, essence, view};

pub(super) const SESSION_HEADER: &str = "mcp-session-id";

/// What the HTTP side keeps.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) conversation: Arc<Conversation>,
    sessions: Sessions,
    /// Places for streams that stay open.
    pub(super) streams: Arc<Semaphore>,
}

impl Transport {
    pub(super) fn new(conversation: Arc<Conversation>) -> Self {
        let network = &conversation.doors.network;
        Self {
            sessions: Sessions::new(network.max_sessions),
            streams: Arc::new(Semaphore::new(network.max_concurrent_requests as usize)),
            conversation,
        }
    }

    async fn caller(&self, parts: &Parts) -> Result<Caller, Response> {
        let doors = &self.conversation.doors;
        let caller = guard::caller(doors, &parts.headers, Door::McpHttp, None).await;
        caller
            .and_then(|caller| guard::narrowed(doors, caller, &parts.headers))
            .map_err(|violation| metadata::challenge(doors, parts, &violation))
    }

    /// The session that a request of the older revisions names; `None` if it names none, which is allowed: everything
    /// that matters comes with the credential.
    fn session(&self, caller: &mut Caller, headers: &HeaderMap) -> Result<Option<Arc<Session>>, Fault> {
        let gone = || {
            Fault::new(
                StatusCode::NOT_FOUND,
                -32001,
                "there is no such session, or it has ended; send `initialize` again",
            )
        };
        match Header::of(headers, SESSION_HEADER) {
            Header::Absent => Ok(None),
            Header::Unusable => Err(gone()),
            Header::Value(id) => {
                let session = self.sessions.find(caller, id).ok_or_else(gone)?;
                caller.session = Some(session.handle());
                Ok(Some(session))
            }
        }
    }
}

pub(super) async fn post(State(transport): State<Arc<Transport>>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    let caller = match transport.caller(&parts).await {
        Ok(caller) => caller,
        Err(response) => return response,
    };
    let exchange = match Exchange::new(&transport, &parts, caller) {
        Ok(exchange) => exchange,
        Err(refused) => return fault(&refused, None),
    };
    let limit = usize::try_from(transport.conversation.doors.network.max_body.0).unwrap_or(usize::MAX);
    let body = match to_bytes(body, limit).await {
        Ok(body) => body,
        Err(error) => {
            let refused = Fault::invalid_request(format!("the body did not arrive whole: {error}"));
            return fault(&refused, None);
        }
    };
    match message::text(&body) {
        Ok(text) if message::is_batch(text) => exchange.batch(text).await,
        Ok(text) => exchange.message(text).await,
        Err(unreadable) => fault(&unreadable, None),
    }
}

/// One POST on its way to an answer.
struct Exchange<'a> {
    transport: &'a Transport,
    parts: &'a Parts,
    headers: &'a HeaderMap,
    routing: Headers<'a>,
    caller: Caller,
    view: View,
    takes_events: bool,
}

impl<'a> Exchange<'a> {
    fn new(transport: &'a Transport, parts: &'a Parts, caller: Caller) -> Result<Self, Fault> {
        let headers = &parts.headers;
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !essence(kind).eq_ignore_ascii_case("application/json") {
            return Err(Fault::invalid_request("send `Content-Type: application/json`")
                .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
        }
        if !accepts(headers, "application", "json") {
            return Err(Fault::invalid_request("send `Accept: application/json, text/event-stream`")
                .with_status(StatusCode::NOT_ACCEPTABLE));
        }
        Ok(Self {
            transport,
            parts,
            headers,
            routing: Headers::of(headers),
            caller,
            view: view(parts.uri.query())?,
            takes_events: accepts(headers, "text", "event-stream"),
        })
    }

    async fn message(self, text: &str) -> Response {
        let message = match Message::parse(text) {
            Ok(message) => message,
            Err(unreadable) => {
                return fault(&unreadable.fault, unreadable.id.map(message::Id::as_str));
            }
        };
        match message {
            Message::Request(request) if ladder::is_modern(&request, Some(&self.routing)) => {
                self.modern(&request).await
            }
            Message::Request(request) => self.legacy(&request).await,
            Message::Response { .. } if self.routing.are_modern() => fault(
                &Fault::invalid_request("questions of this revision are answered by repeating the request"),
                None,
            ),
            Message::Notification { method, params } => self.notification(&method, &params),
            Message::Response { id, result } => self.response(id, result),
        }
    }

    async fn modern(self, request: &Request<'_>) -> Response {
        let id = Some(request.id.as_str());
        if let Err(refused) = ladder::climb(request, Some(&self.routing)) {
            return fault(&refused, id);
        }
        if request.method == "tools/call"
            && let Some(name) = request.params.name.and_then(message::string)
        {
            let definitions = self.transport.conversation.definitions();
            let parameters = definitions.1.headers(self.view.names, &name);
            if let Err(refused) = ladder::parameters_alike(request, self.headers, parameters) {
                return fault(&refused, id);
            }
        }
        self.answer(request, Era::Modern, Withdrawal::Disconnect, None).await
    }

    async fn legacy(mut self, request: &Request<'_>) -> Response {
        if request.method == "initialize" {
            return self.initialize(request);
        }
        let session = match self.transport.session(&mut self.caller, self.headers) {
            Ok(session) => session,
            Err(gone) => return fault(&gone, Some(request.id.as_str())),
        };
        let era = Era::Legacy(self.revision(session.as_deref()));
        let withdrawal = match &session {
            Some(session) => Withdrawal::Notification(&session.in_flight),
            None => Withdrawal::Never,
        };
        self.answer(request, era, withdrawal, session.as_deref()).await
    }

    async fn answer(
        self,
        request: &Request<'_>,
        era: Era,
        withdrawal: Withdrawal<'_>,
        session: Option<&Session>,
    ) -> Response {
        let conversation = &self.transport.conversation;
        let step = {
            let origin = || metadata::origin(&conversation.doors, self.parts);
            let client = Client {
                abilities: session.map_or_else(Abilities::default, |session| session.abilities),
                takes: session.map(|session| &session.takes),
                standing: session.map(|session| &session.standing),
                hears: self.takes_events,
                questions: session.map(|session| &session.questions).filter(|_| self.takes_events),
                origin: Some(&origin),
                may_wait: true,
                alone: false,
            };
            conversation.request(self.caller, request, era, self.view, &withdrawal, client)
        };
        match step {
            Ok(Step::Answer(answer)) => json(answer),
            Ok(Step::Running(running)) => {
                progress::respond(running, self.takes_events, conversation.pace).await
            }
            Ok(Step::Listening(listening)) => {
                self.transport.listen(*listening, self.takes_events, request).await
            }
            Err(refused) => fault(&refused, Some(request.id.as_str())),
        }
    }

    fn initialize(self, request: &Request<'_>) -> Response {
        let id = Some(request.id.as_str());
        let (revision, answer) = match self.transport.conversation.initialize(&self.caller, request) {
            Ok(answered) => answered,
            Err(refused) => return fault(&refused, id),
        };
        let abilities = Abilities::of_session(request.params.capabilities, revision);
        let takes = abilities::takes_in(request.params.capabilities, revision);
        let session = match self.transport.sessions.begin(&self.caller, revision, abilities, takes) {
            Ok(session) => session,
            Err(violation) => return fault(&Fault::of(&violation), id),
        };
        let mut response = json(answer);
        if let Ok(value) = HeaderValue::from_str(session.id()) {
            response.headers_mut().insert(SESSION_HEADER, value);
        }
        response
    }

    /// Takes note and says nothing. In the stateless era a notification can't withdraw a request: ids are the
    /// clients' own choice, so one client's could be another's.
    fn notification(mut self, method: &str, params: &message::Params<'_>) -> Response {
        if self.routing.are_modern() || params.meta.version.is_some() {
            return nothing();
        }
        match self.transport.session(&mut self.caller, self.headers) {
            Err(gone) => fault(&gone, None),
            Ok(session) => {
                if method == "notifications/cancelled"
                    && let (Some(session), Some(id)) = (session, params.cancelled())
                {
                    session.in_flight.withdraw(id);
                }
                nothing()
            }
        }
    }

    /// Takes the answer to a question of ours to whoever asked it in the same session.
    fn response(mut self, id: Option<message::Id<'_>>, result: Option<&RawValue>) -> Response {
        match self.transport.session(&mut self.caller, self.headers) {
            Err(gone) => fault(&gone, None),
            Ok(session) => {
                if let (Some(session), Some(id)) = (session, id) {
                    session.questions.answer(id, result);
                }
                nothing()
            }
        }
    }

    async fn batch(mut self, text: &str) -> Response {
        if self.routing.are_modern() {
            return fault(
                &Fault::invalid_request("an array of messages is not part of this revision of MCP"),
                None,
            );
        }
        let session = match self.transport.session(&mut self.caller, self.headers) {
            Ok(session) => session,
            Err(gone) => return fault(&gone, None),
        };
        let revision = self.revision(session.as_deref());
        let in_flight = session.as_ref().map(|session| &session.in_flight);
        match self.transport.conversation.batch(&self.caller, text, revision, self.view, in_flight) {
            Ok(answers) => answers.await.map_or_else(nothing, json),
            Err(refused) => fault(&refused, None),
        }
    }

    fn revision(&self, session: Option<&Session>) -> Revision {
        match (session, self.routing.version) {
            (Some(session), _) => session.revision,
            (None, Header::Value(version)) => Revision::parse(version).unwrap_or(Revision::UNSAID),
            (None, _) => Revision::UNSAID,
        }
    }
}

/// `DELETE`: the client is done with its session.
pub(super) async fn end(State(transport): State<Arc<Transport>>, request: HttpRequest) -> Response {
    let (parts, _) = request.into_parts();
    match transport.standing_session(&parts).await {
        Ok(session) => {
            transport.sessions.end(&session);
            empty(StatusCode::NO_CONTENT)
        }
        Err(response) => response,
    }
}

impl Transport {
    /// The session that a GET or DELETE is about. Without one there is only POST.
    pub(super) async fn standing_session(&self, parts: &Parts) -> Result<Arc<Session>, Response> {
        let mut caller = self.caller(parts).await?;
        if Headers::of(&parts.headers).are_modern() {
            return Err(no_such_method().await);
        }
        match self.session(&mut caller, &parts.headers) {
            Ok(Some(session)) => Ok(session),
            Ok(None) => Err(no_such_method().await),
            Err(gone) => Err(fault(&gone, None)),
        }
    }
}

pub(super) async fn no_such_method() -> Response {
    let refused = Fault::new(
        StatusCode::METHOD_NOT_ALLOWED,
        INVALID_REQUEST,
        "send messages by POST; GET and DELETE are for sessions of 2025-11-25 and older",
    );
    let mut response = fault(&refused, None);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}
