//! What a person agreed to runs: once, and only if it still is what they agreed to.

use std::{
    fmt::Display,
    sync::Arc,
    time::{Duration, Instant},
};

use aegis_core::{
    Approval, ApprovalState, Door, Gate, GateVerdict, Outcome, Timestamp, Verdict, Violation, ViolationKind,
    approval::ApprovalOutcome, call, event::EventName, record::CallResult,
};
use aegis_stores::audit::LogReader;
use tokio_util::sync::CancellationToken;

use super::{Approvals, decision_record, expired, unusable, void, waiting::Speaker};
use crate::{
    admission::Admission,
    carry_out::{Carried, Done},
    pipeline::{Plane, unrecordable},
    record::Draft,
};

/// The credential of the person at this machine, which is no token and can't be revoked.
const LOCAL_CREDENTIAL: &str = "local";
/// How long an approved call waits for the MCP server whose tool it is.
const SERVERS_READY: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// Between tries while the registry can't be used.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl Plane {
    /// Takes up what an earlier node left: standing approvals come into force, what was agreed to and did not begin
    /// runs, what ended and has no record gets one. Call it once, after [`Plane::settle_interrupted`].
    pub async fn resume_approved(self: &Arc<Self>) -> Result<(), Violation> {
        let approvals = self.approvals();
        approvals.load_standing().await?;
        for approval in approvals.registry.unrecorded_approvals().await.map_err(|error| unusable(&error))? {
            approvals.record_refusal(self, &approval).await;
        }
        let open = approvals.registry.approved_approvals().await.map_err(|error| unusable(&error))?;
        let used = {
            let (path, ids) =
                (self.audit().path().to_owned(), open.iter().map(|row| row.id.clone()).collect());
            let ids: Vec<_> = ids;
            let look = move || LogReader::open(&path)?.used_approvals(&ids);
            tokio::task::spawn_blocking(look)
                .await
                .map_err(|error| Violation::new(ViolationKind::InternalError, error.to_string()))?
                .map_err(|error| unrecordable(&error))?
        };
        for approval in open {
            match used.get(&approval.id) {
                Some(ended) => approvals.reconcile(&approval, ended.as_ref()).await?,
                None => {
                    tracing::info!(approval = %approval.id, tool = %approval.tool, "an approved call runs now");
                    self.note(decision_record(&approval, "approval-resumed", self.audit())).await?;
                    self.work.spawn(Arc::clone(self).run_approved(approval));
                }
            }
        }
        approvals.start_clock(self);
        Ok(())
    }

    /// A node that has just started has its own tools; those of MCP servers come when the servers have said what they
    /// offer, and are closed until the policies have been read with them.
    async fn tool_comes(&self, tool: &str) {
        let until = Instant::now() + SERVERS_READY;
        let unread = || self.catalog().resolve(tool).is_some_and(|tool| !self.policy().knows(&tool.name));
        while Instant::now() < until && (self.catalog().awaits(tool) || unread()) {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Runs what a person agreed to. Nobody waits for it here; whoever asked finds the result under the approval.
    pub(crate) async fn run_approved(self: Arc<Self>, approved: Approval) {
        self.tool_comes(&approved.tool).await;
        let _in_flight = self.meters().enter();
        let approvals = self.approvals();
        let mut pauses = Pauses::default();
        let (slot, approval) = loop {
            let Ok(slot) = self.slots.acquire().await else { return };
            // The arguments come into memory when it is their turn.
            let error = match approvals.registry.whole_approval(&approved.id).await {
                Ok(Some(approval)) if approval.state == ApprovalState::Approved => break (slot, approval),
                Ok(_) => return,
                Err(error) => error,
            };
            // What can't be read does not keep others from running.
            drop(slot);
            if Timestamp::now() >= approved.expires {
                let violation = expired(&approved);
                return approvals.end_unrun(&self, &approved, ApprovalState::Expired, violation).await;
            }
            if !approvals.may_try_again(&approved, &error, &mut pauses).await {
                return;
            }
        };
        let admission = match approvals.recheck(&self, &approval).await {
            Ok(admission) => admission,
            Err(violation) => {
                let to = match violation.kind {
                    ViolationKind::ApprovalExpired => ApprovalState::Expired,
                    _ => ApprovalState::Cancelled,
                };
                drop(slot);
                return approvals.end_unrun(&self, &approval, to, violation).await;
            }
        };
        let draft = Draft::approved(&admission, &approval, self.audit(), self.spans());
        let speaker = Speaker { waiting: &approvals.waiting, id: &approval.id };
        let carried = self.carry_out(admission, draft, CancellationToken::new(), &speaker, None).await;
        drop(slot);
        match carried {
            Carried::Ended(result, _) => approvals.executed(&approval, *result).await,
            Carried::Stopped(stopped) => {
                let violation = still_refused(&stopped.violation);
                approvals.end_unrun(&self, &approval, ApprovalState::Cancelled, violation).await;
            }
            // Somebody else runs it, or has.
            Carried::Spent => {
                tracing::warn!(approval = %approval.id, "an approval that is used up was not used again");
            }
        }
    }
}

impl Approvals {
    /// Everything again: who, what, by which rules, after reading what. Any difference, and the person agreed to
    /// something else.
    async fn recheck(&self, plane: &Plane, approval: &Approval) -> Result<Admission, Violation> {
        if Timestamp::now() >= approval.expires {
            return Err(expired(approval));
        }
        self.check_credential(approval).await?;
        let tool = plane
            .catalog()
            .resolve(&approval.tool)
            .filter(|tool| tool.name == approval.tool)
            .ok_or_else(|| void("the tool is no longer there"))?;
        let mut arguments = approval.arguments.clone();
        plane.arguments().check(&tool, &mut arguments).map_err(|violation| still_refused(&violation))?;
        if arguments != approval.arguments || call::digest(&arguments) != approval.arguments_sha256 {
            return Err(void("the arguments are not those that were approved"));
        }
        let decision = self.policy.decide(&approval.caller, &tool, &arguments);
        let granted = match (decision.granted, decision.verdict.verdict.clone()) {
            (Some(granted), _) => granted,
            (None, Verdict::Deny(violation)) => return Err(still_refused(&violation)),
            (None, Verdict::Pass { .. }) => return Err(void("policy granted nothing")),
        };
        if decision.version != approval.policy_version {
            return Err(void("the rules have changed since it was asked"));
        }
        if decision.labels != approval.labels {
            return Err(void("the session has read other content since it was asked"));
        }
        let by = approval.decided_by.as_ref().map_or("", |by| by.user.as_str());
        let verdicts = vec![
            GateVerdict::pass(Gate::Identity).by(approval.caller.credential.as_str()),
            GateVerdict::pass(Gate::Catalog),
            GateVerdict::pass(Gate::Arguments),
            decision.verdict,
            GateVerdict::pass(Gate::Approval).by(format!("{} by {by}", approval.id)),
        ];
        Ok(Admission {
            call: approval.call,
            caller: approval.caller.clone(),
            tool,
            asked_as: approval.asked_as.clone(),
            arguments,
            verdicts,
            granted,
            asks: Vec::new(),
            labels: decision.labels,
            version: decision.version,
            decided: Instant::now(),
        })
    }

    /// Whether the requester could still make the call.
    async fn check_credential(&self, approval: &Approval) -> Result<(), Violation> {
        let caller = &approval.caller;
        if caller.door == Door::Seal {
            let (sessions, session) = (Arc::clone(&self.sessions), caller.session.clone());
            // It looks into the store.
            let live = tokio::task::spawn_blocking(move || session.is_some_and(|id| sessions.is_live(&id)));
            return match live.await.unwrap_or(false) {
                true => Ok(()),
                false => Err(void("the session that asked has ended")),
            };
        }
        if caller.credential.as_str() == LOCAL_CREDENTIAL {
            return Ok(());
        }
        let token = self.registry.token(&caller.credential).await.map_err(|error| unusable(&error))?;
        match token {
            None => Err(void("the credential that asked is not known")),
            Some(token) if token.revoked.is_some() => Err(void("the credential that asked was revoked")),
            Some(token) if token.expires.is_some_and(|expires| expires <= Timestamp::now()) => {
                Err(void("the credential that asked has expired"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Keeps what an approved call answered.
    async fn executed(&self, approval: &Approval, result: Result<Done, Violation>) {
        let (state, outcome) = match result {
            Ok(Done { outcome, .. }) => {
                let failure = outcome.failure.map(|kind| kind.as_str().to_owned());
                let state = if failure.is_none() { ApprovalState::Executed } else { ApprovalState::Failed };
                let Outcome { value, structured, label, passed, .. } = outcome;
                (state, ApprovalOutcome::Ran { value, structured, failure, label, passed })
            }
            Err(violation) => (ApprovalState::Failed, ApprovalOutcome::Refused { violation }),
        };
        let mut pauses = Pauses::default();
        while let Err(error) = self.settled(approval, state, outcome.clone()).await {
            if !self.may_try_again(approval, &error, &mut pauses).await {
                return;
            }
        }
    }

    /// Pauses after an error of the registry; false when the node stops, whose next start takes the request up. An
    /// approved request is not left alone before that: while it stands, the same call asks nobody and waits for it.
    pub(super) async fn may_try_again(
        &self,
        approval: &Approval,
        error: &impl Display,
        pauses: &mut Pauses,
    ) -> bool {
        let pause = pauses.next(approval.expires);
        tracing::error!(%error, approval = %approval.id, "an approved call has to wait for the registry");
        tokio::select! {
            () = tokio::time::sleep(pause) => true,
            () = self.stopping.cancelled() => false,
        }
    }

    /// Brings a row up to what the audit log knows: it was used up, and the node died before the row said so.
    async fn reconcile(&self, approval: &Approval, ended: Option<&CallResult>) -> Result<(), Violation> {
        let lost = |message: String| {
            Violation::new(ViolationKind::InternalError, message)
                .hint("its record in the audit log has the rest")
        };
        let (state, violation) = match ended {
            Some(CallResult::Done { .. }) => (
                ApprovalState::Executed,
                lost("it ran; the answer was lost when the node stopped".into()),
            ),
            Some(CallResult::Failed { kind, message }) => {
                (ApprovalState::Failed, lost(format!("it ran and failed ({kind}): {message}")))
            }
            Some(CallResult::Refused { message, .. }) => (
                ApprovalState::Cancelled,
                Violation::new(ViolationKind::ApprovalVoid, message.clone()),
            ),
            Some(CallResult::Unknown) | None => (
                ApprovalState::Failed,
                lost("unknown: the node stopped while it ran; it may have taken effect, and does not run again".into()),
            ),
        };
        self.settled(approval, state, ApprovalOutcome::Refused { violation }).await
    }

    async fn settled(
        &self,
        approval: &Approval,
        state: ApprovalState,
        outcome: ApprovalOutcome,
    ) -> Result<(), Violation> {
        self.registry
            .end_approval(&approval.id, ApprovalState::Approved, state, outcome, true)
            .await
            .map_err(|error| unusable(&error))?;
        self.waiting.ring(&approval.id);
        self.announce(&Approval { state, ..approval.clone() }, EventName::ApprovalEnded);
        Ok(())
    }
}

/// Longer and longer ones, of which none goes over the time at which something is to be decided.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    count: u32,
}

impl Pauses {
    fn next(&mut self, until: Timestamp) -> Duration {
        let pause = LONGEST_PAUSE.min(FIRST_PAUSE * 2_u32.saturating_pow(self.count));
        self.count = self.count.saturating_add(1);
        match until.millis().saturating_sub(Timestamp::now().millis()) {
            0 => pause,
            left => pause.min(Duration::from_millis(left)),
        }
    }
}

fn still_refused(violation: &Violation) -> Violation {
    let void = void(&format!("it is refused now: {}", violation.message));
    match &violation.rule {
        Some(rule) => void.rule(rule.clone()),
        None => void,
    }
}
