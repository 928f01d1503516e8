use std::{sync::Arc, time::Instant};

use aegis_core::{
    Call, Caller, Event, Gate, GateVerdict, Timestamp, ToolSpec, Verdict, Violation, ViolationKind,
    approval::Previews,
    config::{ApprovalsConfig, AuditConfig, LimitsConfig, ReadDurability},
    event::EventName,
    id::CallId,
    progress::{Listener, Silence},
    redact,
    tool::Directory,
    trace::Spans,
};
use aegis_gates::{ArgumentsGate, PolicyGate, approval};
use aegis_routes::Catalog;
use aegis_stores::{Registry, audit::AuditLog};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::Admission,
    approvals::{Approvals, Sessions},
    bus::Bus,
    carry_out::{Answer, Carried, Done, Stopped},
    meters::Meters,
    record::{self, Draft},
    settle::Drain,
    unstoppable::Unstoppable,
};

/// What a plane is made of. Nothing is optional: a forgotten part does not compile.
#[derive(Debug)]
pub struct Parts {
    pub catalog: Arc<Catalog>,
    pub policy: Arc<PolicyGate>,
    pub audit: AuditLog,
    pub bus: Bus,
    pub limits: LimitsConfig,
    pub audit_config: AuditConfig,
    /// Where calls that wait for a person are kept.
    pub registry: Registry,
    pub approvals: ApprovalsConfig,
    /// Whether the signed session of a call that was approved still lives.
    pub sessions: Arc<dyn Sessions>,
    /// Shows an approver what a call would do.
    pub previews: Arc<dyn Previews>,
    /// Who traces calls.
    pub spans: Arc<dyn Spans>,
}

#[derive(Debug)]
pub struct Plane {
    catalog: Arc<Catalog>,
    arguments: ArgumentsGate,
    policy: Arc<PolicyGate>,
    audit: AuditLog,
    bus: Bus,
    meters: Meters,
    approvals: Approvals,
    spans: Arc<dyn Spans>,
    pub(crate) limits: LimitsConfig,
    pub(crate) durable_reads: bool,
    pub(crate) slots: Semaphore,
    /// Calls in work; a stopping node waits for them.
    pub(crate) work: TaskTracker,
    pub(crate) drain: Drain,
}

/// What a caller gets back: an outcome (of a tool that did or could not do its work), or why there is none.
#[derive(Debug)]
pub struct Reply {
    pub call: CallId,
    pub result: Result<Done, Violation>,
}

impl Plane {
    pub fn new(parts: Parts) -> Arc<Self> {
        let own = parts.catalog.specs();
        let specs = || own.iter().map(AsRef::as_ref);
        let (arguments, meters) = (ArgumentsGate::new(specs()), Meters::new(specs()));
        Arc::new_cyclic(|plane| Self {
            arguments,
            meters,
            slots: Semaphore::new(parts.limits.max_concurrent_calls as usize),
            durable_reads: parts.audit_config.reads == ReadDurability::Durable,
            approvals: Approvals::new(plane.clone(), &parts),
            catalog: parts.catalog,
            policy: parts.policy,
            audit: parts.audit,
            bus: parts.bus,
            spans: parts.spans,
            limits: parts.limits,
            work: TaskTracker::new(),
            drain: Drain::default(),
        })
    }

    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub fn policy(&self) -> &PolicyGate {
        &self.policy
    }

    pub fn audit(&self) -> &AuditLog {
        &self.audit
    }

    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Calls that wait, or waited, for a person.
    pub fn approvals(&self) -> &Approvals {
        &self.approvals
    }

    pub(crate) fn spans(&self) -> &Arc<dyn Spans> {
        &self.spans
    }

    pub(crate) fn arguments(&self) -> &ArgumentsGate {
        &self.arguments
    }

    /// Takes a call from a door to its answer. The call goes on, and is recorded, when the caller stops waiting;
    /// `cancel` is how a door says that nobody waits any more.
    pub async fn call(self: &Arc<Self>, caller: Caller, call: Call, cancel: CancellationToken) -> Reply {
        self.call_heard(caller, call, cancel, Arc::new(Silence)).await
    }

    /// As [`Plane::call`], with somebody who hears of the call while it runs.
    pub async fn call_heard(
        self: &Arc<Self>,
        caller: Caller,
        call: Call,
        cancel: CancellationToken,
        listener: Arc<dyn Listener>,
    ) -> Reply {
        let id = call.id;
        let (answer, answered) = oneshot::channel();
        let plane = Arc::clone(self);
        let in_work = self.work.token();
        let life = Box::pin(async move {
            let _in_work = in_work;
            plane.live(caller, call, cancel, &*listener, answer).await;
        });
        let result = Unstoppable::new(life, answered).await;
        Reply { call: id, result }
    }

