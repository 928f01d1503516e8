//! Is the node alive, is it ready, how is it doing.

use std::sync::Arc;

use aegis_core::{
    Door,
    upstream::{ServerState, ServerStatus},
};
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
        "upstreams": upstream_states(&doors),
    });
    (status, Json(detail))
}

/// How many servers are in each state. Which ones they are takes a credential.
fn upstream_states(doors: &Doors) -> Value {
    let statuses = doors.servers.statuses();
    let count = |state| statuses.iter().filter(|status| status.state == state).count();
    let counted = ServerState::ALL.map(|state| (state.as_str().to_owned(), count(state)));
    counted
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| (state, Value::from(count)))
        .collect()
}

pub(super) async fn status(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = guard::caller(&doors, &headers, Door::Rest, None).await?;
    let mut status = json!({
        "name": doors.name,
        "version": doors.version,
        "tools": doors.plane.catalog().specs().len(),
        "in_flight": doors.plane.meters().in_flight(),
        "caller": caller,
    });
    if guard::is_operator(&caller) {
        status["configuration_file"] = json!(doors.contexts.file().await);
        // What was changed and is not in force: files with mistakes keep the old.
        status["refused"] = json!({
            "configuration": doors.contexts.refused_file(),
            "policies": doors.plane.policy().refused_rules().map(|error| error.to_string()),
        });
    }
    Ok(Json(status))
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
    upstream_metrics(&doors, &mut text);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Servers are named by the configuration, so there are only so many series.
fn upstream_metrics(doors: &Doors, text: &mut String) {
    let statuses = doors.servers.statuses();
    let mut series = |name: &str, kind: &str, help: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
            lines.iter().for_each(|line| text.push_str(&format!("{name}{line}\n")));
        }
    };
    let state = |status: &ServerStatus| {
        let (server, now) = (status.name.clone(), status.state);
        ServerState::ALL.map(move |state| {
            format!("{{server=\"{server}\",state=\"{}\"}} {}", state.as_str(), u8::from(state == now))
        })
    };
    let each = |figure: fn(&ServerStatus) -> u64| -> Vec<String> {
        let line = |status: &ServerStatus| format!("{{server=\"{}\"}} {}", status.name, figure(status));
        statuses.iter().map(line).collect()
    };
    series(
        "aegis_upstream_state",
        "gauge",
        "1 for the state that the server is in.",
        statuses.iter().flat_map(state).collect(),
    );
    series("aegis_upstream_tools", "gauge", "Tools that can be called.", each(|status| status.tools as u64));
    series(
        "aegis_upstream_calls_in_work",
        "gauge",
        "Calls that the server has not answered.",
        each(|status| status.calls_in_work as u64),
    );
    series(
        "aegis_upstream_restarts_total",
        "counter",
        "Starts after the first.",
        each(|status| status.restarts),
    );
}
