//! `GET /v1/tools`, `GET /v1/tools/{name}`, `POST /v1/tools/{name}`.

use std::{fmt::Display, sync::Arc};

use aegis_core::{Call, Violation, ViolationKind, tool::Directory};
use aegis_plane::Done;
use axum::{
    Json,
    body::Bytes,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Map, Value, json, value::RawValue};
use tokio_util::sync::CancellationToken;

use crate::{
    Doors,
    guard::{self, Refused},
    strict, wire,
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
        None => Err(Violation::new(ViolationKind::ToolNotFound, format!("there is no tool called `{name}`"))
            .hint("GET /v1/tools lists what you may call")
            .into()),
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
    let cancel = CancellationToken::new();
    let _gone = cancel.clone().drop_guard();
    let reply = doors.plane.call(caller, Call::new(name, arguments), cancel).await;
    Ok(match reply.result {
        Ok(done) => answer(reply.call.to_string(), &done),
        Err(violation) => wire::refusal(&violation),
    })
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
