//! What a client is told of a call that has ended.

use std::borrow::Cow;

use aegis_core::{
    Approval, ApprovalState, FailureKind, Label, Timestamp, Violation, ViolationKind,
    id::{ApprovalId, CallId},
    outcome::Passed,
};
use aegis_plane::Done;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    answer::{self, Answer},
    carried::Carried,
    conversation::Conversation,
    era::Era,
    fault::{Fault, INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY},
    parked::Asked,
    wanted::{RESOURCE_NOT_FOUND, Shape},
};

/// A result; what is no result is an error of the protocol.
pub(crate) enum Told<'a> {
    Done {
        json: Cow<'a, str>,
        value: &'a Value,
        /// Where that is another object than `value`.
        structured: Option<&'a Value>,
    },
    /// What went wrong, as JSON.
    Failed(Cow<'a, str>),
    /// The members of a result as a server gave them, as an object.
    Passed { members: Cow<'a, str>, shape: Shape },
    /// Questions of a server.
    Asks(&'a str),
    /// The call goes on as a task of its server.
    Task(&'a str),
}

impl<'a> Told<'a> {
    pub(crate) fn of(result: &'a Result<Done, Violation>, shape: Shape, era: Era) -> Result<Self, Fault> {
        let done = match result {
            Ok(done) => done,
            Err(violation) if shape == Shape::Tool => return Self::refused(violation),
            Err(violation) => return Err(Fault::of(violation)),
        };
        let (json, outcome) = (Cow::Borrowed(done.json.as_str()), &done.outcome);
        match &outcome.passed {
            Some(Passed::Result(_)) if shape == Shape::Done => {
                return Ok(Self::Passed { members: "{}".into(), shape });
            }
            Some(Passed::Result(members)) => {
                return Ok(Self::Passed { members: fitted(members, shape, era), shape });
            }
            Some(Passed::Asks(members)) if era.is_modern() => return Ok(Self::Asks(members)),
            Some(Passed::Asks(_)) => {
                return Err(Fault::new(
                    StatusCode::OK,
                    INTERNAL_ERROR,
                    "the server wants to ask something that this client can't be asked",
                ));
            }
            Some(Passed::Task(members)) if era.is_modern() => return Ok(Self::Task(members)),
            Some(Passed::Task(_)) => {
                return Err(Fault::new(
                    StatusCode::OK,
                    INTERNAL_ERROR,
                    "the server made a task of the call, which this client can't hold",
                ));
            }
            Some(Passed::Error(text)) => return Err(passed_error(text, shape, era)),
            None => {}
        }
        Ok(match outcome.failure {
            None if shape == Shape::Tool => {
                Self::Done { json, value: &outcome.value, structured: outcome.structured.as_ref() }
            }
            None => Self::Passed { members: json, shape },
            Some(_) if shape == Shape::Tool => Self::Failed(json),
            Some(kind) => {
                let code = if kind == FailureKind::NotFound { INVALID_PARAMS } else { INTERNAL_ERROR };
                let message = outcome.value["error"].as_str().unwrap_or("the server could not be asked");
                return Err(
                    Fault::new(StatusCode::OK, code, message).with_data(json!({"error_kind": kind.as_str()}))
                );
            }
        })
    }

    /// A model that is told what was wrong with its arguments can mend them, and one that is told why a person said no
    /// can do without; protocol errors seldom reach it.
    fn refused(violation: &Violation) -> Result<Self, Fault> {
        match violation.kind {
            ViolationKind::InvalidArguments
            | ViolationKind::ApprovalRejected
            | ViolationKind::ApprovalExpired
            | ViolationKind::ApprovalVoid => Ok(Self::Failed(Cow::Owned(as_failure(violation)))),
            _ => Err(Fault::of(violation)),
        }
    }

    pub(crate) fn render(&self, conversation: &Conversation, asked: &Asked, meta: &CallMeta<'_>) -> Answer {
        let room = match self {
            Self::Done { json, .. } => 512 + 3 * json.len(),
            Self::Failed(json) => 512 + 2 * json.len(),
            Self::Passed { members, .. } => 512 + members.len(),
            Self::Asks(members) | Self::Task(members) => 1024 + 2 * members.len(),
        };
        let mut out = match self {
            Self::Asks(_) => answer::begin_as(&asked.id, "input_required", room),
            Self::Task(_) => answer::begin_as(&asked.id, "task", room),
            _ => answer::begin(&asked.id, asked.era, room),
        };
        match self {
            Self::Asks(members) => {
                write_questions(&mut out, members, &asked.digest);
                conversation.write_meta(&mut out, asked.era, Some(meta));
            }
            Self::Task(members) => match conversation.server_tasks.file(&asked.credential, members) {
                Some(members) => {
                    write_members(&mut out, &Value::Object(members).to_string());
                    conversation.write_meta(&mut out, asked.era, Some(meta));
                }
                None => {
                    let broken =
                        Fault::new(StatusCode::OK, INTERNAL_ERROR, "the server's task can't be read");
                    return broken.answer(&asked.id);
                }
            },
            _ => self.write(conversation, &mut out, asked.era, meta),
        }
        answer::end(out).into()
    }

    /// Writes the members of the result.
    pub(crate) fn write(
        &self,
        conversation: &Conversation,
        out: &mut Vec<u8>,
        era: Era,
        meta: &CallMeta<'_>,
    ) {
        match self {
            Self::Done { json, value, structured } => success(out, era, json, value, *structured),
            Self::Failed(json) => failure(out, json),
            Self::Passed { members, shape } => {
                write_members(out, members);
                if *shape == Shape::Resource && era.is_modern() {
                    // What a server lets be read may be read by others no more the next moment.
                    out.extend_from_slice(b"\"ttlMs\":0,\"cacheScope\":\"private\",");
                }
            }
            Self::Asks(members) | Self::Task(members) => write_members(out, members),
        }
        conversation.write_meta(out, era, Some(meta));
    }
}

/// Writes the members of an object, each with a comma after it.
fn write_members(out: &mut Vec<u8>, object: &str) {
    let inner = object.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
    if !inner.trim().is_empty() {
        out.extend_from_slice(inner.as_bytes());
        out.push(b',');
    }
}

/// Writes questions of a server. What it wants to have back is wrapped, so that it comes back to the same request.
fn write_questions(out: &mut Vec<u8>, members: &str, digest: &str) {
    let mut members: Map<String, Value> = serde_json::from_str(members).unwrap_or_default();
    if let Some(state) = members.remove("requestState") {
        let carried = Carried::Server { request: digest.to_owned(), state };
        members.insert("requestState".into(), carried.seal().into());
    }
    write_members(out, &Value::Object(members).to_string());
}

/// A result as the revision has it. Structured content came late, and could at first only be an object.
fn fitted(members: &str, shape: Shape, era: Era) -> Cow<'_, str> {
    if shape != Shape::Tool || era.is_modern() || !members.contains("\"structuredContent\"") {
        return Cow::Borrowed(members);
    }
    let Ok(mut parsed) = serde_json::from_str::<Map<String, Value>>(members) else {
        return Cow::Borrowed(members);
    };
    let fits = parsed.get("structuredContent").is_none_or(Value::is_object);
    if fits && era.has_structured_content() {
        return Cow::Borrowed(members);
    }
    parsed.remove("structuredContent");
    Cow::Owned(Value::Object(parsed).to_string())
}

/// An error as a server worded it, with the code that the client's revision has for it.
fn passed_error(text: &str, shape: Shape, era: Era) -> Fault {
    #[derive(Deserialize)]
    struct Error {
        code: i64,
        message: String,
        #[serde(default)]
        data: Option<Value>,
    }
    let Ok(Error { code, message, data }) = serde_json::from_str(text) else {
        return Fault::new(StatusCode::OK, INTERNAL_ERROR, "the server's error can't be read");
    };
    let about_resource =
        shape == Shape::Resource && data.as_ref().is_some_and(|data| data.get("uri").is_some());
    let code = match code {
        INVALID_PARAMS if about_resource && !era.is_modern() => RESOURCE_NOT_FOUND,
        RESOURCE_NOT_FOUND if era.is_modern() => INVALID_PARAMS,
        // These speak of the message itself, and ours was read.
        -32700 | -32600 | -32601 => INTERNAL_ERROR,
        code => code,
    };
    let status = if code == MISSING_CAPABILITY { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let fault = Fault::new(status, code, message);
    match data {
        Some(data) => fault.with_data(data),
        None => fault,
    }
}

fn success(out: &mut Vec<u8>, era: Era, json: &str, value: &Value, structured: Option<&Value>) {
    out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
    // An answer that is a string is its own text, and is a JSON string already.
    if value.is_string() {
        out.extend_from_slice(json.as_bytes());
    } else {
        answer::write_json(out, json);
    }
    out.extend_from_slice(b"}],");
    if era.has_structured_content() {
        match structured {
            Some(structured) => {
                out.extend_from_slice(b"\"structuredContent\":");
                answer::write_json(out, structured);
                out.push(b',');
            }
            None if value.is_object() => {
                out.extend_from_slice(b"\"structuredContent\":");
                out.extend_from_slice(json.as_bytes());
                out.push(b',');
            }
            None => {}
        }
    }
    out.extend_from_slice(b"\"isError\":false,");
}

/// A result that says what went wrong. It has no `structuredContent`: that would have to match the tool's schema.
fn failure(out: &mut Vec<u8>, json: &str) {
    out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
    answer::write_json(out, json);
    out.extend_from_slice(b"}],\"isError\":true,");
}

/// The same members that tools use for their own failures.
fn as_failure(violation: &Violation) -> String {
    let mut members = json!({"error": violation.message, "error_kind": violation.kind.as_str()});
    for (name, text) in [("hint", &violation.hint), ("rule", &violation.rule)] {
        if let Some(text) = text {
            members[name] = Value::from(text.as_str());
        }
    }
    members.to_string()
}

/// What a client can learn about a result besides its content.
#[derive(Serialize)]
pub(crate) struct CallMeta<'a> {
    /// The call's name in the audit log.
    #[serde(rename = "aegis/call")]
    call: CallId,
    #[serde(rename = "aegis/label", skip_serializing_if = "Option::is_none")]
    label: Option<&'a Label>,
    #[serde(rename = "aegis/error_kind", skip_serializing_if = "Option::is_none")]
    error_kind: Option<&'static str>,
    #[serde(rename = "aegis/approval", skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalMeta<'a>>,
}

/// The approval that a call waits for, or went by.
#[derive(Serialize)]
struct ApprovalMeta<'a> {
    id: &'a ApprovalId,
    state: ApprovalState,
    expires: Timestamp,
}

impl<'a> CallMeta<'a> {
    pub(crate) fn of(
        call: CallId,
        result: &'a Result<Done, Violation>,
        approval: Option<&'a Approval>,
    ) -> Self {
        let (label, error_kind) = match result {
            Ok(done) => (Some(&done.outcome.label), done.outcome.failure.map(FailureKind::as_str)),
            Err(violation) => (None, Some(violation.kind.as_str())),
        };
        Self { call, label, error_kind, approval: approval.map(ApprovalMeta::of) }
    }

    /// Of a call that has not run: there is no content that could have come from anywhere.
    pub(crate) fn waiting(approval: &'a Approval) -> Self {
        let approval_meta = Some(ApprovalMeta::of(approval));
        Self { call: approval.call, label: None, error_kind: None, approval: approval_meta }
    }
}

impl<'a> ApprovalMeta<'a> {
    fn of(approval: &'a Approval) -> Self {
        Self { id: &approval.id, state: approval.state, expires: approval.expires }
    }
}
