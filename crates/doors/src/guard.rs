//! What is checked before any protocol is spoken: is this request meant for us, is there room for it, who sends it.

use std::{net::IpAddr, sync::Arc};

use aegis_core::{
    Caller, Door, Violation, ViolationKind, caller::AGENT_USER, config::security_context::OPERATOR_CONTEXT,
    id::SessionId, trace::TraceContext, upstream::VIA,
};
use axum::{
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body::Body as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Doors, wire};

/// Names the context an operator wants to act in.
pub(crate) const CONTEXT_HEADER: &str = "aegis-context";

/// Refuses requests that a browser was tricked into sending (DNS rebinding, cross-site): the `Host` must be ours, and
/// an `Origin`, if there is one, must be listed or be ours.
pub(crate) async fn host_and_origin(
    State(doors): State<Arc<Doors>>,
    request: Request,
    next: Next,
) -> Response {
    // With two of them, this check and the one who answers might each look at another.
    for name in [header::HOST, header::ORIGIN, header::AUTHORIZATION] {
        if request.headers().get_all(&name).iter().nth(1).is_some() {
            let twice = Violation::new(
                ViolationKind::MalformedRequest,
                format!("the header `{name}` is there twice"),
            );
            return wire::refusal(&twice);
        }
    }
    let host = request
        .uri()
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| request.headers().get(header::HOST).and_then(|host| host.to_str().ok()));
    if !host.is_some_and(|host| host_is_ours(&doors, host)) {
        return forbidden("Host", host, "spec.network.allowed_hosts");
    }
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if !origin_is_ours(&doors, origin) {
            return forbidden("Origin", Some(origin), "spec.network.allowed_origins");
        }
    }
    if request
        .headers()
        .get_all(VIA)
        .iter()
        .any(|mark| mark.to_str().is_ok_and(|mark| doors.servers.leads_back(mark)))
    {
        let circle = Violation::new(
            ViolationKind::MalformedRequest,
            "the request comes from this node itself: an MCP server's `url` is the node's own address",
        )
        .hint("write the address of the server instead");
        return wire::refusal_with_status(&circle, StatusCode::LOOP_DETECTED);
    }
    next.run(request).await
}

fn host_is_ours(doors: &Doors, host: &str) -> bool {
    let name = host_name(host);
    let listen = doors.network.listen.ip();
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || address == listen)
        || doors.network.allowed_hosts.iter().any(|allowed| {
            allowed.eq_ignore_ascii_case(host) || host_name(allowed).eq_ignore_ascii_case(name)
        })
}

fn origin_is_ours(doors: &Doors, origin: &str) -> bool {
    doors.network.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
        || origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"))
            .is_some_and(|host| host_is_ours(doors, host))
}

/// The host without port and brackets.
fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return "" };
        let plain = port.is_empty()
            || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()));
        return if plain { address } else { "" };
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.contains(':') => name,
        _ => host,
    }
}

fn forbidden(what: &str, value: Option<&str>, rule: &str) -> Response {
    let shown: String = value.unwrap_or("(none)").chars().take(100).collect();
    let violation =
        Violation::new(ViolationKind::MalformedRequest, format!("the {what} `{shown}` is not this node's"))
            .rule(rule)
            .hint("this guards against DNS rebinding; list the name if it is yours");
    wire::refusal_with_status(&violation, StatusCode::FORBIDDEN)
}

/// Reads the whole body before anybody looks at it: too large, too slow and half-sent bodies end here, and a
/// handler that has one never waits for the network.
async fn whole_body(doors: &Doors, request: Request) -> Result<Request, Response> {
    let limit = usize::try_from(doors.network.max_body.0).unwrap_or(usize::MAX);
    let (parts, body) = request.into_parts();
    let announced = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok())
        .unwrap_or(0);
    if announced > limit as u64 {
        return Err(too_large(limit));
    }
    // A stranger's body is not read at all; whoever answers will ask for a credential first.
    if body.size_hint().exact() != Some(0)
        && doors.identity.bearer(bearer(&parts.headers), Door::Rest, None).await.is_err()
    {
        return Ok(Request::from_parts(parts, Body::empty()));
    }
    let patience = doors.network.body_timeout;
    match tokio::time::timeout(patience.0, axum::body::to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => {
            let mut request = Request::from_parts(parts, Body::from(bytes));
            DefaultBodyLimit::disable().apply(&mut request);
            Ok(request)
        }
        Ok(Err(error)) if is_over_limit(&error) => Err(too_large(limit)),
        Ok(Err(error)) => Err(wire::refusal(&Violation::new(
            ViolationKind::MalformedRequest,
            format!("the body did not arrive whole: {error}"),
        ))),
        Err(_) => Err(wire::refusal_with_status(
            &Violation::new(
                ViolationKind::MalformedRequest,
                format!("the body did not arrive whole within {patience}"),
            )
            .rule("spec.network.body_timeout"),
            StatusCode::REQUEST_TIMEOUT,
        )),
    }
}

fn is_over_limit(error: &axum::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}

fn too_large(limit: usize) -> Response {
    wire::refusal(
        &Violation::new(ViolationKind::RequestTooLarge, format!("the body is larger than {limit} bytes"))
            .rule("spec.network.max_body"),
    )
}

