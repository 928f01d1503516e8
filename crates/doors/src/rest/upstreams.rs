//! `/v1/upstreams`: operators look after the MCP servers behind the node.

use std::{collections::HashMap, sync::Arc, time::Duration};

use aegis_core::{
    Secret, Violation, ViolationKind,
    config::{McpServer, upstream},
    upstream::{ServerState, ServerStatus, ServerTool, SignInWish, UpstreamError},
};
use aegis_plane::servers::{Installed, Server, ServerError};
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
    wire,
};

const MOST_LINES: usize = 10_000;
/// How long anybody can wait for a server to start, in seconds.
const LONGEST_WAIT: u64 = 60;
/// Tools of a server that are told by name where many servers are told of.
const MOST_WITHHELD: usize = 20;
/// How long policies may take to be read with tools that were just accepted.
const LONGEST_READING: Duration = Duration::from_secs(10);

impl From<ServerError> for Refused {
    fn from(error: ServerError) -> Self {
        let kind = match &error {
            ServerError::Unknown { .. }
            | ServerError::UnknownTool { .. }
            | ServerError::Upstream(UpstreamError::Unknown(_)) => ViolationKind::UnknownName,
            ServerError::InFile { .. }
            | ServerError::NoSignIn { .. }
            | ServerError::Moved(_)
            | ServerError::Taken(_)
            | ServerError::NotStarted(_)
            | ServerError::NothingProposed(_)
            | ServerError::Upstream(_) => ViolationKind::Conflict,
            ServerError::Invalid(_)
            | ServerError::Unusable(_)
            | ServerError::Registry(RegistryError::Invalid(_)) => ViolationKind::MalformedRequest,
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
            ServerError::NoSignIn { place, .. } => violation.rule(place.as_str()).hint(
                "write `oauth: {grant: authorization_code, token_url: …, client_id: …, sign_in: \"secret:NAME/sign-in\"}` there",
            ),
            ServerError::UnknownTool { server, .. } => {
                violation.hint(format!("`aegis upstream show {server}` lists its tools by their own names"))
            }
            ServerError::Invalid(_) => violation.rule("spec.mcp_servers"),
            ServerError::Unusable(wrong) => violation.rule("spec.mcp_servers").hint(wrong.next.as_str()),
            _ => violation,
        };
        violation.into()
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Patience {
    /// In seconds.
    wait: Option<u64>,
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
    let servers: Vec<Value> = doors.servers.list().await.iter().map(|server| row(&doors, server)).collect();
    let shared = doors.servers.shared_resources().await;
    Ok(Json(json!({"total": servers.len(), "upstreams": servers, "shared_resources": shared})))
}

pub(super) async fn show(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    Query(patience): Query<Patience>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let mut server = doors.servers.show(&name).await?;
    if let Some(seconds) = patience.wait {
        settled(&doors, &name, Duration::from_secs(seconds.min(LONGEST_WAIT))).await;
        server = doors.servers.show(&name).await?;
    }
    let mut told = row(&doors, &server);
    let shared = doors.servers.shared_resources().await;
    told["shared_resources"] =
        shared.into_iter().filter(|one| one.servers.contains(&name)).map(|one| json!(one)).collect();
    told["config"] = json!(server.configured.server);
    told["tools"] = json!(doors.servers.tools(&name));
    // Why it does not run, as far as that can be seen from outside.
    let is_stopped = server.status.as_ref().is_some_and(|status| status.state == ServerState::Stopped);
    told["missing"] = match is_stopped {
        true => json!(doors.servers.missing(&server.configured.server).await),
        false => json!([]),
    };
    let pins = doors.servers.pins(&name).await?;
    let count = |state: PinState| pins.iter().filter(|pin| pin.state == state).count();
    told["definitions"] = json!({
        "accepted": count(PinState::Accepted),
        "proposed": count(PinState::Proposed),
        "rejected": count(PinState::Rejected),
    });
    Ok(Json(told))
}

/// Waits until a server runs or has failed to start, and what it offers can be called; not longer than asked for.
async fn settled(doors: &Doors, name: &str, patience: Duration) {
    let settled = async {
        doors.servers.started(name).await;
        doors.plane.policies_read().await;
    };
    let _ = tokio::time::timeout(patience, settled).await;
}

/// A server on one line.
fn row(doors: &Doors, server: &Server) -> Value {
    let configured = &server.configured;
    let config = &configured.server;
    let claims: Vec<String> = config.claims().iter().map(ToString::to_string).collect();
    let reached = config.url.clone().or_else(|| config.executable.clone());
    // What the configuration leaves out is not missed.
    let is_withheld = |tool: &ServerTool| tool.withheld.is_some() && !tool.left_out;
    let withheld: Vec<ServerTool> = match configured.hidden {
        Some(_) => Vec::new(),
        None => {
            doors.servers.tools(&config.name).into_iter().filter(is_withheld).take(MOST_WITHHELD).collect()
        }
    };
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
        "replaces": doors.servers.replaces(configured),
        "status": server.status,
        "withheld": withheld,
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
    Ok((StatusCode::CREATED, Json(installed(&doors, &added))))
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
    Ok(Json(installed(&doors, &doors.servers.put(server, &operator).await?)))
}

fn installed(doors: &Doors, put: &Installed) -> Value {
    let mut told = row(doors, &put.server);
    told["change"] = json!(put.change);
    told["missing"] = json!(put.missing);
    told
}

pub(super) async fn remove(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let removed = doors.servers.remove(&name, &operator).await?;
    Ok(Json(json!({"name": name, "removed": true, "config": removed.configured.server,
        "secrets_deleted": removed.forgotten, "secrets_left": removed.left})))
}

pub(super) async fn enable(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    Ok(Json(installed(&doors, &doors.servers.switch(&name, true, &operator).await?)))
}

pub(super) async fn disable(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    Ok(Json(installed(&doors, &doors.servers.switch(&name, false, &operator).await?)))
}

pub(super) async fn restart(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    Ok(Json(row(&doors, &doors.servers.restart(&name, &operator).await?)))
}

/// Where somebody signs in to a server: an address for a browser.
pub(super) async fn sign_in(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let wish: SignInWish = wire::read(&body)?;
    Ok(Json(json!(doors.servers.begin_sign_in(&name, &wish).await?)))
}

/// What the browser came back with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CameBack {
    /// The whole address.
    back: String,
}

pub(super) async fn signed_in(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let CameBack { back } = wire::read(&body)?;
    let server = doors.servers.finish_sign_in(&name, &Secret::new(back), &operator).await?;
    Ok(Json(row(&doors, &server)))
}

pub(super) async fn test(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let server = doors.servers.show(&name).await?.configured.server;
    Ok(Json(tested(&doors, &server).await))
}

/// What came of a look at a server, and what it lacks where it does not work.
async fn tested(doors: &Doors, server: &McpServer) -> Value {
    let report = doors.servers.test(server).await;
    let mut told = json!(report);
    told["missing"] = match report.works {
        true => json!([]),
        false => json!(doors.servers.missing(server).await),
    };
    told
}

/// A server that is not configured: it is connected to as it would be, and nothing of it stays.
pub(super) async fn test_other(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let server = read(&body)?;
    Ok(Json(tested(&doors, &server).await))
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
    let wanted: Wanted =
        if body.iter().all(u8::is_ascii_whitespace) { Wanted::default() } else { wire::read(body)? };
    let tools = wanted.tools.into_iter().map(|wanted| (wanted.tool, wanted.digest)).collect();
    let decided = doors.servers.decide(name, tools, accept, &operator).await?;
    // Whoever decided calls next.
    let _ = tokio::time::timeout(LONGEST_READING, doors.plane.policies_read()).await;
    // It may have been removed since: what was decided is decided.
    let status = doors.servers.show(name).await.ok().and_then(|server| server.status);
    let offered = doors.servers.tools(name);
    // Of several that share a name the first one counts.
    let offered: HashMap<&str, &ServerTool> =
        offered.iter().rev().map(|tool| (tool.tool.as_str(), tool)).collect();
    let told: Vec<Value> = decided
        .iter()
        .map(|pin| {
            let offered = offered.get(pin.definition.tool.as_str()).copied();
            let (digest, waits) = (&pin.definition.digest, waits(doors, status.as_ref(), pin.state, offered));
            json!({"tool": pin.definition.tool, "digest": digest, "state": pin.state, "waits": waits})
        })
        .collect();
    Ok(Json(json!({"name": name, "decided": told})))
}

/// Why a decision about a tool is not what calls see now.
fn waits(
    doors: &Doors,
    status: Option<&ServerStatus>,
    decided: PinState,
    offered: Option<&ServerTool>,
) -> Option<String> {
    let later = |state: &str| Some(format!("the server is {state}; it holds as soon as the server runs"));
    match status {
        None => return later("not started"),
        Some(status) => match (status.state, &status.reason) {
            (ServerState::Starting | ServerState::Disabled, _) => return later(status.state.as_str()),
            (ServerState::Stopped, reason) => {
                let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
                return Some(format!("the server is stopped{reason}; it holds as soon as the server runs"));
            }
            (ServerState::Running | ServerState::Degraded | ServerState::Quarantined, _) => {}
        },
    }
    if decided != PinState::Accepted {
        return None;
    }
    let Some(offered) = offered else { return Some("the server does not offer it now".to_owned()) };
    let is_unread = |name: &String| !doors.plane.policy().knows(name);
    match (&offered.withheld, &offered.name) {
        (Some(withheld), _) => Some(withheld.clone()),
        (None, Some(name)) if is_unread(name) => {
            Some("the policies can't be read with it: `aegis doctor` says why".to_owned())
        }
        _ => None,
    }
}

/// The body as a server, checked as the configuration file is.
fn read(body: &[u8]) -> Result<McpServer, Violation> {
    described::one(body, "server", "spec.mcp_servers", upstream::parse)
}
