//! Operations on volumes that come by a file protocol instead of as tool calls. Each is decided, charged and recorded as
//! the call of the tool that does the same: whoever may not `fs.write` a path can't write it over NFS.
//!
//! One operation may have many parts, as the pieces of a file that is written: they have one intent, which is on disk
//! before the first of them, and one record after the last.

use std::{sync::Arc, time::Instant};

use aegis_core::{
    Call, Caller, Event, Gate, GateVerdict, Permit, Timestamp, ToolSpec, TrustClass, Violation,
    ViolationKind, event::EventName, id::CallId, record::CallResult,
};
use aegis_gates::{approval, policy::Granted};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::{
    admission::Admission,
    carry_out::{DECISION_STALE, permit},
    pipeline::{Plane, objection, unrecordable},
    record::Draft,
};

/// What stands for an argument that an operation does not have as a whole.
const NOT_KNOWN: &str = "[redacted]";

/// An operation, in the terms of the tool that does the same.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    pub tool: &'a str,
    /// What the caller asked for, in the words of its protocol.
    pub asked_as: &'a str,
    pub path: &'a str,
    /// Arguments of the tool that come in pieces, if at all. A rule that looks at one of them refuses the operation.
    pub hidden: &'a [&'a str],
    /// Further arguments.
    pub flags: &'a [(&'a str, bool)],
}

impl Wanted<'_> {
    fn arguments(&self) -> Map<String, Value> {
        let path = std::iter::once(("path".to_owned(), Value::from(self.path)));
        let hidden = self.hidden.iter().map(|name| ((*name).to_owned(), NOT_KNOWN.into()));
        let flags = self.flags.iter().map(|(name, flag)| ((*name).to_owned(), (*flag).into()));
        path.chain(hidden).chain(flags).collect()
    }
}

/// An operation that may go ahead, until [`Plane::end`].
#[derive(Debug)]
pub struct Operation {
    permit: Permit,
    draft: Draft,
    tool: Arc<ToolSpec>,
    arguments: Map<String, Value>,
    hidden: Vec<String>,
    labels: Vec<TrustClass>,
    version: String,
    decided: Instant,
}

impl Operation {
    pub fn permit(&self) -> &Permit {
        &self.permit
    }
}

/// What the gates said of an operation.
struct Looked {
    tool: Arc<ToolSpec>,
    arguments: Map<String, Value>,
    verdicts: Vec<GateVerdict>,
    granted: Granted,
    labels: Vec<TrustClass>,
    version: String,
}

impl Plane {
    /// Whether an operation would be let through now. Charges nothing and records nothing.
    pub fn would_admit(&self, caller: &Caller, wanted: &Wanted<'_>) -> bool {
        self.look(caller, wanted).is_ok()
    }

    /// Decides, charges and, when it changes something, puts the intent on disk. A refusal is recorded.
    pub async fn begin(&self, caller: &Caller, wanted: &Wanted<'_>) -> Result<Operation, Violation> {
        let call = Call {
            id: CallId::fresh(),
            tool: wanted.tool.to_owned(),
            arguments: Map::new(),
            proof: None,
            trace: None,
        };
        let mut draft = Draft::new(caller, &call, self.audit(), self.spans());
        draft.asked(&wanted.arguments());
        draft.tool(wanted.tool, Some(wanted.asked_as.to_owned()));
        let looked = self.look(caller, wanted).and_then(|looked| {
            // How many at once is about calls in work, and between its parts an operation is in nobody's work.
            match self.policy().admit(caller, &looked.tool, &looked.granted) {
                Ok(_charge) => Ok(looked),
                Err(violation) => {
                    let mut verdicts = looked.verdicts;
                    verdicts.push(GateVerdict::deny(Gate::Policy, violation.clone()));
                    Err((verdicts, violation))
                }
            }
        });
        let (looked, violation) = match looked {
            Ok(looked) => (Some(looked), None),
            Err((verdicts, violation)) => {
                draft.verdicts(verdicts);
                (None, Some(violation))
            }
        };
        let Some(looked) = looked else {
            let violation = violation
                .unwrap_or_else(|| Violation::new(ViolationKind::InternalError, "refused for no reason"));
            return Err(self.turn_away(draft, violation).await);
        };
        let Looked { tool, arguments, verdicts, granted, labels, version } = looked;
        let admission = Admission {
            call: call.id,
            caller: caller.clone(),
            tool: Arc::clone(&tool),
            asked_as: Some(wanted.asked_as.to_owned()),
            arguments: arguments.clone(),
            verdicts,
            granted,
            asks: Vec::new(),
            labels: labels.clone(),
            version: version.clone(),
            decided: Instant::now(),
        };
        draft.admitted(&admission);
        let permit = match permit(call.id, &tool, caller, admission.granted.grant, &admission.verdicts) {
            Ok(permit) => permit,
            Err(violation) => return Err(self.turn_away(draft, violation).await),
        };
        let recordable = if tool.mutability.wants_intent() {
            self.audit().record_durable(&draft.intent()).await.map(drop)
        } else {
            self.audit().health()
        };
        if let Err(error) = recordable {
            return Err(self.turn_away(draft, unrecordable(&error)).await);
        }
        // What a session is shown stays with it, and is remembered before it is shown.
        if let Err(error) = self.policy().observe(caller, &tool.label).await {
            let violation = Violation::new(ViolationKind::InternalError, error.to_string());
            return Err(self.turn_away(draft, violation).await);
        }
        let requested = Event::new(EventName::InvocationRequested).with("operation", wanted.asked_as);
        self.bus().announce(&caller.tenant, call.id, &tool.name, requested);
        let hidden = wanted.hidden.iter().map(|name| (*name).to_owned()).collect();
        let decided = admission.decided;
        Ok(Operation { permit, draft, tool, arguments, hidden, labels, version, decided })
    }

