//! `/v1/approvals`: what waits for a person. Approvers see everything that bears on a decision; a requester sees its own
//! requests and what came of them.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Approval, ApprovalState, Timestamp, Violation, ViolationKind, approval::Standing, id::ApprovalId,
    quantity::Span,
};
use aegis_plane::approvals::{ApprovalFilter, Decision, NewStanding};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use crate::{
    Doors,
    guard::{self, Refused},
};

const MOST_LISTED: usize = 1000;
/// The longest that one look waits for a change.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Looks that wait at once. One more gets its answer as things stand.
const MOST_WAITS: usize = 256;
static WAITS: Semaphore = Semaphore::const_new(MOST_WAITS);
/// How long a standing approval lasts when nobody says.
const STANDING: Duration = Duration::from_secs(8 * 3600);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    state: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patience {
    wait: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StandingPage {
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    /// The model that asked receives it.
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedStanding {
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    user: String,
    tenant: Option<String>,
    until: Option<Timestamp>,
    #[serde(default)]
    covers_labels: bool,
    note: Option<String>,
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let state = page
        .state
        .as_deref()
        .map(str::parse::<ApprovalState>)
        .transpose()
        .map_err(|error| Violation::new(ViolationKind::MalformedRequest, error))?;
    let approvals = doors.plane.approvals();
    let approver = approvals.is_approver_of(&caller.tenant, &caller);
    let filter = ApprovalFilter {
        state,
        tenant: (!guard::is_operator(&caller)).then(|| caller.tenant.clone()),
        user: (!approver).then(|| caller.user.clone()),
        limit: page.limit.unwrap_or(100).min(MOST_LISTED),
    };
    let mut seen = approvals.list(&filter).await?;
    if !approver {
        seen.retain(|approval| approval.is_of(&caller));
        seen = seen.into_iter().map(Approval::for_requester).collect();
    }
    // A result is read where one request is shown, so that its session is known to have read it.
    for approval in &mut seen {
        approval.outcome = None;
    }
    Ok(Json(json!({"total": seen.len(), "approvals": seen})))
}

pub(super) async fn show(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    Query(patience): Query<Patience>,
    headers: HeaderMap,
) -> Result<Json<Approval>, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let wait = patience
        .wait
        .as_deref()
        .map(Span::parse)
        .transpose()
        .map_err(|error| Violation::new(ViolationKind::MalformedRequest, format!("`wait`: {error}")))?;
    let (id, approvals) = (ApprovalId::new(id), doors.plane.approvals());
    let approval = approvals.view(&id, &caller).await?;
    let (Some(wait), false) = (wait, approval.is_settled()) else { return Ok(Json(approval)) };
    let Ok(_place) = WAITS.try_acquire() else { return Ok(Json(approval)) };
    tokio::select! {
        waited = approvals.wait(&id, wait.0.min(LONGEST_WAIT)) => drop(waited?),
        () = doors.stopping.cancelled() => return Ok(Json(approval)),
    }
    Ok(Json(approvals.view(&id, &caller).await?))
}

pub(super) async fn approve(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Approval>, Refused> {
    decide(&doors, id, &headers, Decision::Approve).await
}

pub(super) async fn reject(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Approval>, Refused> {
    let Words { reason } = parsed(&body)?;
    decide(&doors, id, &headers, Decision::Reject { reason }).await
}

async fn decide(
    doors: &Doors,
    id: String,
    headers: &HeaderMap,
    decision: Decision,
) -> Result<Json<Approval>, Refused> {
    let caller = guard::identified(doors, headers).await?;
    let (id, approvals) = (ApprovalId::new(id), doors.plane.approvals());
    // Whoever may not know of it hears the same as about one that does not exist.
    approvals.view(&id, &caller).await?;
    let decided = approvals.decide(&id, decision, &caller).await;
    decided.map(Json).map_err(too_late)
}

pub(super) async fn cancel(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Approval>, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let cancelled = doors.plane.approvals().cancel(&ApprovalId::new(id), &caller).await;
    cancelled.map(|approval| Json(approval.for_requester())).map_err(too_late)
}

/// A call whose approval expired is refused like others; a decision that comes too late has missed what is gone.
fn too_late(violation: Violation) -> Refused {
    match violation.kind {
        ViolationKind::ApprovalExpired => Refused::with_status(violation, StatusCode::GONE),
        _ => violation.into(),
    }
}

pub(super) async fn always(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Standing>), Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let wanted: WantedStanding = parsed(&body)?;
    let new = NewStanding {
        tool: wanted.tool,
        arguments: wanted.arguments,
        tenant: wanted.tenant.map_or_else(|| caller.tenant.clone(), |tenant| tenant.as_str().into()),
        user: wanted.user.as_str().into(),
        until: wanted.until.unwrap_or_else(|| Timestamp::now().plus(STANDING)),
        covers_labels: wanted.covers_labels,
        note: wanted.note,
    };
    let made = doors.plane.approvals().always(new, &caller).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

pub(super) async fn standing(
    State(doors): State<Arc<Doors>>,
    Query(page): Query<StandingPage>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let approvals = doors.plane.approvals();
    if !approvals.is_approver_of(&caller.tenant, &caller) {
        return Err(
            Violation::new(ViolationKind::NotAnApprover, "standing approvals are for approvers").into()
        );
    }
    let tenant = (!guard::is_operator(&caller)).then_some(&caller.tenant);
    let limit = page.limit.unwrap_or(100).min(MOST_LISTED);
    let rows = approvals.standing(tenant, limit).await?;
    Ok(Json(json!({"total": rows.len(), "standing": rows})))
}

pub(super) async fn revoke(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Standing>, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let revoked = doors.plane.approvals().revoke_standing(&id, &caller).await?;
    Ok(Json(revoked))
}

/// Where a client sends its user while a call waits. It tells nothing of the request: whoever looks has shown no
/// credential.
pub(super) async fn page(Path(id): Path<String>) -> Response {
    let plain =
        id.len() <= 80 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":-".contains(&byte));
    if !plain {
        return Refused::not_found("there is no such page").into_response();
    }
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Waiting for approval</title>\n\
         <h1>A call waits for an approver</h1>\n\
         <p>Nothing has run. An approver looks at the request and decides, on the node's machine:</p>\n\
         <pre>aegis approvals show {id}\naegis approvals approve {id}\naegis approvals reject {id} --reason \"…\"</pre>\n\
         <p>Who asked can't approve. You can close this page and let your client wait.</p>\n</html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, page).into_response()
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, Violation> {
    serde_json::from_slice(body)
        .map_err(|error| Violation::new(ViolationKind::MalformedRequest, format!("the body: {error}")))
}
