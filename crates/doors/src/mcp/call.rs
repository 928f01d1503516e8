//! `tools/call`: from a request to a call, and from the plane's reply to a result.

use std::{
    borrow::Cow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use aegis_core::{
    Approval, ApprovalState, Call, Caller, FailureKind, Label, Timestamp, Violation, ViolationKind,
    id::{ApprovalId, CallId},
};
use aegis_plane::{Done, Reply};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    abilities::Abilities,
    answer,
    conversation::Conversation,
    definitions::Names,
    era::Era,
    fault::Fault,
    in_flight::{Entered, InFlight},
    message::{Request, string},
    parked::{self, Asked},
    progress,
    questions::Questions,
};
use crate::strict;

/// A call in work.
pub(crate) struct Running {
    /// The answer as text, or nothing if the client withdrew the request and wants none.
    pub(crate) answer: BoxFuture<'static, Option<Vec<u8>>>,
    /// Under which name the client wants to hear of progress.
    pub(crate) progress_token: Option<String>,
    /// What is to be said before the answer: questions to the client.
    pub(crate) asides: Option<mpsc::Receiver<Vec<u8>>>,
    /// In a word, for progress.
    pub(crate) doing: &'static str,
}

/// The client, as far as it can be asked something.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    /// What it declared for its session. A stateless request declares its own.
    pub(crate) abilities: Abilities,
    /// Where its answers come in, if it can be asked while a call runs.
    pub(crate) questions: Option<&'a Arc<Questions>>,
    /// Where this node's pages are, as the client writes it.
    pub(crate) origin: Option<&'a (dyn Fn() -> String + Sync)>,
    /// Whether an answer may come late.
    pub(crate) may_wait: bool,
    /// Whether it is all there is: nobody else can reach this node.
    pub(crate) alone: bool,
}

impl Client<'_> {
    /// A client that can't be asked, and has others waiting behind it.
    pub(crate) const MUTE: Self = Self {
        abilities: Abilities { form: false, page: false, tasks: false },
        questions: None,
        origin: None,
        may_wait: false,
        alone: false,
    };
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
    client: Client<'_>,
) -> Result<Running, Fault> {
    let name = request
        .params
        .name
        .and_then(string)
        .ok_or_else(|| Fault::invalid_params("`params.name` must be the name of a tool"))?;
    let arguments = match request.params.arguments {
        Some(raw) if raw.get() != "null" => strict::object(raw.get())
            .map_err(|error| Fault::invalid_params(format!("`params.arguments`: {error}")))?,
        _ => Map::new(),
    };
    let call = Call::new(conversation.definitions.exact(names, &name), arguments);
    let (asked, asides) = Asked::new(request, era, client, &call);
    let retry = match request.params.request_state {
        Some(state) if era.is_modern() => Some(asked.retry(state, request.params.input_responses)?),
        _ => None,
    };
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
    let conversation = Arc::clone(conversation);
    let outlives_connection = entered.is_some();
    let doing = if retry.is_some() { progress::WAITING } else { progress::RUNNING };
    let answer: BoxFuture<'static, _> = Box::pin(async move {
        let _waiting = (connection, entered);
        if let Some(retry) = retry {
            let resumed = Box::pin(parked::resume(&conversation, &caller, &asked, &retry));
            return tokio::select! {
                biased;
                () = withdrawn.cancelled() => None,
                answer = resumed => Some(answer),
            };
        }
        // Whoever asks hears the outcome, also of a request that was filed over another connection.
        let requester = caller.clone();
        // The plane cancels its own token at the deadline, which is no withdrawal.
        let reply = conversation.doors.plane.call(caller, call, withdrawn.child_token());
        let reply = tokio::select! {
            biased;
            () = withdrawn.cancelled() => return None,
            reply = reply => reply,
        };
        let Ok(Done { pending: Some(approval), .. }) = &reply.result else {
            return Some(render(&conversation, &asked.id, era, &reply));
        };
        let settled = Box::pin(parked::settle(&conversation, &requester, &asked, reply.call, approval));
        tokio::select! {
            biased;
            () = withdrawn.cancelled() => {
                parked::take_back(&conversation, approval).await;
                None
            }
            answer = settled => Some(answer),
        }
    });
    let answer = if outlives_connection { Box::pin(Outliving(Some(answer))) } else { answer };
    Ok(Running { answer, progress_token: request.params.progress_token().map(str::to_owned), asides, doing })
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
    match Told::of(&reply.result) {
        Ok(told) => told.render(conversation, id, era, &CallMeta::of(reply.call, &reply.result, None)),
        Err(mut fault) => {
            if let Some(data) = &mut fault.data {
                data["call"] = json!(reply.call);
            }
            fault.render(Some(id))
        }
    }
}

/// What a client is told of a call that has ended, if that is a result and no error of the protocol.
pub(crate) enum Told<'a> {
    Done {
        json: Cow<'a, str>,
        value: &'a Value,
        /// Where that is another object than `value`.
        structured: Option<&'a Value>,
    },
    /// What went wrong, as JSON.
    Failed(Cow<'a, str>),
}

impl<'a> Told<'a> {
    pub(crate) fn of(result: &'a Result<Done, Violation>) -> Result<Self, Fault> {
        let done = match result {
            Ok(done) => done,
            Err(violation) => return Self::refused(violation),
        };
        let (json, outcome) = (Cow::Borrowed(done.json.as_str()), &done.outcome);
        Ok(match outcome.failure {
            None => Self::Done { json, value: &outcome.value, structured: outcome.structured.as_ref() },
            Some(_) => Self::Failed(json),
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

    pub(crate) fn render(
        &self,
        conversation: &Conversation,
        id: &str,
        era: Era,
        meta: &CallMeta<'_>,
    ) -> Vec<u8> {
        let room = match self {
            Self::Done { json, .. } => 512 + 3 * json.len(),
            Self::Failed(json) => 512 + 2 * json.len(),
        };
        let mut out = answer::begin(id, era, room);
        self.write(conversation, &mut out, era, meta);
        answer::end(out)
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
        }
        conversation.write_meta(out, era, Some(meta));
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
