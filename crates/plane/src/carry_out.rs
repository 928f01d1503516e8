//! From an admission to its record: rate, permit, intent, route, record.

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use aegis_core::{
    Approval, Caller, Event, Gate, GateVerdict, Grant, Label, Outcome, Permit, ToolSpec, Violation,
    ViolationKind, event::EventName, id::CallId, progress::Listener, record::CallResult, redact,
};
use aegis_stores::audit::AuditError;
use futures::FutureExt;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::{
    admission::Admission,
    heard::Heard,
    pipeline::{Plane, objection, refusal_events, unrecordable},
    record::Draft,
};

/// A decision older than this is made again before it is acted on.
pub(crate) const DECISION_STALE: Duration = Duration::from_secs(1);

/// An outcome together with its answer as JSON text, which is written once and measured.
#[derive(Debug)]
pub struct Done {
    pub outcome: Outcome,
    pub json: String,
    /// Set when nothing has run yet: a person is asked first. The outcome is then the contract's envelope.
    pub pending: Option<Box<Approval>>,
}

impl Done {
    /// The answer at once of a call that waits for a person.
    pub(crate) fn waiting(approval: Box<Approval>) -> Self {
        let plain = Self::plain(approval.envelope());
        Self { pending: Some(approval), ..plain }
    }

    /// Something that the node itself says.
    pub(crate) fn plain(value: Value) -> Self {
        Self {
            json: value.to_string(),
            outcome: Outcome {
                value,
                structured: None,
                failure: None,
                label: Label::node(),
                events: Vec::new(),
                passed: None,
            },
            pending: None,
        }
    }
}

pub(crate) type Answer = oneshot::Sender<Result<Done, Violation>>;

/// How far a call came.
pub(crate) enum Carried {
    /// To its end. Its record is written, and whoever still waits is to hear the result.
    Ended(Box<Result<Done, Violation>>, Option<Answer>),
    /// Nowhere: nothing happened, and nothing is recorded yet.
    Stopped(Box<Stopped>),
    /// Nowhere, because the approval it goes by has been used up.
    Spent,
}

pub(crate) struct Stopped {
    pub(crate) draft: Draft,
    pub(crate) violation: Violation,
    pub(crate) answer: Option<Answer>,
}

impl Plane {
    /// Carries an admitted call out. With an `answer` the caller hears at the deadline that a change is still under
    /// way; without one, nobody waits and the end is what counts.
    pub(crate) async fn carry_out(
        &self,
        mut admission: Admission,
        mut draft: Draft,
        cancel: CancellationToken,
        listener: &dyn Listener,
        answer: Option<Answer>,
    ) -> Carried {
        let stopped =
            |draft, violation, answer| Carried::Stopped(Box::new(Stopped { draft, violation, answer }));
        if admission.decided.elapsed() > DECISION_STALE {
            let decision = self.policy().decide(&admission.caller, &admission.tool, &admission.arguments);
            draft.verdict(decision.verdict.clone());
            match decision.granted {
                Some(granted)
                    if decision.version == admission.version && decision.labels == admission.labels =>
                {
                    let no_links = admission.granted.grant.no_links;
                    admission.granted = granted;
                    admission.granted.grant.no_links = no_links;
                }
                Some(_) => return stopped(draft, changed_meanwhile(), answer),
                None => return stopped(draft, objection(decision.verdict), answer),
            }
        }
        let charge = match self.policy().admit(&admission.caller, &admission.tool, &admission.granted) {
            Ok(charge) => charge,
            Err(violation) => {
                draft.verdict(GateVerdict::deny(Gate::Policy, violation.clone()));
                return stopped(draft, violation, answer);
            }
        };
        let Admission { call, caller, tool, arguments, verdicts, granted, .. } = admission;
        let largest = granted.grant.max_response_size.unwrap_or(u64::MAX).min(self.limits.max_response.0);
        let permit = match permit(call, &tool, &caller, granted.grant, &verdicts) {
            Ok(permit) => permit.traced(draft.trace()),
            Err(violation) => return stopped(draft, violation, answer),
        };

        let mutates = tool.mutability.mutates();
        let approved = draft.approval().is_some();
        // What can't be recorded does not run. A change is written down before it is made; and so is what a person
        // agreed to, since the intent is what uses the approval up.
        let recordable = if tool.mutability.wants_intent() || approved {
            self.audit().record_durable(&draft.intent()).await.map(drop)
        } else {
            self.audit().health()
        };
        match recordable {
            Ok(()) => {}
            Err(AuditError::Consumed(_)) => return Carried::Spent,
            Err(error) => return stopped(draft, unrecordable(&error), answer),
        }
        self.bus().announce(&caller.tenant, call, &tool.name, Event::new(EventName::InvocationRequested));
        let heard = Heard { plane: self, caller: &caller, call, tool: &tool, listener };
        let route = self.catalog().carry_out(permit, &tool, arguments, self, self, &cancel, &heard);
        let from = Instant::now();
        let too_late = self.too_late();
        let (carried, answer) = under_deadline(route, too_late, mutates, &cancel, answer).await;
        let server = served_by(&tool, &carried);
        draft.carried(tool.route, server, from, self.meters());
        drop(charge);
        let result = self.conclude(&caller, &tool, draft, carried, largest).await;
        Carried::Ended(Box::new(result), answer)
    }

