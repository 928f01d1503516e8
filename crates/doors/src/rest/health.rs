//! Is the node alive, is it ready, how is it doing.

use std::sync::Arc;

use aegis_core::Door;
use axum::{
    Json,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::{
    Doors,
    guard::{self, Refused},
};

/// The process runs and answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// The node takes calls: it is not stopping, and the audit log can be written.
pub(super) async fn ready(State(doors): State<Arc<Doors>>) -> (StatusCode, Json<Value>) {
    let stopping = doors.stopping.is_cancelled();
    let audit = doors.plane.audit().health();
    let ready = !stopping && audit.is_ok();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let detail = json!({
        "ready": ready,
        "stopping": stopping,
        "audit": if audit.is_ok() { "writable" } else { "failing" },
    });
    (status, Json(detail))
}

pub(super) async fn status(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = guard::caller(&doors, &headers, Door::Rest, None).await?;
    Ok(Json(json!({
        "name": doors.name,
        "version": doors.version,
        "tools": doors.plane.catalog().specs().count(),
        "in_flight": doors.plane.meters().in_flight(),
        "caller": caller,
    })))
}

pub(super) async fn metrics(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    guard::caller(&doors, &headers, Door::Rest, None).await?;
    let mut text = doors.plane.meters().render();
    // Without it the other figures are as good as ever.
    if let Ok(sessions) = doors.identity.seal().count_sessions().await {
        text.push_str("# HELP aegis_seal_sessions_active Sessions of attested workloads.\n");
        text.push_str("# TYPE aegis_seal_sessions_active gauge\n");
        text.push_str(&format!("aegis_seal_sessions_active {sessions}\n"));
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}
