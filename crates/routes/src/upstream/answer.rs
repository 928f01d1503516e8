//! From a server's result to the outcome of a call.

use aegis_core::{Failure, FailureKind, Label, Outcome, outcome::Passed, secret::Redactor};
use serde_json::{Map, Value, value::RawValue};

use super::definition::Sound;
use crate::tool::failure_members;

/// Of a result, what says how it is to be treated and not what it is.
const ENVELOPE: [&str; 4] = ["resultType", "ttlMs", "cacheScope", "_meta"];
const LONGEST_ERROR: usize = 2000;

/// A result as an object, without secrets that the server may have echoed.
pub(super) fn read(result: &RawValue, redactor: &Redactor) -> Result<Map<String, Value>, Failure> {
    let mut value: Value = serde_json::from_str(result.get()).map_err(|error| {
        Failure::new(FailureKind::UpstreamError, format!("the server's answer can't be read: {error}"))
    })?;
    if redactor.finds(result.get().as_bytes()) {
        redactor.value(&mut value);
    }
    match value {
        Value::Object(members) => Ok(members),
        _ => Err(Failure::new(FailureKind::UpstreamError, "the server's answer is no object")),
    }
}

/// The result of `tools/call`.
pub(super) fn of_tool(
    sound: &Sound,
    label: &Label,
    mut members: Map<String, Value>,
) -> Result<Outcome, Failure> {
    let kind = members.get("resultType").and_then(Value::as_str).unwrap_or("complete").to_owned();
    if kind == "task" {
        return Ok(created(label, members));
    }
    for member in ENVELOPE {
        members.shift_remove(member);
    }
    let broken = |what: &str| Failure::new(FailureKind::UpstreamError, format!("the server's answer {what}"));
    match kind.as_str() {
        "complete" => {}
        "input_required" => return Ok(asks(label, members)),
        _ => return Err(broken("is of a kind that was not asked for")),
    }
    let said = text_of(&members);
    if members.get("isError") == Some(&Value::Bool(true)) {
        let told: String = said.unwrap_or_default().chars().take(LONGEST_ERROR).collect();
        let failure = Failure::new(FailureKind::UpstreamError, told);
        let value = failure_members([("tool", sound.spec.name.as_ref().into())], &failure);
        return Ok(Outcome {
            passed: Some(Passed::Result(text(members))),
            failure: Some(FailureKind::UpstreamError),
            ..outcome(label, Value::Object(value), None)
        });
    }
    if !members.get("content").is_some_and(Value::is_array) {
        return Err(broken("has no `content`"));
    }
    let structured = members.get("structuredContent").filter(|value| !value.is_null()).cloned();
    if let Some(validator) = &sound.output {
        let structured =
            structured.as_ref().ok_or_else(|| broken("lacks the `structuredContent` that it promises"))?;
        if let Err(error) = validator.validate(structured) {
            let what: String = error.masked().to_string().chars().take(300).collect();
            return Err(broken(&format!("does not match its own outputSchema: {what}")));
        }
    }
    let value = match (structured, said) {
        (Some(structured), _) => structured,
        (None, Some(said)) => Value::String(said),
        (None, None) => Value::Object(members.clone()),
    };
    Ok(Outcome { passed: Some(Passed::Result(text(members))), ..outcome(label, value, None) })
}

/// A call that goes on as a task. How long a task lives is said by the same name as how long a result may be kept.
fn created(label: &Label, mut members: Map<String, Value>) -> Outcome {
    members.shift_remove("resultType");
    members.shift_remove("_meta");
    let value = Value::Object(members.clone());
    Outcome { passed: Some(Passed::Task(text(members))), ..outcome(label, value, None) }
}

/// How a task stands.
pub(super) fn task(label: &Label, members: Map<String, Value>) -> Outcome {
    let mut outcome = created(label, members);
    if let Some(Passed::Task(members)) = outcome.passed.take() {
        outcome.passed = Some(Passed::Result(members));
    }
    outcome
}

/// A result that is itself a question.
pub(super) fn asks(label: &Label, members: Map<String, Value>) -> Outcome {
    let value = Value::Object(members.clone());
    Outcome { passed: Some(Passed::Asks(text(members))), ..outcome(label, value, None) }
}

/// The result of anything else: its members are the answer.
pub(super) fn plain(label: &Label, mut members: Map<String, Value>) -> Outcome {
    let asks_back = members.get("resultType").and_then(Value::as_str) == Some("input_required");
    for member in ENVELOPE {
        members.shift_remove(member);
    }
    if asks_back {
        return asks(label, members);
    }
    let value = Value::Object(members.clone());
    Outcome { passed: Some(Passed::Result(text(members))), ..outcome(label, value, None) }
}

pub(super) fn failure(tool: &str, label: &Label, failure: &Failure) -> Outcome {
    let value = failure_members([("tool", tool.into())], failure);
    Outcome { failure: Some(failure.kind), ..outcome(label, Value::Object(value), None) }
}

pub(super) fn outcome(label: &Label, value: Value, structured: Option<Value>) -> Outcome {
    Outcome { value, structured, failure: None, label: label.clone(), events: Vec::new(), passed: None }
}

fn text(members: Map<String, Value>) -> String {
    Value::Object(members).to_string()
}

/// The text of a result that is nothing but text.
fn text_of(members: &Map<String, Value>) -> Option<String> {
    let blocks = members.get("content")?.as_array()?;
    let texts: Option<Vec<&str>> =
        blocks.iter().map(|block| (block["type"] == "text").then(|| block["text"].as_str())?).collect();
    texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n"))
}
