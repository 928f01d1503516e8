//! Turning what happened to a call into its one audit record.

use std::time::Instant;

use aegis_core::{
    Call, Caller, GateVerdict, Label, Timestamp, Violation, call,
    id::{CallId, TenantId},
    record::{CallRecord, CallResult, Entry, Intent},
    redact,
};
use serde_json::{Map, Value};

use crate::admission::Admission;

/// Names of tools come from callers until the catalog knows them.
const LONGEST_NAME: usize = 128;
/// Messages and origins may repeat what a caller or a server sent.
const LONGEST_TEXT: usize = 1024;

/// What is known of a call from its first moment on; becomes the record at its end.
#[derive(Debug)]
pub(crate) struct Draft {
    started: Instant,
    record: CallRecord,
}

impl Draft {
    pub(crate) fn new(caller: &Caller, call: &Call) -> Self {
        Self {
            started: Instant::now(),
            record: CallRecord {
                time: Timestamp::now(),
                call: call.id,
                caller: caller.clone(),
                tool: clipped(&call.tool, LONGEST_NAME),
                asked_as: None,
                arguments: Map::new(),
                arguments_sha256: String::new(),
                verdicts: Vec::new(),
                result: CallResult::Unknown,
                label: None,
                micros: 0,
            },
        }
    }

    /// The arguments as the caller sent them, for a call that gets no further.
    pub(crate) fn asked(&mut self, arguments: &Map<String, Value>) {
        self.record.arguments = redact::arguments(arguments);
        self.record.arguments_sha256 = call::digest(arguments);
    }

    pub(crate) fn admitted(&mut self, admission: &Admission) {
        self.asked(&admission.arguments);
        self.record.tool = admission.tool.name.to_string();
        self.record.asked_as.clone_from(&admission.asked_as);
        self.record.verdicts.clone_from(&admission.verdicts);
    }

    pub(crate) fn verdicts(&mut self, verdicts: Vec<GateVerdict>) {
        self.record.verdicts = verdicts;
    }

    pub(crate) fn verdict(&mut self, verdict: GateVerdict) {
        self.record.verdicts.push(verdict);
    }

    pub(crate) fn tool(&mut self, name: &str, asked_as: Option<String>) {
        name.clone_into(&mut self.record.tool);
        self.record.asked_as = asked_as;
    }

    pub(crate) fn call(&self) -> CallId {
        self.record.call
    }

    /// Whose call of what this is.
    pub(crate) fn subject(&self) -> (TenantId, CallId, String) {
        (self.record.caller.tenant.clone(), self.record.call, self.record.tool.clone())
    }

    pub(crate) fn intent(&self) -> Entry {
        Entry::Intent(Intent {
            time: self.record.time,
            call: self.record.call,
            caller: self.record.caller.clone(),
            tool: self.record.tool.clone(),
            arguments_sha256: self.record.arguments_sha256.clone(),
        })
    }

    pub(crate) fn finish(mut self, result: CallResult, label: Option<Label>) -> (Entry, std::time::Duration) {
        let took = self.started.elapsed();
        self.record.result = match result {
            CallResult::Failed { kind, message } => {
                CallResult::Failed { kind, message: clipped(&message, LONGEST_TEXT) }
            }
            other => other,
        };
        self.record.label = label.map(|label| Label {
            origin: label.origin.map(|origin| clipped(&origin, LONGEST_TEXT)),
            ..label
        });
        self.record.micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        (Entry::Call(Box::new(self.record)), took)
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
        micros: 0,
    }))
}
