//! `/v1/approvals`: what waits for a person. Approvers see everything that bears on a decision; a requester sees its own
//! requests and what came of them.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Approval, ApprovalState, Caller, Timestamp, Violation, ViolationKind,
    approval::{ApprovalOutcome, Standing},
    id::ApprovalId,
    quantity::Span,
};
use aegis_plane::approvals::{self, ApprovalFilter, Covered, Decision, NewStanding};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::tools;
use crate::{
    Doors,
    guard::{self, Refused},
    words::Words,
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
    after: Option<ApprovalId>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Patience {
    wait: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StandingPage {
    /// Those that are over or revoked, too.
    #[serde(default)]
    all: bool,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Objection {
    /// The model that asked receives it.
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedStanding {
    tool: String,
    arguments: Option<Map<String, Value>>,
    #[serde(default)]
    only_named: bool,
    #[serde(default)]
    any_arguments: bool,
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
    // Only its form is looked at: whether there is such a request is not for everybody to know.
    if page.after.as_ref().is_some_and(|after| !is_request(after)) {
        let wrong = "`after` must be the `next` of the page before; leave it out to begin anew";
        return Err(Violation::new(ViolationKind::MalformedRequest, wrong).into());
    }
    let approvals = doors.plane.approvals();
    let approver = approvals.is_approver_of(&caller.tenant, &caller);
    let filter = ApprovalFilter {
        state,
        tenant: (!guard::is_operator(&caller)).then(|| caller.tenant.clone()),
        of: (!approver).then(|| caller.clone()),
        limit: page.limit.unwrap_or(100).clamp(1, MOST_LISTED),
        after: page.after,
    };
    // Results and whole arguments are read where one request is shown: a session is then known to have read them.
    let page = approvals.list(&filter).await?;
    let mut answer = json!({"total": page.approvals.len(), "approvals": page.approvals});
    if let Some(next) = page.next {
        answer["next"] = next.as_str().into();
    }
    Ok(Json(answer))
}

fn is_request(id: &ApprovalId) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'-' | b'0'..=b'9' | b'a'..=b'f');
    let uuid = id.as_str().strip_prefix("approval:");
    uuid.is_some_and(|uuid| uuid.len() == 36 && uuid.bytes().all(is_digit))
}

pub(super) async fn show(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    Query(patience): Query<Patience>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let wait = patience.parsed()?;
    let id = ApprovalId::new(id);
    let approval = doors.plane.approvals().view(&id, &caller).await?;
    let (Some(wait), false) = (wait, approval.is_settled()) else {
        return Ok(Json(approval).into_response());
    };
    let wait = wait.0.min(LONGEST_WAIT);
    if !tools::takes_events(&headers) {
        return Ok(held(&doors, &id, &caller, wait, None).await.into_response());
    }
    let words = Arc::<Words>::default();
    let held = {
        let words = Arc::clone(&words);
        Box::pin(async move { held(&doors, &id, &caller, wait, Some(&words)).await.into_response() })
    };
    Ok(tools::narrated(held, words).await)
}

/// Holds the answer back until the request has ended; who asked may hear meanwhile what the call says.
async fn held(
    doors: &Doors,
    id: &ApprovalId,
    caller: &Caller,
    wait: Duration,
    words: Option<&Words>,
) -> Result<Json<Approval>, Refused> {
    let approvals = doors.plane.approvals();
    if let Ok(_place) = WAITS.try_acquire() {
        let waited = async {
            match words {
                Some(words) => approvals.follow(id, wait, caller, words).await,
                None => approvals.wait(id, wait).await,
            }
        };
        tokio::select! {
            waited = waited => drop(waited?),
            () = doors.stopping.cancelled() => {}
        }
    }
    Ok(Json(approvals.view(id, caller).await?))
}

pub(super) async fn approve(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    Query(patience): Query<Patience>,
    headers: HeaderMap,
) -> Result<Json<Approval>, Refused> {
    let wait = patience.parsed()?;
    let Json(decided) = decide(&doors, id, &headers, Decision::Approve).await?;
    let approval = match (wait, WAITS.try_acquire()) {
        (Some(wait), Ok(_place)) if !decided.is_settled() => {
            let waited = doors.plane.approvals().wait(&decided.id, wait.0.min(LONGEST_WAIT));
            tokio::select! {
                waited = waited => waited.unwrap_or(decided),
                () = doors.stopping.cancelled() => decided,
            }
        }
        _ => decided,
    };
    Ok(Json(without_answer(approval)))
}

/// An approver hears how a call ended. What it answered is for whoever asked, and for an approver who looks.
fn without_answer(mut approval: Approval) -> Approval {
    if let Some(ApprovalOutcome::Ran { .. }) = approval.outcome {
        approval.outcome = None;
    }
    approval
}

pub(super) async fn reject(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Approval>, Refused> {
    let Objection { reason } = parsed(&body)?;
    decide(&doors, id, &headers, Decision::Reject { reason }).await
}

impl Patience {
    fn parsed(&self) -> Result<Option<Span>, Violation> {
        let wait = self.wait.as_deref().map(Span::parse).transpose();
        wait.map_err(|error| Violation::new(ViolationKind::MalformedRequest, format!("`wait`: {error}")))
    }
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
    if !approvals.knows(&id, &caller).await? {
        return Err(approvals::not_found(&id).into());
    }
    let decided = approvals.decide(&id, decision, &caller).await;
    decided.map(|approval| Json(without_answer(approval))).map_err(too_late)
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
) -> Result<(StatusCode, Json<Shown>), Refused> {
    let caller = guard::identified(&doors, &headers).await?;
    let wanted: WantedStanding = parsed(&body)?;
    let arguments = match (wanted.arguments, wanted.only_named, wanted.any_arguments) {
        (Some(named), true, false) => Covered::Only(named),
        (Some(named), false, false) => Covered::Like(named),
        (None, false, true) => Covered::Any,
        _ => return Err(unsaid().into()),
    };
    let new = NewStanding {
        tool: wanted.tool,
        arguments,
        tenant: wanted.tenant.map_or_else(|| caller.tenant.clone(), |tenant| tenant.as_str().into()),
        user: wanted.user.as_str().into(),
        until: wanted.until.unwrap_or_else(|| Timestamp::now().plus(STANDING)),
        covers_labels: wanted.covers_labels,
        note: wanted.note,
    };
    let made = doors.plane.approvals().always(new, &caller).await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

fn unsaid() -> Violation {
    Violation::new(
        ViolationKind::MalformedRequest,
        "a standing approval says which arguments it is for: `arguments` with a pattern, or `any_arguments: true`",
    )
    .hint("`only_named: true` beside a pattern lets no arguments through that it does not name")
}

/// A standing approval, with what it covers in words.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    #[serde(flatten)]
    standing: Standing,
    covers: String,
}

impl From<Standing> for Shown {
    fn from(standing: Standing) -> Self {
        Self { covers: approvals::covers(&standing), standing }
    }
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
    let rows = approvals.standing(tenant, page.all, limit).await?;
    let rows: Vec<Shown> = rows.into_iter().map(Shown::from).collect();
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
        let unknown = Violation::new(ViolationKind::UnknownName, "there is no such page");
        return Refused::from(unknown).into_response();
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
