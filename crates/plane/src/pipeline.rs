use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant},
};

use aegis_core::{
    Call, Caller, Event, Gate, GateVerdict, Outcome, Permit, ToolSpec, Verdict, Violation, ViolationKind,
    config::{AuditConfig, LimitsConfig, ReadDurability},
    event::EventName,
    id::CallId,
    record::{CallResult, NodeRecord},
    tool::{Directory, Route},
};
use aegis_gates::{ArgumentsGate, PolicyGate};
use aegis_routes::Catalog;
use aegis_stores::audit::AuditLog;
use futures::FutureExt;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::Admission,
    bus::Bus,
    meters::Meters,
    record::{self, Draft},
};

/// A decision older than this is made again before it is acted on.
const DECISION_STALE: Duration = Duration::from_secs(1);

/// What a plane is made of. Nothing is optional: a forgotten part does not compile.
#[derive(Debug)]
pub struct Parts {
    pub catalog: Arc<Catalog>,
    pub policy: Arc<PolicyGate>,
    pub audit: AuditLog,
    pub bus: Bus,
    pub limits: LimitsConfig,
    pub audit_config: AuditConfig,
}

#[derive(Debug)]
pub struct Plane {
    catalog: Arc<Catalog>,
    arguments: ArgumentsGate,
    policy: Arc<PolicyGate>,
    audit: AuditLog,
    bus: Bus,
    meters: Meters,
    limits: LimitsConfig,
    durable_reads: bool,
    slots: Semaphore,
    /// Calls in work; a stopping node waits for them.
    work: TaskTracker,
}

/// What a caller gets back: an outcome (of a tool that did or could not do its work), or why there is none.
#[derive(Debug)]
pub struct Reply {
    pub call: CallId,
    pub result: Result<Done, Violation>,
}

/// An outcome together with its answer as JSON text, which is written once and measured.
#[derive(Debug)]
pub struct Done {
    pub outcome: Outcome,
    pub json: String,
}

