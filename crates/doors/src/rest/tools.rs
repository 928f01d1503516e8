//! `GET /v1/tools`, `GET /v1/tools/{name}`, `POST /v1/tools/{name}`.

use std::{convert::Infallible, fmt::Display, sync::Arc};

use aegis_core::{Call, Violation, ViolationKind, nearest::suggestion, progress::Progress, tool::Directory};
use aegis_plane::{Done, Reply};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{future::BoxFuture, stream};
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use tokio_util::sync::CancellationToken;

use crate::{
    Doors,
    driven::driven,
    guard::{self, Refused},
    strict, wire,
    words::Words,
};

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let tools = doors.plane.visible(&caller);
    Ok(Json(json!({"total": tools.len(), "tools": tools})))
}

pub(super) async fn show(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let visible = doors.plane.visible(&caller);
    match visible.iter().find(|tool| tool.names().any(|known| known == name)) {
        Some(tool) => Ok(Json(json!(tool))),
        None => {
            let close = suggestion(&name, visible.iter().map(|tool| &*tool.name));
            let message = format!("there is no tool called `{name}` that you may call{close}");
            Err(Violation::new(ViolationKind::ToolNotFound, message)
                .hint("`aegis tools list` or GET /v1/tools shows those there are")
                .into())
        }
    }
}

/// The answer to a plain call.
#[derive(Serialize)]
struct Answer<'a> {
    call: String,
    is_error: bool,
    result: &'a RawValue,
    label: &'a aegis_core::Label,
    /// The approval that the call waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<Value>,
}

pub(super) async fn call(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let arguments = object(&body)?;
    let call = Call::new(name, arguments).traced(guard::trace(&headers));
    let cancel = CancellationToken::new();
    let gone = cancel.clone().drop_guard();
    if !takes_events(&headers) {
        let reply = doors.plane.call(caller, call, cancel).await;
        return Ok(ended(reply));
    }
    let words = Arc::new(Words::default());
    let running: BoxFuture<'static, Response> = {
        let (doors, words) = (Arc::clone(&doors), Arc::clone(&words));
        Box::pin(async move {
            let _gone = gone;
            ended(doors.plane.call_heard(caller, call, cancel, words).await)
        })
    };
    Ok(narrated(running, words).await)
}

fn ended(reply: Reply) -> Response {
    match reply.result {
        Ok(done) => answer(reply.call.to_string(), &done),
        Err(violation) => wire::refusal(&violation),
    }
}

/// Whether the client wants to hear what the call says before its answer.
pub(super) fn takes_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/event-stream"))
    })
}

/// A call that says nothing is answered as any other. One that speaks becomes a stream: `progress` events, and at the
/// end one `answer` that holds the status and the body that a plain answer would have had.
pub(super) async fn narrated(mut running: BoxFuture<'static, Response>, words: Arc<Words>) -> Response {
    let first = tokio::select! {
        biased;
        answer = &mut running => return answer,
        word = words.next() => word,
    };
    let running = driven(running);
    let events = stream::unfold((Some(first), Some(running), words), |(ready, running, words)| async move {
        if let Some(word) = ready {
            return Some((Ok::<_, Infallible>(told(&word)), (None, running, words)));
        }
        let mut running = running?;
        let answer = tokio::select! {
            biased;
            word = words.next() => return Some((Ok(told(&word)), (None, Some(running), words))),
            answer = &mut running => answer,
        };
        let (head, body) = answer.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let body = serde_json::from_slice::<&RawValue>(&body).ok();
        let last = Event::default().event("answer").json_data(Last { status: head.status.as_u16(), body });
        Some((Ok(last.unwrap_or_default()), (None, None, words)))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

#[derive(Serialize)]
struct Last<'a> {
    status: u16,
    body: Option<&'a RawValue>,
}

fn told(word: &Progress) -> Event {
    Event::default().event("progress").json_data(word).unwrap_or_default()
}

/// A tool that ran and could not do its work is answered 422 with its failure object, so that `curl --fail` fails. One
/// that waits for a person is answered 202, with the place where to look.
fn answer(call: String, done: &Done) -> Response {
    let is_error = done.outcome.failure.is_some();
    let waits = done.pending.as_deref();
    let approval = waits
        .map(|approval| json!({"id": approval.id, "state": approval.state, "expires": approval.expires}));
    let text = serde_json::from_str::<&RawValue>(&done.json)
        .and_then(|result| {
            serde_json::to_string(&Answer { call, is_error, result, label: &done.outcome.label, approval })
        })
        .unwrap_or_default();
    let status = match (waits, is_error) {
        (Some(_), _) => StatusCode::ACCEPTED,
        (None, true) => StatusCode::UNPROCESSABLE_ENTITY,
        (None, false) => StatusCode::OK,
    };
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], text).into_response();
    if let Some(approval) = waits
        && let Ok(place) = HeaderValue::from_str(&format!("/v1/approvals/{}", approval.id))
    {
        response.headers_mut().insert(header::LOCATION, place);
    }
    response
}

fn object(body: &[u8]) -> Result<Map<String, Value>, Violation> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    let unusable = |error: &dyn Display| {
        Violation::new(ViolationKind::MalformedRequest, format!("the body can't be taken: {error}"))
            .hint("send the tool's arguments as one JSON object")
    };
    let text = std::str::from_utf8(body).map_err(|error| unusable(&error))?;
    strict::object(text).map_err(|error| unusable(&error))
}