    /// Ends when a call that begins now has to end, with the reason.
    async fn too_late(&self) -> Violation {
        let (limit, drain) = (self.limits.call_timeout.0, self.limits.drain_timeout.0);
        let (message, rule) = tokio::select! {
            () = tokio::time::sleep(limit) => {
                (format!("the call ran past its {} s", limit.as_secs()), "spec.limits.call_timeout")
            }
            () = self.drain.up(drain) => {
                let message = format!("the node stops, and the call did not end within {} s", drain.as_secs_f32());
                (message, "spec.limits.drain_timeout")
            }
        };
        Violation::new(ViolationKind::DeadlineExceeded, message).rule(rule)
    }

    /// Writes the record of a call that ran, and tells listeners.
    async fn conclude(
        &self,
        caller: &Caller,
        tool: &ToolSpec,
        draft: Draft,
        carried: Result<Outcome, Violation>,
        largest: u64,
    ) -> Result<Done, Violation> {
        let call = draft.call();
        let approved = draft.approval().is_some();
        let announce = |event| self.bus().announce(&caller.tenant, call, &tool.name, event);
        let mut label = None;
        let mut exit_code = None;
        let mut result = carried.and_then(|mut outcome| {
            exit_code = outcome.events.iter().find_map(exit_code_of);
            std::mem::take(&mut outcome.events).into_iter().for_each(announce);
            // The session keeps it as long as the record does.
            outcome.label.origin =
                outcome.label.origin.take().map(|origin| redact::message(&origin).into_owned());
            label = Some(outcome.label.clone());
            measured(outcome, largest, tool)
        });
        let recorded = recorded(&result);
        let ended = match &recorded {
            CallResult::Done { .. } => match exit_code.filter(|code| *code != 0) {
                None => Event::new(EventName::InvocationCompleted),
                // A normal answer to whoever asked, and a failure to whoever watches.
                Some(code) => Event::new(EventName::InvocationFailed).with("exit_code", code),
            },
            other => Event::new(EventName::InvocationFailed).with("status", other.status()),
        };
        let (entry, took) = draft.finish(recorded.clone(), label);
        self.meters().finished(&tool.name, &recorded, took);
        let written = if tool.mutability.wants_intent() || approved || self.durable_reads {
            self.audit().record_durable(&entry).await.map(drop)
        } else {
            self.audit().record(&entry).await
        };
        if let Err(violation) = &result {
            self.meters().refused(violation.kind);
            refusal_events(violation).for_each(announce);
        }
        announce(ended);
        if let Err(error) = written {
            tracing::error!(%error, %call, "the outcome of a call could not be recorded");
            result = Err(Violation::new(
                ViolationKind::InternalError,
                format!("the call ran, and its outcome can't be recorded: {error}"),
            )
            .hint("a change it was to make may have been made; of changes the audit log has the intent"));
        }
        // Who asked for an approved call reads the answer later, when it is delivered.
        if approved { result } else { self.remembered(caller, result).await }
    }

