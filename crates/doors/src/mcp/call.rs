//! `tools/call`: from a request to a call, and from the plane's reply to a result.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use aegis_core::{Call, Caller, Violation, ViolationKind, id::CallId};
use aegis_plane::{Reply, pipeline::Done};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    answer,
    conversation::Conversation,
    definitions::Names,
    era::Era,
    fault::Fault,
    in_flight::{Entered, InFlight},
    message::{Request, string},
    strict,
};

/// A call in work.
pub(crate) struct Running {
    /// The answer as text, or nothing if the client withdrew the request and wants none.
    pub(crate) answer: BoxFuture<'static, Option<Vec<u8>>>,
    /// Under which name the client wants to hear of progress.
    pub(crate) progress_token: Option<String>,
}

/// How a client takes a request back.
pub(crate) enum Withdrawal<'a> {
    /// By closing the connection.
    Disconnect,
    /// By a notification that names the id. Closing the connection means nothing.
    Notification(&'a Arc<InFlight>),
    /// Not at all: there is no session in which an id could be looked up.
    Never,
}

pub(crate) fn start(
    conversation: &Arc<Conversation>,
    caller: Caller,
    request: &Request<'_>,
    era: Era,
    names: Names,
    withdrawal: &Withdrawal<'_>,
) -> Result<Running, Fault> {
    let asked = request
        .params
        .name
        .and_then(string)
        .ok_or_else(|| Fault::invalid_params("`params.name` must be the name of a tool"))?;
    let arguments = match request.params.arguments {
        Some(raw) if raw.get() != "null" => strict::object(raw.get())
            .map_err(|error| Fault::invalid_params(format!("`params.arguments`: {error}")))?,
        _ => Map::new(),
    };
    let call = Call::new(conversation.definitions.exact(names, &asked), arguments);
    let mut withdrawn = CancellationToken::new();
    // Both live for as long as somebody waits.
    let (mut connection, mut entered): (Option<DropGuard>, Option<Entered>) = (None, None);
    match withdrawal {
        Withdrawal::Disconnect => connection = Some(withdrawn.clone().drop_guard()),
        Withdrawal::Notification(in_flight) => {
            let entry = in_flight.enter(request.id);
            withdrawn = entry.withdrawn.clone();
            entered = Some(entry);
        }
        Withdrawal::Never => {}
    }
    let id = request.id.as_str().to_owned();
    let conversation = Arc::clone(conversation);
    let outlives_connection = entered.is_some();
    let answer: BoxFuture<'static, _> = Box::pin(async move {
        let _waiting = (connection, entered);
        // The plane cancels its own token at the deadline, which is no withdrawal.
        let reply = conversation.doors.plane.call(caller, call, withdrawn.child_token());
        let reply = tokio::select! {
            biased;
            () = withdrawn.cancelled() => return None,
            reply = reply => reply,
        };
        Some(render(&conversation, &id, era, &reply))
    });
    let answer = if outlives_connection { Box::pin(Outliving(Some(answer))) } else { answer };
    Ok(Running { answer, progress_token: request.params.progress_token().map(str::to_owned) })
}

/// A call that its client can withdraw by id also after the connection broke: until it ends, somebody must remember
/// the id.
struct Outliving(Option<BoxFuture<'static, Option<Vec<u8>>>>);

impl Future for Outliving {
    type Output = Option<Vec<u8>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.0 else { return Poll::Ready(None) };
        let answer = std::task::ready!(call.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(answer)
    }
}

impl Drop for Outliving {
    fn drop(&mut self) {
        if let Some(call) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(call);
        }
    }
}

fn render(conversation: &Conversation, id: &str, era: Era, reply: &Reply) -> Vec<u8> {
    match &reply.result {
        Ok(done) if done.outcome.failure.is_none() => success(conversation, id, era, reply.call, done),
        Ok(done) => {
            let kind = done.outcome.failure.map(aegis_core::FailureKind::as_str);
            failure(conversation, id, era, &done.json, &meta(reply.call, Some(done), kind))
        }
        // A model that is told what was wrong with its arguments can mend them; protocol errors seldom reach it.
        Err(violation) if violation.kind == ViolationKind::InvalidArguments => {
            let kind = Some(violation.kind.as_str());
            failure(conversation, id, era, &as_failure(violation), &meta(reply.call, None, kind))
        }
        Err(violation) => {
            let mut fault = Fault::of(violation);
            if let Some(data) = &mut fault.data {
                data["call"] = json!(reply.call);
            }
            fault.render(Some(id))
        }
    }
}

fn success(conversation: &Conversation, id: &str, era: Era, call: CallId, done: &Done) -> Vec<u8> {
    let mut out = answer::begin(id, era, 512 + 3 * done.json.len());
    out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
    // An answer that is a string is its own text, and is a JSON string already.
    if done.outcome.value.is_string() {
        out.extend_from_slice(done.json.as_bytes());
    } else {
        answer::write_json(&mut out, done.json.as_str());
    }
    out.extend_from_slice(b"}],");
    if era.has_structured_content() {
        match &done.outcome.structured {
            Some(structured) => {
                out.extend_from_slice(b"\"structuredContent\":");
                answer::write_json(&mut out, structured);
                out.push(b',');
            }
            None if done.outcome.value.is_object() => {
                out.extend_from_slice(b"\"structuredContent\":");
                out.extend_from_slice(done.json.as_bytes());
                out.push(b',');
            }
            None => {}
        }
    }
    out.extend_from_slice(b"\"isError\":false,");
    conversation.write_meta(&mut out, era, Some(&meta(call, Some(done), None)));
    answer::end(out)
}

/// A result that says what went wrong. It has no `structuredContent`: that would have to match the tool's schema.
fn failure(conversation: &Conversation, id: &str, era: Era, text: &str, meta: &CallMeta<'_>) -> Vec<u8> {
    let mut out = answer::begin(id, era, 512 + 2 * text.len());
    out.extend_from_slice(b"\"content\":[{\"type\":\"text\",\"text\":");
    answer::write_json(&mut out, text);
    out.extend_from_slice(b"}],\"isError\":true,");
    conversation.write_meta(&mut out, era, Some(meta));
    answer::end(out)
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
    label: Option<&'a aegis_core::Label>,
    #[serde(rename = "aegis/error_kind", skip_serializing_if = "Option::is_none")]
    error_kind: Option<&'a str>,
}

fn meta<'a>(call: CallId, done: Option<&'a Done>, error_kind: Option<&'a str>) -> CallMeta<'a> {
    CallMeta { call, label: done.map(|done| &done.outcome.label), error_kind }
}
