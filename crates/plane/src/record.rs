//! Turning what happened to a call into its one audit record.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aegis_core::{
    Approval, Call, Caller, Gate, GateVerdict, Label, Timestamp, Verdict, Violation,
    call::{self, Proof},
    id::{ApprovalId, CallId, TenantId},
    record::{CallRecord, CallResult, Entry, Intent},
    redact,
    tool::Route,
    trace::{CallSpan, Part, Spans, Timed, TraceContext},
};
use aegis_stores::AuditLog;
use serde_json::{Map, Value};

use crate::{admission::Admission, meters::Meters};

/// Names of tools come from callers until the catalog knows them.
const LONGEST_NAME: usize = 128;
/// Messages and origins may repeat what a caller or a server sent.
const LONGEST_TEXT: usize = 1024;

/// What is known of a call from its first moment on; becomes the record at its end.
#[derive(Debug)]
pub(crate) struct Draft {
    started: Instant,
    record: CallRecord,
    /// Whether the tool is one that the catalog knows. Any other name is whatever the caller wrote.
    is_known: bool,
    /// Whether the record holds less than the arguments, so that its digests are keyed.
    hides: bool,
    audit: AuditLog,
    spans: Arc<dyn Spans>,
    context: Option<TraceContext>,
    /// Where the last part ended.
    reached: Duration,
    /// What took how long; empty when nobody traces.
    parts: Vec<Timed>,
}

impl Draft {
    pub(crate) fn new(caller: &Caller, call: &Call, audit: &AuditLog, spans: &Arc<dyn Spans>) -> Self {
        Self {
            started: Instant::now(),
            hides: false,
            audit: audit.clone(),
            spans: Arc::clone(spans),
            context: call.trace.clone(),
            reached: Duration::ZERO,
            parts: Vec::new(),
            is_known: false,
            record: CallRecord {
                time: Timestamp::now(),
                call: call.id,
                caller: caller.clone(),
                tool: redact::beginning(&call.tool, LONGEST_NAME).into_owned(),
                asked_as: None,
                arguments: Map::new(),
                arguments_sha256: String::new(),
                verdicts: Vec::new(),
                result: CallResult::Unknown,
                label: None,
                approval: None,
                proof: call.proof.clone(),
                micros: 0,
            },
        }
    }

    /// The arguments as the caller sent them, for a call that gets no further.
    pub(crate) fn asked(&mut self, arguments: &Map<String, Value>) {
        self.record.arguments = redact::arguments(arguments);
        self.hides = redact::hides_any(&self.record.arguments);
        self.record.arguments_sha256 = call::digest(arguments);
    }

    pub(crate) fn admitted(&mut self, admission: &Admission) {
        self.asked(&admission.arguments);
        self.tool(&admission.tool.name, admission.asked_as.clone());
        self.record.verdicts.clone_from(&admission.verdicts);
    }

    /// A call that a person agreed to and that runs now.
    pub(crate) fn approved(
        admission: &Admission,
        approval: &Approval,
        audit: &AuditLog,
        spans: &Arc<dyn Spans>,
    ) -> Self {
        let call = Call {
            id: admission.call,
            tool: approval.tool.clone(),
            arguments: Map::new(),
            proof: approval.proof.clone(),
            trace: None,
        };
        let mut draft = Self::new(&admission.caller, &call, audit, spans);
        draft.admitted(admission);
        draft.record.approval = Some(approval.id.clone());
        draft
    }

    /// A gate is done, and began where the part before it ended.
    pub(crate) fn passed(&mut self, gate: Gate, meters: &Meters) {
        let (from, to) = (self.reached, self.started.elapsed());
        self.reached = to;
        meters.gate(gate, to.saturating_sub(from));
        if self.spans.is_on() {
            self.parts.push(Timed { part: Part::Gate(gate), from, to });
        }
    }

    /// The route is done, and began then. `server` is the MCP server that it led to.
    pub(crate) fn carried(&mut self, route: Route, server: Option<&str>, from: Instant, meters: &Meters) {
        let (from, to) = (from.saturating_duration_since(self.started), self.started.elapsed());
        self.reached = to;
        meters.route(route, server, to.saturating_sub(from));
        if self.spans.is_on() {
            self.parts.push(Timed { part: Part::Route(route), from, to });
        }
    }

