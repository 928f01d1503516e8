//! Calls that wait for a person. An approval is a capability for one exact call: bound to its caller, tool and
//! arguments, to the rules and to what the session had read, and used up in the transaction that writes its intent.

mod clock;
mod ending;
mod park;
mod resume;
mod rights;
mod standing;
mod waiting;
mod words;

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

pub use aegis_core::approval::{
    Approval, ApprovalOutcome, ApprovalState, Ask, Asker, PastDecision, Preview, Standing,
};
use aegis_core::{
    Caller, Event, Outcome, Tier, Timestamp, Violation, ViolationKind,
    approval::{Pending, Previews},
    config::ApprovalsConfig,
    event::EventName,
    failure::FailureKind,
    id::{ApprovalId, SessionId},
    record::NodeRecord,
    redact,
};
use aegis_gates::{PolicyGate, approval::ApprovalGate, identity::seal::SealGate};
pub use aegis_stores::registry::{ApprovalFilter, ApprovalPage};
use aegis_stores::{
    AuditLog, Registry,
    registry::{Decided, DecisionRow},
};
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    carry_out::Done,
    pipeline::{Parts, Plane},
    record,
};

pub use self::{
    standing::{Covered, NewStanding, covers},
    words::not_found,
};
use self::{
    waiting::Waiting,
    words::{checked_reason, decided_otherwise, expired, rejected, unusable, void},
};

/// Reasons and notes, in characters.
const LONGEST_REASON: usize = 500;
/// Past decisions shown beside a request.
const SIMILAR: usize = 5;

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Approve,
    /// The model receives the reason.
    Reject {
        reason: String,
    },
}

/// Whether the signed session that a call came by is still good.
pub trait Sessions: Send + Sync + std::fmt::Debug {
    fn is_live(&self, session: &SessionId) -> bool;
}

/// No session is live: for a node without signed sessions.
#[derive(Debug)]
pub struct NoSessions;

impl Sessions for NoSessions {
    fn is_live(&self, _: &SessionId) -> bool {
        false
    }
}

impl Sessions for SealGate {
    fn is_live(&self, session: &SessionId) -> bool {
        SealGate::is_live(self, session)
    }
}

/// Shows nothing: for a node whose tools change no files.
#[derive(Debug)]
pub struct NoPreviews;

impl Previews for NoPreviews {
    fn preview<'a>(
        &'a self,
        _: &'a Caller,
        _: &'a aegis_core::Grant,
        _: &'a aegis_core::ToolSpec,
        _: &'a Map<String, Value>,
    ) -> Pending<'a, Option<Preview>> {
        Box::pin(std::future::ready(None))
    }
}

/// Requests for approval: asking, deciding, waiting, looking.
#[derive(Debug)]
pub struct Approvals {
    plane: Weak<Plane>,
    registry: Registry,
    policy: Arc<PolicyGate>,
    gate: ApprovalGate,
    standing_turn: tokio::sync::Mutex<()>,
    sessions: Arc<dyn Sessions>,
    previews: Arc<dyn Previews>,
    config: ApprovalsConfig,
    waiting: Waiting,
    /// Tells the clock that something runs out of time before it would have looked.
    earlier: Arc<Notify>,
    clock_sleeps_until: Arc<AtomicU64>,
    stopping: CancellationToken,
}

impl Approvals {
    pub(crate) fn new(plane: Weak<Plane>, parts: &Parts) -> Self {
        Self {
            plane,
            registry: parts.registry.clone(),
            policy: Arc::clone(&parts.policy),
            gate: ApprovalGate::default(),
            standing_turn: tokio::sync::Mutex::default(),
            sessions: Arc::clone(&parts.sessions),
            previews: Arc::clone(&parts.previews),
            config: parts.approvals.clone(),
            waiting: Waiting::default(),
            earlier: Arc::new(Notify::new()),
            clock_sleeps_until: Arc::new(AtomicU64::new(u64::MAX)),
            stopping: CancellationToken::new(),
        }
    }

    /// The newest first, in summaries. Doors narrow the filter to what the caller may see.
    pub async fn list(&self, filter: &ApprovalFilter) -> Result<ApprovalPage, Violation> {
        self.registry.list_approvals(filter).await.map_err(|error| unusable(&error))
    }

    /// Everything there is to know of a request, whoever asks.
    pub async fn show(&self, id: &ApprovalId) -> Result<Option<Approval>, Violation> {
        let found = self.registry.whole_approval(id).await.map_err(|error| unusable(&error))?;
        match found {
            None => Ok(None),
            Some(mut approval) => {
                approval.similar = self
                    .registry
                    .past_decisions(&approval, SIMILAR)
                    .await
                    .map_err(|error| unusable(&error))?;
                Ok(Some(approval))
            }
        }
    }