impl Plane {
    pub fn new(parts: Parts) -> Arc<Self> {
        let specs = || parts.catalog.specs().map(AsRef::as_ref);
        Arc::new(Self {
            arguments: ArgumentsGate::new(specs()),
            meters: Meters::new(specs()),
            slots: Semaphore::new(parts.limits.max_concurrent_calls as usize),
            durable_reads: parts.audit_config.reads == ReadDurability::Durable,
            catalog: parts.catalog,
            policy: parts.policy,
            audit: parts.audit,
            bus: parts.bus,
            limits: parts.limits,
            work: TaskTracker::new(),
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

    /// Takes a call from a door to its answer. The call goes on, and is recorded, when the caller stops waiting;
    /// `cancel` is how a door says that nobody waits any more.
    pub async fn call(self: &Arc<Self>, caller: Caller, call: Call, cancel: CancellationToken) -> Reply {
        let id = call.id;
        let (answer, answered) = oneshot::channel();
        let plane = Arc::clone(self);
        self.work.spawn(async move { plane.live(caller, call, cancel, answer).await });
        let result = answered.await.unwrap_or_else(|_| {
            Err(Violation::new(ViolationKind::InternalError, "the call ended without an answer")
                .hint("its record in the audit log says how far it came"))
        });
        Reply { call: id, result }
    }

    /// The life of a call.
    async fn live(&self, caller: Caller, mut call: Call, cancel: CancellationToken, answer: Answer) {
        let _in_flight = self.meters.enter();
        let mut draft = Draft::new(&caller, &call);
        let arguments = std::mem::take(&mut call.arguments);
        let Ok(_slot) = self.slots.try_acquire() else {
            draft.asked(&arguments);
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
            Ok(admission) => self.perform(admission, draft, cancel, answer).await,
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
        let Some(tool) = self.catalog.resolve(&call.tool).map(Arc::clone) else {
            draft.asked(&arguments);
            return Err(deny(draft, verdicts, Gate::Catalog, self.no_such_tool(&caller, &call.tool)));
        };
        verdicts.push(GateVerdict::pass(Gate::Catalog));
        let asked_as = (call.tool != tool.name).then(|| call.tool.clone());
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

        let decision = self.policy.decide(&caller, &tool, &arguments);
        verdicts.push(decision.verdict.clone());
        let Some(granted) = decision.granted else {
            draft.asked(&arguments);
            draft.verdicts(verdicts);
            return Err(objection(decision.verdict));
        };
        let admission = Admission {
            call: call.id,
            caller,
            tool,
            asked_as,
            arguments,
            verdicts,
            granted,
            decided: Instant::now(),
        };
        draft.admitted(&admission);
        Ok(admission)
    }

    /// Carries an admitted call out: rate, permit, intent, route, record, answer.
    async fn perform(
        &self,
        mut admission: Admission,
        mut draft: Draft,
        cancel: CancellationToken,
        answer: Answer,
    ) {
        if admission.decided.elapsed() > DECISION_STALE {
            let decision = self.policy.decide(&admission.caller, &admission.tool, &admission.arguments);
            draft.verdict(decision.verdict.clone());
            match decision.granted {
                Some(granted) => admission.granted = granted,
                None => return self.refuse(draft, objection(decision.verdict), answer).await,
            }
        }
        let charge = match self.policy.admit(&admission.caller, &admission.tool, &admission.granted) {
            Ok(charge) => charge,
            Err(violation) => {
                draft.verdict(GateVerdict::deny(Gate::Policy, violation.clone()));
                return self.refuse(draft, violation, answer).await;
            }
        };
        let Admission { call, caller, tool, arguments, verdicts, granted, .. } = admission;
        let largest = granted.grant.max_response_size.unwrap_or(u64::MAX).min(self.limits.max_response.0);
        #[allow(clippy::disallowed_methods, reason = "this is the one place where a permit is made")]
        let permit = match Permit::grant(call, caller.clone(), granted.grant, &verdicts) {
            Ok(permit) => permit,
            Err(error) => {
                let violation = Violation::new(ViolationKind::InternalError, error.to_string());
                return self.refuse(draft, violation, answer).await;
            }
        };
        self.bus.announce(&caller.tenant, call, &tool.name, Event::new(EventName::InvocationRequested));

        let mutates = tool.mutability.mutates();
        // What can't be recorded does not run. What leaves the node is an effect too, so it is written down first.
        let recordable = if Self::wants_intent(&tool) {
            self.audit.record_durable(&draft.intent()).await.map(drop)
        } else {
            self.audit.health()
        };
        if let Err(error) = recordable {
            return self.refuse(draft, unrecordable(&error), answer).await;
        }
        let route = self.catalog.carry_out(permit, &tool, arguments, self, &cancel);
        let (carried, answer) =
            under_deadline(route, self.limits.call_timeout.0, mutates, &cancel, answer).await;
        drop(charge);
        self.conclude(&caller, &tool, draft, carried, largest, answer).await;
    }

    /// Writes the record of a call that ran, tells listeners, answers.
    async fn conclude(
        &self,
        caller: &Caller,
        tool: &ToolSpec,
        draft: Draft,
        carried: Result<Outcome, Violation>,
        largest: u64,
        answer: Option<Answer>,
    ) {
        let call = draft.call();
        let announce = |event| self.bus.announce(&caller.tenant, call, &tool.name, event);
        let mut label = None;
        let mut result = carried.and_then(|mut outcome| {
            std::mem::take(&mut outcome.events).into_iter().for_each(announce);
            label = Some(outcome.label.clone());
            measured(outcome, largest, tool)
        });
        let recorded = match &result {
            Ok(Done { outcome, json }) => match outcome.failure {
                None => CallResult::Done { bytes: json.len() as u64 },
                Some(kind) => CallResult::Failed {
                    kind: kind.as_str().to_owned(),
                    message: outcome.value["error"].as_str().unwrap_or_default().to_owned(),
                },
            },
            // It ran: what it changed is changed, and only the answer is missing.
            Err(violation) => CallResult::Failed {
                kind: violation.kind.as_str().to_owned(),
                message: violation.message.clone(),
            },
        };
        let ended = match &recorded {
            CallResult::Done { .. } => Event::new(EventName::InvocationCompleted),
            other => Event::new(EventName::InvocationFailed).with("status", other.status()),
        };
        let (entry, took) = draft.finish(recorded.clone(), label);
        self.meters.finished(&tool.name, &recorded, took);
        let written = if Self::wants_intent(tool) || self.durable_reads {
            self.audit.record_durable(&entry).await.map(drop)
        } else {
            self.audit.record(&entry).await
        };
        if let Err(violation) = &result {
            self.meters.refused(violation.kind);
            refusal_events(violation).for_each(announce);
        }
        announce(ended);
        if let Err(error) = written {
            tracing::error!(%error, %call, "the outcome of a call could not be recorded");
            result = Err(Violation::new(
                ViolationKind::InternalError,
                format!("the call ran, and its outcome can't be recorded: {error}"),
            )
            .hint("a change it was to make may have been made; its intent is in the audit log"));
        }
        if let Some(answer) = answer {
            // The receiver is gone when the caller stopped waiting.
            let _ = answer.send(result);
        }
    }

    fn wants_intent(tool: &ToolSpec) -> bool {
        tool.mutability.mutates() || tool.route == Route::Upstream
    }

    /// Ends a call that never reached a route.
    async fn refuse(&self, draft: Draft, violation: Violation, answer: Answer) {
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

    fn no_such_tool(&self, caller: &Caller, name: &str) -> Violation {
        let shown: String = name.chars().take(120).collect();
        let close = self
            .catalog
            .nearest(name)
            .and_then(|close| self.catalog.resolve(close))
            .filter(|tool| self.policy.sees(caller, tool));
        let violation =
            Violation::new(ViolationKind::ToolNotFound, format!("there is no tool called `{shown}`"));
        match close {
            Some(tool) => violation.hint(format!("did you mean `{}`?", tool.name)),
            None => violation.hint("`tools/list` or `aegis tools list` shows what there is"),
        }
    }

    /// Settles what a killed node left open: every intent without an outcome gets its record.
    pub async fn settle_interrupted(&self) -> Result<usize, Violation> {
        let open = self.audit.unfinished_intents();
        for intent in open {
            tracing::warn!(call = %intent.call, tool = %intent.tool, "a call was interrupted; its effect is not known");
            self.audit
                .record_durable(&record::interrupted(intent))
                .await
                .map_err(|error| unrecordable(&error))?;
        }
        Ok(open.len())
    }

    /// Records something an operator did, or that befell the node. Durable before it returns.
    pub async fn note(&self, record: NodeRecord) -> Result<(), Violation> {
        self.audit
            .record_durable(&aegis_core::record::Entry::Node(record))
            .await
            .map(drop)
            .map_err(|error| unrecordable(&error))
    }

    /// Waits for the calls in work. Doors have stopped letting calls in.
    pub async fn drain(&self) {
        self.work.close();
        if tokio::time::timeout(self.limits.drain_timeout.0, self.work.wait()).await.is_err() {
            tracing::warn!(in_flight = self.meters.in_flight(), "stopped waiting for calls in work");
        }
    }

    /// Writes what is queued and signs the last head. Nothing can be recorded, so nothing can be called, after this.
    pub async fn close(&self) {
        if let Err(error) = self.audit.close().await {
            tracing::error!(%error, "the audit log did not close cleanly");
        }
    }
}

impl Directory for Plane {
    fn visible(&self, caller: &Caller) -> Vec<Arc<ToolSpec>> {
        self.catalog.specs().filter(|tool| self.policy.sees(caller, tool)).map(Arc::clone).collect()
    }
}

type Answer = oneshot::Sender<Result<Done, Violation>>;

/// Runs a route until it ends, the caller leaves, or its time is up. A route that only reads is dropped then; one
/// that changes something is asked to stop and waited for, so that the record says what really happened. Its caller
/// is answered at the deadline all the same.
async fn under_deadline(
    route: impl Future<Output = Result<Outcome, Violation>>,
    limit: Duration,
    mutates: bool,
    cancel: &CancellationToken,
    answer: Answer,
) -> (Result<Outcome, Violation>, Option<Answer>) {
    // A bug in a tool ends its call, with a record, and nothing else.
    let route = AssertUnwindSafe(route).catch_unwind().map(|ended| {
        ended.unwrap_or_else(|_| {
            Err(Violation::new(ViolationKind::InternalError, "the tool failed in a way it should not")
                .hint("the node's log has the details; please report it"))
        })
    });
    let mut route = std::pin::pin!(route);
    let late = || {
        Violation::new(
            ViolationKind::DeadlineExceeded,
            format!("the call ran past its {} s", limit.as_secs()),
        )
        .rule("spec.limits.call_timeout")
    };
    tokio::select! {
        biased;
        ended = &mut route => return (ended, Some(answer)),
        () = tokio::time::sleep(limit) => {
            cancel.cancel();
            if !mutates {
                return (Err(late()), Some(answer));
            }
            let _ = answer.send(Err(late().hint("it may still take effect; its audit record will say")));
        }
        () = cancel.cancelled(), if !mutates => {
            let gone = Violation::new(ViolationKind::DeadlineExceeded, "the caller cancelled the call");
            return (Err(gone), Some(answer));
        }
    }
    (route.await, None)
}

fn measured(outcome: Outcome, largest: u64, tool: &ToolSpec) -> Result<Done, Violation> {
    let json = serde_json::to_string(&outcome.value)
        .map_err(|error| Violation::new(ViolationKind::InternalError, error.to_string()))?;
    if json.len() as u64 > largest {
        return Err(Violation::new(
            ViolationKind::OutputSizeLimitExceeded,
            format!("the answer of `{}` has {} bytes; {largest} is the limit", tool.name, json.len()),
        )
        .rule("max_response_size of the security context, or spec.limits.max_response")
        .hint("ask for less: a narrower path or pattern, or a part of the file"));
    }
    Ok(Done { outcome, json })
}

fn objection(verdict: GateVerdict) -> Violation {
    match verdict.verdict {
        Verdict::Deny(violation) => violation,
        Verdict::Pass { .. } => {
            Violation::new(ViolationKind::InternalError, "a gate passed and granted nothing")
        }
    }
}

fn unrecordable(error: &impl std::fmt::Display) -> Violation {
    Violation::new(ViolationKind::InternalError, format!("the audit log can't be written: {error}"))
        .hint("nothing runs unrecorded; `aegis doctor` looks at the disk")
}

fn refusal_events(violation: &Violation) -> impl Iterator<Item = Event> {
    use aegis_core::violation::Layer;
    let names: &[EventName] = match (violation.kind, violation.kind.layer()) {
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