    /// The life of a call.
    async fn live(
        &self,
        caller: Caller,
        mut call: Call,
        cancel: CancellationToken,
        listener: &dyn Listener,
        answer: Answer,
    ) {
        let _in_flight = self.meters.enter();
        let mut draft = Draft::new(&caller, &call, &self.audit, &self.spans);
        let arguments = std::mem::take(&mut call.arguments);
        let Ok(_slot) = self.slots.try_acquire() else {
            draft.asked(&arguments);
            if let Some(tool) = self.catalog.resolve(&call.tool) {
                draft.tool(&tool.name, asked_as(&call, &tool));
            }
            let busy = Violation::new(
                ViolationKind::Overloaded,
                format!("{} calls are in work, which is the node's limit", self.limits.max_concurrent_calls),
            )
            .rule("spec.limits.max_concurrent_calls")
            .hint("try again shortly")
            .retry_after(1);
            return self.refuse(draft, busy, answer).await;
        };
        match self.admit(caller, &call, arguments, &mut draft) {
            Ok(admission) if admission.asks.is_empty() => {
                self.perform(admission, draft, cancel, listener, answer).await;
            }
            Ok(admission) => Box::pin(self.park(admission, draft, answer)).await,
            Err(violation) => self.refuse(draft, violation, answer).await,
        }
    }

    /// The gates, in order. Nothing takes effect here.
    fn admit(
        &self,
        caller: Caller,
        call: &Call,
        mut arguments: Map<String, Value>,
        draft: &mut Draft,
    ) -> Result<Admission, Violation> {
        let mut verdicts = vec![GateVerdict::pass(Gate::Identity).by(caller.credential.as_str())];
        let deny = |draft: &mut Draft, mut verdicts: Vec<GateVerdict>, gate, violation: Violation| {
            verdicts.push(GateVerdict::deny(gate, violation.clone()));
            draft.verdicts(verdicts);
            violation
        };
        let Some(tool) = self.catalog.resolve(&call.tool) else {
            draft.asked(&arguments);
            return Err(deny(draft, verdicts, Gate::Catalog, self.no_such_tool(&caller, &call.tool)));
        };
        verdicts.push(GateVerdict::pass(Gate::Catalog));
        draft.passed(Gate::Catalog, &self.meters);
        self.meters.know(&tool);
        let asked_as = asked_as(call, &tool);
        draft.tool(&tool.name, asked_as.clone());

        // A caller that may not use a tool at all learns nothing about its arguments.
        if !self.policy.sees(&caller, &tool) {
            draft.asked(&arguments);
            let decision = self.policy.decide(&caller, &tool, &arguments);
            verdicts.push(decision.verdict.clone());
            draft.verdicts(verdicts);
            return Err(objection(decision.verdict));
        }
        if let Err(violation) = self.arguments.check(&tool, &mut arguments) {
            draft.asked(&arguments);
            return Err(deny(draft, verdicts, Gate::Arguments, violation));
        }
        verdicts.push(GateVerdict::pass(Gate::Arguments));
        draft.passed(Gate::Arguments, &self.meters);

        let decision = self.policy.decide(&caller, &tool, &arguments);
        draft.passed(Gate::Policy, &self.meters);
        verdicts.push(decision.verdict.clone());
        let Some(mut granted) = decision.granted else {
            draft.asked(&arguments);
            draft.verdicts(verdicts);
            return Err(objection(decision.verdict));
        };
        let reasons =
            approval::reasons(&tool, &arguments, granted.approval, &granted.grant.rule, decision.asks);
        let asks = match self.approvals.gate().decide(&caller, &tool, &arguments, reasons, Timestamp::now()) {
            approval::Answer::NotAsked => {
                verdicts.push(GateVerdict::pass(Gate::Approval));
                Vec::new()
            }
            approval::Answer::Settled(standing) => {
                verdicts.push(GateVerdict::pass(Gate::Approval).by(standing));
                // Nobody has looked at this call, and what the standing word covers are paths as they are written.
                granted.grant.no_links = true;
                Vec::new()
            }
            approval::Answer::Ask(asks) => asks,
        };
        let admission = Admission {
            call: call.id,
            caller,
            tool,
            asked_as,
            arguments,
            verdicts,
            granted,
            asks,
            labels: decision.labels,
            version: decision.version,
            decided: Instant::now(),
        };
        draft.passed(Gate::Approval, &self.meters);
        draft.admitted(&admission);
        Ok(admission)
    }