    /// Whether this caller may know of the request: it asked, or it is an approver of the tenant.
    pub async fn knows(&self, id: &ApprovalId, caller: &Caller) -> Result<bool, Violation> {
        let found = self.registry.find_approval(id).await.map_err(|error| unusable(&error))?;
        Ok(found.is_some_and(|approval| {
            approval.is_of(caller) || self.is_approver_of(&approval.caller.tenant, caller)
        }))
    }

    /// A request as this caller may see it: approvers of its tenant see everything, the requester what it asked and
    /// what came of it (which thereby counts as read by its session), nobody else that it exists.
    pub async fn view(&self, id: &ApprovalId, caller: &Caller) -> Result<Approval, Violation> {
        let Some(approval) = self.show(id).await? else { return Err(not_found(id)) };
        if approval.is_of(caller) {
            if approval.is_settled() {
                self.deliver(&approval, caller).await?;
            }
            return Ok(approval.for_requester());
        }
        if !self.is_approver_of(&approval.caller.tenant, caller) {
            return Err(not_found(id));
        }
        // An agent that looks at a result has read it. An operator is no agent, and has nobody to ask.
        if caller.tier != Tier::Operator
            && let Some(ApprovalOutcome::Ran { label, .. }) = &approval.outcome
        {
            self.policy.observe(caller, label).await.map_err(|error| unusable(&error))?;
        }
        Ok(approval)
    }

    /// The result of a call that waited, as the call itself would have answered; `None` while it is open. For the
    /// requester alone, as often as wanted while it is kept.
    pub async fn collect(&self, id: &ApprovalId, requester: &Caller) -> Result<Option<Done>, Violation> {
        let found = self.registry.find_approval(id).await.map_err(|error| unusable(&error))?;
        let Some(approval) = found.filter(|approval| approval.is_of(requester)) else {
            return Err(not_found(id));
        };
        if !approval.is_settled() {
            return Ok(None);
        }
        self.deliver(&approval, requester).await?;
        result_of(approval).map(Some)
    }

    /// Notes that the requester has the outcome, and what its session has thereby read.
    async fn deliver(&self, approval: &Approval, requester: &Caller) -> Result<(), Violation> {
        if let Some(ApprovalOutcome::Ran { label, .. }) = &approval.outcome {
            self.policy.observe(requester, label).await.map_err(|error| unusable(&error))?;
        }
        if !approval.delivered {
            self.registry.mark_approval_delivered(&approval.id).await.map_err(|error| unusable(&error))?;
        }
        Ok(())
    }

    /// Decides a request. The same decision again is the same answer; another one is refused. What was approved runs
    /// here, at once, whoever waits for it.
    pub async fn decide(
        &self,
        id: &ApprovalId,
        decision: Decision,
        approver: &Caller,
    ) -> Result<Approval, Violation> {
        let plane = self.plane()?;
        let found = self.registry.find_approval(id).await.map_err(|error| unusable(&error))?;
        let Some(approval) = found else { return Err(not_found(id)) };
        self.may_decide(&approval, approver)?;
        let (reason, outcome) = match decision {
            Decision::Approve => (None, None),
            Decision::Reject { reason } => {
                let reason = checked_reason(&reason)?;
                let violation = rejected(approver, &reason);
                (Some(reason), Some(ApprovalOutcome::Refused { violation }))
            }
        };
        let approve = outcome.is_none();
        let row = DecisionRow { id: id.clone(), approve, by: approver.clone(), reason, outcome };
        // Nobody may leave half-way: the approver's connection may go at any moment, and what was approved must run.
        let deciding = {
            let plane = Arc::clone(&plane);
            async move { plane.approvals().take_decision(&plane, row).await }
        };
        plane
            .work
            .spawn(deciding)
            .await
            .unwrap_or_else(|error| Err(Violation::new(ViolationKind::InternalError, error.to_string())))
    }

    async fn take_decision(&self, plane: &Arc<Plane>, row: DecisionRow) -> Result<Approval, Violation> {
        let id = row.id.clone();
        let approval = match self.registry.decide_approval(row).await.map_err(|error| unusable(&error))? {
            Decided::Now(approval) => *approval,
            Decided::Already(approval) => return Ok(*approval),
            Decided::Otherwise(approval) => return Err(decided_otherwise(&approval)),
            Decided::Late(approval) => return Err(expired(&approval)),
            Decided::Unknown => return Err(not_found(&id)),
        };
        self.decided(plane, approval).await
    }