/// How many requests may be in work at once.
#[derive(Debug, Clone)]
pub(crate) struct Crowd {
    doors: Arc<Doors>,
    places: Arc<Semaphore>,
}

impl Crowd {
    pub(crate) fn new(doors: &Arc<Doors>) -> Self {
        let places = doors.network.max_concurrent_requests as usize;
        Self { doors: Arc::clone(doors), places: Arc::new(Semaphore::new(places)) }
    }

    fn enter(&self) -> Result<SemaphorePermit<'_>, Box<Response>> {
        if self.doors.stopping.is_cancelled() {
            let stopping = Violation::new(ViolationKind::ShuttingDown, "the node is stopping").retry_after(5);
            return Err(Box::new(wire::refusal(&stopping)));
        }
        self.places.try_acquire().map_err(|_| {
            let full = Violation::new(ViolationKind::Overloaded, "too many requests are in work")
                .rule("spec.network.max_concurrent_requests")
                .hint("try again shortly")
                .retry_after(1);
            self.doors.plane.meters().refused(full.kind);
            Box::new(wire::refusal(&full))
        })
    }
}

/// Lets a request in when there is room.
pub(crate) async fn crowd(State(crowd): State<Crowd>, request: Request, next: Next) -> Response {
    match crowd.enter() {
        Ok(_place) => next.run(request).await,
        Err(refused) => *refused,
    }
}

/// As [`crowd`], with its whole body. One step of the way instead of two: each costs every request.
pub(crate) async fn crowd_and_body(State(crowd): State<Crowd>, request: Request, next: Next) -> Response {
    let _place = match crowd.enter() {
        Ok(place) => place,
        Err(refused) => return *refused,
    };
    match whole_body(&crowd.doors, request).await {
        Ok(request) => next.run(request).await,
        Err(refused) => refused,
    }
}

/// The caller behind a request's bearer token.
pub(crate) async fn caller(
    doors: &Doors,
    headers: &HeaderMap,
    door: Door,
    session: Option<SessionId>,
) -> Result<Caller, Violation> {
    let caller = doors.identity.bearer(bearer(headers), door, session).await;
    if let Err(violation) = &caller {
        doors.plane.meters().refused(violation.kind);
    }
    caller
}

/// An operator may act as a user of some context, to try a policy out or to do less by mistake. Nobody else can
/// choose a context, and nobody can choose a tier.
pub(crate) fn narrowed(doors: &Doors, mut caller: Caller, headers: &HeaderMap) -> Result<Caller, Violation> {
    let Some(context) = headers.get(CONTEXT_HEADER) else { return Ok(caller) };
    if !is_operator(&caller) {
        return Err(Violation::new(ViolationKind::OperatorOnly, "only an operator can choose a context"));
    }
    let context = context.to_str().unwrap_or_default();
    doors.plane.policy().contexts().named(context)?;
    if context != caller.context.as_str() {
        caller.context = context.into();
        caller.tier = aegis_core::Tier::User;
        // Another person in the plane's eyes: what is asked for in this role, the operator may approve.
        caller.user = AGENT_USER.into();
    }
    Ok(caller)
}

/// The caller of a plain request, in the context that it may have chosen.
pub(crate) async fn identified(doors: &Doors, headers: &HeaderMap) -> Result<Caller, Violation> {
    let caller = caller(doors, headers, Door::Rest, None).await?;
    narrowed(doors, caller, headers)
}

/// As [`caller`], for operations that only operators may do.
pub(crate) async fn operator(doors: &Doors, headers: &HeaderMap) -> Result<Caller, Violation> {
    let caller = caller(doors, headers, Door::Rest, None).await?;
    if is_operator(&caller) {
        return Ok(caller);
    }
    doors.plane.meters().refused(ViolationKind::OperatorOnly);
    Err(Violation::new(ViolationKind::OperatorOnly, "this operation is for operators")
        .hint("use the token in DATA/operator.token"))
}

/// By tier and by context: a token of the operator tier that was bound to less stays bound.
pub(crate) fn is_operator(caller: &Caller) -> bool {
    caller.tier == aegis_core::Tier::Operator && caller.context.as_str() == OPERATOR_CONTEXT
}

/// The trace that the caller is in.
pub(crate) fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    TraceContext::parse(text("traceparent")?, text("tracestate"))
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A violation as an HTTP answer.
#[derive(Debug)]
pub(crate) struct Refused {
    violation: Violation,
    /// Where it is not the violation's own.
    status: Option<StatusCode>,
}

impl Refused {
    /// What the request names is not there; `list` is the command that shows what is.
    pub(crate) fn unknown(message: impl Into<String>, list: &str) -> Self {
        Violation::new(ViolationKind::UnknownName, message)
            .hint(format!("`{list}` shows those there are"))
            .into()
    }

    /// Where a violation means something else than elsewhere.
    pub(crate) fn with_status(violation: Violation, status: StatusCode) -> Self {
        Self { violation, status: Some(status) }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self.status {
            Some(status) => wire::refusal_with_status(&self.violation, status),
            None => wire::refusal(&self.violation),
        }
    }
}

impl From<Violation> for Refused {
    fn from(violation: Violation) -> Self {
        Self { violation, status: None }
    }
}
