//! `/v1/upstreams`: operators look after the MCP servers behind the node.

use std::sync::Arc;

use aegis_core::{
    Violation, ViolationKind,
    config::{McpServer, upstream},
    upstream::UpstreamError,
};
use aegis_plane::servers::{Server, ServerError};
use aegis_stores::registry::{PinState, RegistryError};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::described;
use crate::{
    Doors,
    guard::{self, Refused},
};

const MOST_LINES: usize = 10_000;

impl From<ServerError> for Refused {
    fn from(error: ServerError) -> Self {
        let kind = match &error {
            ServerError::Unknown { .. } | ServerError::Upstream(UpstreamError::Unknown(_)) => {
                ViolationKind::UnknownName
            }
            ServerError::InFile { .. }
            | ServerError::Taken(_)
            | ServerError::NothingProposed(_)
            | ServerError::Upstream(_) => ViolationKind::Conflict,
            ServerError::Invalid(_) | ServerError::Registry(RegistryError::Invalid(_)) => {
                ViolationKind::MalformedRequest
            }
            ServerError::Stored { .. } | ServerError::Registry(_) | ServerError::Unrecordable(_) => {
                ViolationKind::InternalError
            }
        };
        let violation = Violation::new(kind, error.to_string());
        let violation = match &error {
            ServerError::InFile { place, .. } => violation
                .rule(place.as_str())
                .hint("change it there; it takes effect as soon as the file is saved"),
            ServerError::Unknown { .. } => violation.hint("`aegis upstream list` shows those there are"),
            ServerError::Invalid(_) => violation.rule("spec.mcp_servers"),
            _ => violation,
        };
        violation.into()
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    limit: Option<usize>,
}

/// Which proposed definitions are meant; all when none is named.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    #[serde(default)]
    tools: Vec<WantedTool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedTool {
    tool: String,
    digest: Option<String>,
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let servers: Vec<Value> = doors.servers.list().await.iter().map(row).collect();
    Ok(Json(json!({"total": servers.len(), "upstreams": servers})))
}

pub(super) async fn show(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let server = doors.servers.show(&name).await?;
    let mut told = row(&server);
    told["config"] = json!(server.configured.server);
    told["tools"] = json!(doors.servers.tools(&name));
    let pins = doors.servers.pins(&name).await?;
    let count = |state: PinState| pins.iter().filter(|pin| pin.state == state).count();
    told["definitions"] = json!({
        "accepted": count(PinState::Accepted),
        "proposed": count(PinState::Proposed),
        "rejected": count(PinState::Rejected),
    });
    Ok(Json(told))
}

/// A server on one line.
fn row(server: &Server) -> Value {
    let configured = &server.configured;
    let config = &configured.server;
    let claims: Vec<String> = config.claims().iter().map(ToString::to_string).collect();
    let reached = config.url.clone().or_else(|| config.executable.clone());
    json!({
        "name": config.name,
        "description": config.description,
        "source": configured.source,
        "added": configured.added,
        "added_by": configured.added_by,
        "hidden": configured.hidden,
        "enabled": config.enabled,
        "reached": reached,
        "claims": claims,
        "status": server.status,
    })
}

pub(super) async fn add(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let server = read(&body)?;
    let added = doors.servers.add(server, &operator).await?;
    Ok((StatusCode::CREATED, Json(row(&added))))
}

/// Adds the server, or puts it in the place of the added one of its name.
pub(super) async fn put(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let server = read(&body)?;
    if server.name != name {
        let other = format!("the address names `{name}` and the body `{}`", server.name);
        return Err(Violation::new(ViolationKind::MalformedRequest, other).into());
    }
    let (server, change) = doors.servers.put(server, &operator).await?;
    let mut told = row(&server);
    told["change"] = json!(change);
    Ok(Json(told))
}

pub(super) async fn remove(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let removed = doors.servers.remove(&name, &operator).await?;
    Ok(Json(json!({"name": name, "removed": true, "config": removed.server})))
}

pub(super) async fn restart(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    Ok(Json(row(&doors.servers.restart(&name, &operator).await?)))
}

pub(super) async fn test(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    Ok(Json(json!(doors.servers.test(&name).await?)))
}

/// A server that is not configured: it is connected to as it would be, and nothing of it stays.
pub(super) async fn test_other(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let server = read(&body)?;
    Ok(Json(json!(doors.servers.test_other(&server).await)))
}

pub(super) async fn logs(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let limit = page.limit.unwrap_or(100).min(MOST_LINES);
    let lines = doors.servers.logs(&name, limit).await?;
    Ok(Json(json!({"name": name, "lines": lines})))
}

pub(super) async fn diff(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let proposals = doors.servers.proposals(&name).await?;
    Ok(Json(json!({"name": name, "total": proposals.len(), "proposals": proposals})))
}

pub(super) async fn accept(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    decide(&doors, &name, &headers, &body, true).await
}

pub(super) async fn reject(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    decide(&doors, &name, &headers, &body, false).await
}

async fn decide(
    doors: &Doors,
    name: &str,
    headers: &HeaderMap,
    body: &[u8],
    accept: bool,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(doors, headers).await?;
    let wanted: Wanted = if body.iter().all(u8::is_ascii_whitespace) {
        Wanted::default()
    } else {
        serde_json::from_slice(body)
            .map_err(|error| Violation::new(ViolationKind::MalformedRequest, error.to_string()))?
    };
    let tools = wanted.tools.into_iter().map(|wanted| (wanted.tool, wanted.digest)).collect();
    let decided = doors.servers.decide(name, tools, accept, &operator).await?;
    let told: Vec<Value> = decided
        .iter()
        .map(|pin| json!({"tool": pin.definition.tool, "digest": pin.definition.digest, "state": pin.state}))
        .collect();
    Ok(Json(json!({"name": name, "decided": told})))
}

/// The body as a server, checked as the configuration file is.
fn read(body: &[u8]) -> Result<McpServer, Violation> {
    described::one(body, "server", "spec.mcp_servers", upstream::parse)
}