    /// The trace that the caller is in.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.context.clone()
    }

    pub(crate) fn proof(&self) -> Option<&Proof> {
        self.record.proof.as_ref()
    }

    pub(crate) fn approval(&self) -> Option<&ApprovalId> {
        self.record.approval.as_ref()
    }

    pub(crate) fn verdicts(&mut self, verdicts: Vec<GateVerdict>) {
        self.record.verdicts = verdicts;
    }

    pub(crate) fn verdict(&mut self, verdict: GateVerdict) {
        self.record.verdicts.push(verdict);
    }

    /// The tool that the catalog knows the name for.
    pub(crate) fn tool(&mut self, name: &str, asked_as: Option<String>) {
        name.clone_into(&mut self.record.tool);
        self.record.asked_as = asked_as;
        self.is_known = true;
    }

    /// The tool's name as it may be told and written down.
    fn told_tool(&self) -> String {
        match self.is_known {
            true => self.record.tool.clone(),
            false => redact::message(&self.record.tool).into_owned(),
        }
    }

    pub(crate) fn call(&self) -> CallId {
        self.record.call
    }

    /// Whose call of what this is.
    pub(crate) fn subject(&self) -> (TenantId, CallId, String) {
        (self.record.caller.tenant.clone(), self.record.call, self.told_tool())
    }

    pub(crate) fn intent(&self) -> Entry {
        Entry::Intent(Intent {
            time: self.record.time,
            call: self.record.call,
            caller: self.record.caller.clone(),
            tool: self.record.tool.clone(),
            arguments_sha256: match self.hides {
                true => self.audit.keyed(&self.record.arguments_sha256),
                false => self.record.arguments_sha256.clone(),
            },
            approval: self.record.approval.clone(),
        })
    }

    /// The record of a call that asks what another waits for already.
    pub(crate) fn repeated(self, waiting: &ApprovalId) -> Entry {
        let result = CallResult::Refused {
            kind: "ApprovalPending".into(),
            message: format!("the same call waits as {waiting}"),
            rule: None,
        };
        self.finish(result, None).0
    }

    pub(crate) fn finish(mut self, result: CallResult, label: Option<Label>) -> (Entry, Duration) {
        let took = self.started.elapsed();
        self.record.result = kept(result);
        if self.hides {
            key_digests(&mut self.record, &self.audit);
        }
        // A call that was let through was denied nothing.
        if let CallResult::Refused { .. } = &self.record.result {
            self.record.tool = self.told_tool();
            self.record.verdicts.iter_mut().for_each(keep);
        }
        self.record.label = label.map(|label| Label {
            origin: label.origin.map(|origin| clipped(&origin, LONGEST_TEXT)),
            ..label
        });
        self.record.micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if self.spans.is_on() {
            let (record, context) = (&self.record, self.context.as_ref());
            self.spans.ended(&CallSpan { record, context, parts: &self.parts, took });
        }
        (Entry::Call(Box::new(self.record)), took)
    }
}

/// The signed message holds the arguments, so its digest would tell as much as theirs.
fn key_digests(record: &mut CallRecord, audit: &AuditLog) {
    record.arguments_sha256 = audit.keyed(&record.arguments_sha256);
    if let Some(proof) = &mut record.proof {
        proof.message_sha256 = audit.keyed(&proof.message_sha256);
    }
}

/// The digest of a request's arguments as the log has it, which has of the arguments themselves what was kept.
pub(crate) fn told_digest(approval: &Approval, kept: &Map<String, Value>, audit: &AuditLog) -> String {
    match redact::hides_any(kept) {
        true => audit.keyed(&approval.arguments_sha256),
        false => approval.arguments_sha256.clone(),
    }
}

/// A result as it is written down: what was refused, and why, may be told in words that repeat a secret.
fn kept(result: CallResult) -> CallResult {
    let text = |message: &str| clipped(&redact::message(message), LONGEST_TEXT);
    match result {
        CallResult::Failed { kind, message } => CallResult::Failed { kind, message: text(&message) },
        CallResult::Refused { kind, message, rule } => {
            CallResult::Refused { kind, message: text(&message), rule }
        }
        CallResult::Done { .. } | CallResult::Unknown => result,
    }
}

/// The same for a verdict.
fn keep(verdict: &mut GateVerdict) {
    if let Verdict::Deny(violation) = &mut verdict.verdict {
        for text in std::iter::once(&mut violation.message).chain(&mut violation.hint) {
            *text = redact::message(text).into_owned();
        }
    }
}

fn clipped(text: &str, longest: usize) -> String {
    text.chars().take(longest).collect()
}

pub(crate) fn refused(violation: &Violation) -> CallResult {
    CallResult::Refused {
        kind: violation.kind.as_str().to_owned(),
        message: violation.message.clone(),
        rule: violation.rule.clone(),
    }
}

/// The record of a call that waited for a person and does not run.
pub(crate) fn unrun(approval: &Approval, violation: &Violation, audit: &AuditLog) -> Entry {
    let mut verdicts = vec![
        GateVerdict::pass(Gate::Identity).by(approval.caller.credential.as_str()),
        GateVerdict::pass(Gate::Catalog),
        GateVerdict::pass(Gate::Arguments),
        GateVerdict::pass(Gate::Policy).under(approval.policy_version.as_str()),
        GateVerdict::deny(Gate::Approval, violation.clone()),
    ];
    verdicts.iter_mut().for_each(keep);
    let mut record = CallRecord {
        time: Timestamp::now(),
        call: approval.call,
        caller: approval.caller.clone(),
        tool: approval.tool.clone(),
        asked_as: approval.asked_as.clone(),
        arguments: approval.summary().arguments,
        arguments_sha256: approval.arguments_sha256.clone(),
        verdicts,
        result: kept(refused(violation)),
        label: None,
        approval: Some(approval.id.clone()),
        proof: approval.proof.clone(),
        micros: 0,
    };
    if redact::hides_any(&record.arguments) {
        key_digests(&mut record, audit);
    }
    Entry::Call(Box::new(record))
}

/// The record of a call whose node died between its intent and its outcome.
pub(crate) fn interrupted(intent: &Intent) -> Entry {
    Entry::Call(Box::new(CallRecord {
        time: Timestamp::now(),
        call: intent.call,
        caller: intent.caller.clone(),
        tool: intent.tool.clone(),
        asked_as: None,
        arguments: Map::new(),
        arguments_sha256: intent.arguments_sha256.clone(),
        verdicts: Vec::new(),
        result: CallResult::Unknown,
        label: None,
        approval: intent.approval.clone(),
        proof: None,
        micros: 0,
    }))
}