    /// Records a decision and lets it take effect.
    async fn decided(&self, plane: &Arc<Plane>, approval: Approval) -> Result<Approval, Violation> {
        let noted = plane.note(decision_record(&approval, "approval-decided", plane.audit())).await;
        self.announce(&approval, EventName::ApprovalDecided);
        if approval.state == ApprovalState::Rejected {
            if approval.runs {
                self.record_refusal(plane, &approval).await;
            }
            self.waiting.ring(&approval.id);
            self.announce(&approval, EventName::ApprovalEnded);
            return noted.map(|()| approval);
        }
        if let Err(violation) = noted {
            // What nobody can be shown to have agreed to does not run.
            let void = void("the decision could not be recorded").hint(violation.message.clone());
            self.end_unrun(plane, &approval, ApprovalState::Cancelled, void).await;
            return Err(violation);
        }
        if approval.runs {
            plane.work.spawn(Arc::clone(plane).run_approved(approval.clone()));
        } else {
            self.waiting.ring(&approval.id);
            self.announce(&approval, EventName::ApprovalEnded);
        }
        Ok(approval)
    }

    /// Takes a request back, while nobody has decided.
    pub async fn cancel(&self, id: &ApprovalId, requester: &Caller) -> Result<Approval, Violation> {
        let plane = self.plane()?;
        let found = self.registry.find_approval(id).await.map_err(|error| unusable(&error))?;
        let Some(approval) = found.filter(|approval| approval.is_of(requester)) else {
            return Err(not_found(id));
        };
        let taken_back = void("the requester took it back");
        let ended = {
            let (approval, plane) = (approval.clone(), Arc::clone(&plane));
            async move {
                plane.approvals().end_pending(&plane, &approval, ApprovalState::Cancelled, taken_back).await
            }
        };
        let ended = plane.work.spawn(ended).await;
        let now =
            self.registry.find_approval(id).await.map_err(|error| unusable(&error))?.unwrap_or(approval);
        // Whoever asks and takes back leaves rows; the clock sees to their room.
        self.earlier.notify_one();
        match ended {
            Ok(Ok(_)) if now.state == ApprovalState::Cancelled => Ok(now),
            Ok(Ok(_)) => Err(decided_otherwise(&now)),
            Ok(Err(violation)) => Err(violation),
            Err(error) => Err(Violation::new(ViolationKind::InternalError, error.to_string())),
        }
    }

    pub(crate) fn gate(&self) -> &ApprovalGate {
        &self.gate
    }

    fn plane(&self) -> Result<Arc<Plane>, Violation> {
        self.plane
            .upgrade()
            .ok_or_else(|| Violation::new(ViolationKind::ShuttingDown, "the node is stopping"))
    }

    fn announce(&self, approval: &Approval, name: EventName) {
        if let Some(plane) = self.plane.upgrade() {
            let event = Event::new(name)
                .with("approval", approval.id.as_str())
                .with("intent", approval.intent.as_str())
                .with("state", approval.state.as_str())
                .with("user", approval.caller.user.as_str())
                .with("expires", approval.expires.to_string());
            plane.bus().announce(&approval.caller.tenant, approval.call, &approval.tool, event);
        }
    }

    /// Lets the clock look again if this runs out of time before it meant to.
    fn mind(&self, expires: Timestamp) {
        if expires.millis() < self.clock_sleeps_until.load(Ordering::Acquire) {
            self.earlier.notify_one();
        }
    }
}

/// What is recorded of a decision: who, about what, exactly.
fn decision_record(approval: &Approval, action: &str, audit: &AuditLog) -> NodeRecord {
    let digest = record::told_digest(approval, &redact::arguments(&approval.arguments), audit);
    let mut detail = Map::new();
    for (name, value) in [
        ("approval", approval.id.as_str()),
        ("intent", approval.intent.as_str()),
        ("state", approval.state.as_str()),
        ("tool", approval.tool.as_str()),
        ("arguments_sha256", digest.as_str()),
        ("requester", approval.caller.user.as_str()),
        ("requester_credential", approval.caller.credential.as_str()),
    ] {
        detail.insert(name.into(), value.into());
    }
    detail.insert("call".into(), approval.call.to_string().into());
    if let Some(reason) = &approval.reason {
        detail.insert("reason".into(), reason.as_str().into());
    }
    NodeRecord {
        time: Timestamp::now(),
        action: action.to_owned(),
        caller: approval.decided_by.clone(),
        detail,
    }
}

/// What the call itself would have answered.
fn result_of(approval: Approval) -> Result<Done, Violation> {
    let id = approval.id.clone();
    match approval.outcome {
        Some(ApprovalOutcome::Ran { value, structured, failure, label, passed }) => Ok(Done {
            json: value.to_string(),
            outcome: Outcome {
                value,
                structured,
                failure: failure
                    .and_then(|name| FailureKind::ALL.iter().copied().find(|kind| kind.as_str() == name)),
                label,
                events: Vec::new(),
                passed,
            },
            pending: None,
        }),
        Some(ApprovalOutcome::Refused { violation }) => Err(violation),
        // Only a question without a call ends without an outcome.
        None => Ok(Done::plain(serde_json::json!({
            "approvalRequestId": approval.id,
            "intentId": approval.intent,
            "state": approval.state,
        }))),
    }
    .map_err(|violation: Violation| match violation.rule {
        Some(_) => violation,
        None => violation.rule(id.as_str()),
    })
}