    /// Carries an admitted call out, and answers.
    async fn perform(
        &self,
        admission: Admission,
        draft: Draft,
        cancel: CancellationToken,
        listener: &dyn Listener,
        answer: Answer,
    ) {
        match self.carry_out(admission, draft, cancel, listener, Some(answer)).await {
            Carried::Ended(result, Some(answer)) => {
                // The receiver is gone when the caller stopped waiting.
                let _ = answer.send(*result);
            }
            Carried::Stopped(stopped) => {
                let Stopped { draft, violation, answer } = *stopped;
                if let Some(answer) = answer {
                    self.refuse(draft, violation, answer).await;
                }
            }
            // The caller was told at the deadline; a call that goes by no approval can't find it spent.
            Carried::Ended(_, None) | Carried::Spent => {}
        }
    }

    /// Ends a call that never reached a route.
    pub(crate) async fn refuse(&self, draft: Draft, violation: Violation, answer: Answer) {
        self.meters.refused(violation.kind);
        let (tenant, call, tool) = draft.subject();
        refusal_events(&violation).for_each(|event| self.bus.announce(&tenant, call, &tool, event));
        let recorded = record::refused(&violation);
        let (entry, took) = draft.finish(recorded.clone(), None);
        self.meters.finished(&tool, &recorded, took);
        let result = match self.audit.record(&entry).await {
            Ok(()) => violation,
            Err(error) => unrecordable(&error),
        };
        let _ = answer.send(Err(result));
    }

    pub(crate) fn no_such_tool(&self, caller: &Caller, name: &str) -> Violation {
        let shown = redact::beginning(name, 120);
        let close = self
            .catalog
            .nearest(name)
            .and_then(|close| self.catalog.resolve(&close))
            .filter(|tool| self.policy.sees(caller, tool));
        // Callers that may not call it learn nothing of what a server offers.
        if let Some(reason) = self.catalog.withheld(name).filter(|_| self.policy.opens_name(caller, name)) {
            let withheld = format!("`{shown}` can't be called: {reason}");
            return Violation::new(ViolationKind::ToolQuarantined, withheld);
        }
        if let Some(absent) = self.absent(caller, name) {
            return absent;
        }
        let close = close.map_or_else(String::new, |tool| format!("; did you mean `{}`?", tool.name));
        Violation::new(ViolationKind::ToolNotFound, format!("there is no tool called `{shown}`{close}"))
            .hint("`tools/list` or `aegis tools list` shows what there is")
    }
}

impl Directory for Plane {
    fn visible(&self, caller: &Caller) -> Vec<Arc<ToolSpec>> {
        self.catalog.specs().into_iter().filter(|tool| self.policy.sees(caller, tool)).collect()
    }
}

/// What the caller called the tool, where that is not its name.
fn asked_as(call: &Call, tool: &ToolSpec) -> Option<String> {
    (call.tool != tool.name).then(|| call.tool.clone())
}

pub(crate) fn objection(verdict: GateVerdict) -> Violation {
    match verdict.verdict {
        Verdict::Deny(violation) => violation,
        Verdict::Pass { .. } => {
            Violation::new(ViolationKind::InternalError, "a gate passed and granted nothing")
        }
    }
}

pub(crate) fn unrecordable(error: &impl std::fmt::Display) -> Violation {
    Violation::new(ViolationKind::InternalError, format!("the audit log can't be written: {error}"))
        .hint("nothing runs unrecorded; `aegis doctor` looks at the disk")
}

pub(crate) fn refusal_events(violation: &Violation) -> impl Iterator<Item = Event> {
    use aegis_core::violation::Layer;
    let names: &[EventName] = match (violation.kind, violation.kind.layer()) {
        (ViolationKind::CommandNotAllowed | ViolationKind::SubcommandNotAllowed, _) => &[
            EventName::CommandPolicyViolation,
            EventName::ToolPolicyViolation,
            EventName::PolicyViolationBlocked,
        ],
        (ViolationKind::PathTraversalAttempt, _) => &[
            EventName::PathTraversalBlocked,
            EventName::ToolPolicyViolation,
            EventName::PolicyViolationBlocked,
        ],
        (_, Layer::Policy | Layer::Routing) => {
            &[EventName::ToolPolicyViolation, EventName::PolicyViolationBlocked]
        }
        _ => &[],
    };
    names.iter().map(|name| {
        Event::new(*name)
            .with("violation", violation.kind.as_str())
            .with("message", violation.message.as_str())
    })
}