    /// What a session is shown stays with it as a label: an answer that can't be remembered is not given.
    pub(crate) async fn remembered(
        &self,
        caller: &Caller,
        result: Result<Done, Violation>,
    ) -> Result<Done, Violation> {
        let done = result?;
        match self.policy().observe(caller, &done.outcome.label).await {
            Ok(()) => Ok(done),
            Err(error) => Err(Violation::new(
                ViolationKind::InternalError,
                format!("the call ran, and where its answer comes from can't be remembered: {error}"),
            )
            .hint("a change it was to make has been made; `aegis doctor` looks at the disk")),
        }
    }
}

/// The MCP server that a call went to, by the name that the configuration has for it.
fn served_by<'a>(tool: &'a ToolSpec, carried: &'a Result<Outcome, Violation>) -> Option<&'a str> {
    let answered = carried.as_ref().ok().and_then(|outcome| outcome.label.source.strip_prefix("mcp:"));
    answered.or_else(|| tool.label.source.strip_prefix("mcp:"))
}

/// How a command that the call ran has ended.
fn exit_code_of(event: &Event) -> Option<i64> {
    (event.name == EventName::CommandExecutionCompleted).then(|| event.detail.get("exit_code")?.as_i64())?
}

/// How the record names a result.
pub(crate) fn recorded(result: &Result<Done, Violation>) -> CallResult {
    match result {
        Ok(Done { outcome, json, .. }) => match outcome.failure {
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
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the one place where a permit is made")]
pub(crate) fn permit(
    call: CallId,
    tool: &ToolSpec,
    caller: &Caller,
    grant: Grant,
    verdicts: &[GateVerdict],
) -> Result<Permit, Violation> {
    Permit::grant(call, &tool.name, caller.clone(), grant, verdicts)
        .map_err(|error| Violation::new(ViolationKind::InternalError, error.to_string()))
}

fn changed_meanwhile() -> Violation {
    Violation::new(ViolationKind::Overloaded, "the rules changed while the call waited for its turn")
        .hint("make the call again")
        .retry_after(1)
}

/// Runs a route until it ends, the caller leaves, or its time is up. A route that only reads is dropped then; one
/// that changes something is asked to stop and waited for, so that the record says what really happened. Its caller
/// is answered at the deadline all the same.
async fn under_deadline(
    route: impl Future<Output = Result<Outcome, Violation>>,
    too_late: impl Future<Output = Violation>,
    mutates: bool,
    cancel: &CancellationToken,
    answer: Option<Answer>,
) -> (Result<Outcome, Violation>, Option<Answer>) {
    // A bug in a tool ends its call, with a record, and nothing else.
    let route = AssertUnwindSafe(route).catch_unwind().map(|ended| {
        ended.unwrap_or_else(|_| {
            Err(Violation::new(ViolationKind::InternalError, "the tool failed in a way it should not")
                .hint("the node's log has the details; please report it"))
        })
    });
    let mut route = std::pin::pin!(route);
    tokio::select! {
        biased;
        ended = &mut route => return (ended, answer),
        late = too_late => {
            cancel.cancel();
            if !mutates {
                return (Err(late), answer);
            }
            if let Some(answer) = answer {
                let _ = answer.send(Err(late.hint("it may still take effect; its audit record will say")));
            }
        }
        () = cancel.cancelled(), if !mutates => {
            let gone = Violation::new(ViolationKind::DeadlineExceeded, "the caller cancelled the call");
            return (Err(gone), answer);
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
    Ok(Done { outcome, json, pending: None })
}