    /// Whether an operation that goes on may still do so. A decision that has aged is made again; when rules or labels
    /// have changed since, the answer is no, and the operation has to be ended and begun anew.
    pub fn still_admits(&self, operation: &mut Operation) -> bool {
        if operation.decided.elapsed() <= DECISION_STALE {
            return true;
        }
        let hidden: Vec<&str> = operation.hidden.iter().map(String::as_str).collect();
        let caller = operation.permit.caller();
        let (tool, arguments) = (&operation.tool, &operation.arguments);
        let decision = self.policy().decide_without(caller, tool, arguments, &hidden);
        let Some(granted) = decision.granted else { return false };
        // A person's standing word holds as long as it stands.
        let reasons =
            approval::reasons(tool, arguments, granted.approval, &granted.grant.rule, decision.asks);
        let answer = self.approvals().gate().decide(caller, tool, arguments, reasons, Timestamp::now());
        let same = !matches!(answer, approval::Answer::Ask(_))
            && decision.version == operation.version
            && decision.labels == operation.labels;
        if same {
            operation.decided = Instant::now();
        }
        same
    }

    /// Tells listeners of a part of an operation.
    pub fn announce(&self, operation: &Operation, event: Event) {
        let permit = &operation.permit;
        self.bus().announce(&permit.caller().tenant, permit.call(), permit.tool(), event);
    }

    /// Writes the record. Of a change, it is on disk when this returns.
    pub async fn end(&self, operation: Operation, result: CallResult) -> Result<(), Violation> {
        let Operation { permit, draft, tool, .. } = operation;
        let ended = match &result {
            CallResult::Done { .. } => Event::new(EventName::InvocationCompleted),
            other => Event::new(EventName::InvocationFailed).with("status", other.status()),
        };
        let (entry, took) = draft.finish(result.clone(), Some(tool.label.clone()));
        self.meters().finished(&tool.name, &result, took);
        let written = if tool.mutability.wants_intent() || self.durable_reads {
            self.audit().record_durable(&entry).await.map(drop)
        } else {
            self.audit().record(&entry).await
        };
        self.bus().announce(&permit.caller().tenant, permit.call(), &tool.name, ended);
        written.map_err(|error| {
            tracing::error!(%error, call = %permit.call(), "the outcome of an operation could not be recorded");
            unrecordable(&error)
        })
    }

    async fn turn_away(&self, draft: Draft, violation: Violation) -> Violation {
        let (answer, answered) = oneshot::channel();
        self.refuse(draft, violation.clone(), answer).await;
        match answered.await {
            Ok(Err(told)) => told,
            _ => violation,
        }
    }

    fn look(&self, caller: &Caller, wanted: &Wanted<'_>) -> Result<Looked, (Vec<GateVerdict>, Violation)> {
        let mut verdicts = vec![GateVerdict::pass(Gate::Identity).by(caller.credential.as_str())];
        let Some(tool) = self.catalog().resolve(wanted.tool) else {
            let missing = Violation::new(
                ViolationKind::InternalError,
                format!("an operation is done as `{}`, which is no tool here", wanted.tool),
            );
            verdicts.push(GateVerdict::deny(Gate::Catalog, missing.clone()));
            return Err((verdicts, missing));
        };
        verdicts.push(GateVerdict::pass(Gate::Catalog));
        let mut arguments = wanted.arguments();
        if let Err(violation) = self.arguments().check(&tool, &mut arguments) {
            verdicts.push(GateVerdict::deny(Gate::Arguments, violation.clone()));
            return Err((verdicts, violation));
        }
        verdicts.push(GateVerdict::pass(Gate::Arguments));
        let decision = self.policy().decide_without(caller, &tool, &arguments, wanted.hidden);
        let granted = match (decision.granted, decision.undecidable.first()) {
            (Some(granted), None) => granted,
            (Some(_), Some(rule)) => {
                let violation = Violation::new(
                    ViolationKind::PolicyForbids,
                    format!(
                        "a policy about `{}` looks at what an operation does not have as a whole",
                        tool.name
                    ),
                )
                .rule(rule.place())
                .hint("make the change with the tool itself");
                verdicts.push(GateVerdict::deny(Gate::Policy, violation.clone()));
                return Err((verdicts, violation));
            }
            (None, _) => {
                verdicts.push(decision.verdict.clone());
                return Err((verdicts, objection(decision.verdict)));
            }
        };
        verdicts.push(decision.verdict);
        let reasons =
            approval::reasons(&tool, &arguments, granted.approval, &granted.grant.rule, decision.asks);
        match self.approvals().gate().decide(caller, &tool, &arguments, reasons, Timestamp::now()) {
            approval::Answer::NotAsked => verdicts.push(GateVerdict::pass(Gate::Approval)),
            approval::Answer::Settled(standing) => {
                verdicts.push(GateVerdict::pass(Gate::Approval).by(standing));
            }
            approval::Answer::Ask(asks) => {
                let rule = asks.into_iter().next().map(|ask| ask.rule).unwrap_or_default();
                let violation = Violation::new(
                    ViolationKind::ToolNotAllowed,
                    format!(
                        "a person has to agree to `{}`, and a file protocol can't wait for one",
                        tool.name
                    ),
                )
                .rule(rule)
                .hint("make the change with the tool itself, which asks");
                verdicts.push(GateVerdict::deny(Gate::Approval, violation.clone()));
                return Err((verdicts, violation));
            }
        }
        let (labels, version) = (decision.labels, decision.version);
        Ok(Looked { tool, arguments, verdicts, granted, labels, version })
    }
}
