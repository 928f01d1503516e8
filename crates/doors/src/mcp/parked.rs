//! A call that waits for a person's approval, in the words of each revision: a task, a question that the client
//! answers by repeating its request, a question on the stream of its answer, or just the word that it waits. None of
//! these approves anything: the requester can only wait, or take the request back.

use std::{borrow::Cow, sync::Arc};

use aegis_core::{
    Approval, Caller, Violation, ViolationKind,
    id::{ApprovalId, CallId, CredentialId},
};
use aegis_plane::Done;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::{sync::mpsc, time::Instant};

use super::{
    abilities::Abilities,
    answer::{self, Answer},
    call::Client,
    carried::{Carried, Parked},
    conversation::Conversation,
    ears::Aside,
    era::{Era, Revision},
    fault::Fault,
    message::Request,
    questions::{Question, Questions, Said},
    tasks,
    told::{CallMeta, Told},
    wanted::{Shape, Wanted},
};
use crate::words::Words;

/// How often a request is answered with another question. Official clients give up after ten.
const MOST_ROUNDS: u8 = 8;
/// The tool that tells how a request stands.
const REQUEST_TOOL: &str = "tool.approval-request";
/// Under which name the question is asked.
const QUESTION: &str = "approval";

/// A request as far as its answer needs it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// As JSON.
    pub(crate) id: String,
    pub(crate) era: Era,
    pub(crate) shape: Shape,
    /// Of the exact request.
    pub(crate) digest: String,
    /// Whose it is.
    pub(crate) credential: CredentialId,
    /// Where what the call says goes, if the client wants to hear it.
    words: Option<Arc<Words>>,
    manner: Manner,
    may_wait: bool,
    alone: bool,
}

/// How the client is to hear that its call waits.
#[derive(Debug)]
enum Manner {
    /// It asks again by itself.
    Poll,
    /// It repeats the request with the answer to a question.
    Repeat { prompt: Prompt },
    /// It is asked on the stream of its answer.
    Question { prompt: Prompt, questions: Arc<Questions>, asides: mpsc::Sender<Aside> },
    /// It holds a task.
    Task,
}

/// What kind of question the client can show.
#[derive(Debug, Clone)]
enum Prompt {
    Form,
    /// A page of ours; the address of the node as the client writes it.
    Page(String),
}

impl Prompt {
    fn of(abilities: Abilities, client: &Client<'_>) -> Option<Self> {
        match client.origin.filter(|_| abilities.page) {
            Some(origin) => Some(Self::Page(origin())),
            None => abilities.form.then_some(Self::Form),
        }
    }
}

impl Asked {
    pub(crate) fn new(
        caller: &Caller,
        request: &Request<'_>,
        era: Era,
        client: Client<'_>,
        wanted: &Wanted,
        asides: Option<&mpsc::Sender<Aside>>,
        words: Option<&Arc<Words>>,
    ) -> Self {
        let manner = match (era, client.questions, asides) {
            (Era::Modern, ..) => {
                let abilities = Abilities::of_request(request.params.meta.capabilities);
                match Prompt::of(abilities, &client) {
                    _ if abilities.tasks && wanted.shape == Shape::Tool => Manner::Task,
                    Some(prompt) if wanted.shape.can_ask() => Manner::Repeat { prompt },
                    _ => Manner::Poll,
                }
            }
            (Era::Legacy(_), Some(questions), Some(asides)) => match Prompt::of(client.abilities, &client) {
                Some(prompt) => {
                    Manner::Question { prompt, questions: Arc::clone(questions), asides: asides.clone() }
                }
                None => Manner::Poll,
            },
            (Era::Legacy(_), ..) => Manner::Poll,
        };
        let Client { may_wait, alone, .. } = client;
        let id = request.id.as_str().to_owned();
        let (digest, credential) = (wanted.digest.clone(), caller.credential.clone());
        let words = words.cloned();
        Self { id, era, shape: wanted.shape, digest, credential, words, manner, may_wait, alone }
    }
}

#[derive(Deserialize)]
struct Responses<'a> {
    #[serde(borrow)]
    approval: Option<&'a RawValue>,
}

/// A request that is repeated.
#[derive(Debug)]
pub(crate) struct Retry<'a> {
    parked: &'a Parked,
    said: Said,
}

impl<'a> Retry<'a> {
    pub(crate) fn read(parked: &'a Parked, responses: Option<&RawValue>) -> Self {
        let said = responses
            .and_then(|raw| serde_json::from_str::<Responses<'_>>(raw.get()).ok())
            .map_or(Said::Nothing, |responses| Said::read(responses.approval));
        Self { parked, said }
    }
}

/// Answers a call that was parked: just now, or earlier and now asked for again. Who asks again waits, and is not asked
/// twice whether to.
pub(crate) async fn settle(
    conversation: &Conversation,
    caller: &Caller,
    asked: &Asked,
    call: CallId,
    approval: &Approval,
) -> Answer {
    if asked.alone {
        take_back(conversation, approval).await;
        return unreachable_approver(conversation, asked, approval);
    }
    let again = approval.call != call;
    let decided = match &asked.manner {
        Manner::Task => return tasks::created(conversation, &asked.id, approval).into(),
        _ if again && asked.may_wait => {
            Some(decision(conversation, caller, asked, approval, Deadline::new(conversation)).await)
        }
        _ => None,
    };
    let approval = decided.as_ref().unwrap_or(approval);
    match &asked.manner {
        Manner::Repeat { prompt } if !approval.is_settled() => {
            let state = Parked {
                approval: approval.id.clone(),
                request: asked.digest.clone(),
                round: 1,
                waits: again,
            };
            input_required(conversation, asked, approval, (!again).then_some(prompt), state)
        }
        Manner::Question { prompt, questions, asides } if !again => {
            let told = ask(conversation, caller, asked, approval, prompt, questions, asides).await;
            outcome(conversation, caller, asked, told.as_ref().unwrap_or(approval)).await
        }
        _ => outcome(conversation, caller, asked, approval).await,
    }
}

/// Asks the client on the stream of its answer. Gives the request as it then stands, if anything came of it.
async fn ask(
    conversation: &Conversation,
    caller: &Caller,
    asked: &Asked,
    approval: &Approval,
    prompt: &Prompt,
    questions: &Arc<Questions>,
    asides: &mpsc::Sender<Aside>,
) -> Option<Approval> {
    let deadline = Deadline::new(conversation);
    let mut asking = questions.open()?;
    asides.send(Aside::Question(elicitation(&asking, asked.era, prompt, approval))).await.ok()?;
    let said = tokio::select! {
        // An approver may be quicker than the user.
        decided = decision(conversation, caller, asked, approval, deadline) => return Some(decided),
        said = asking.answered() => said,
    };
    match said {
        Said::Accept => Some(decision(conversation, caller, asked, approval, deadline).await),
        Said::Decline => Some(take_back(conversation, approval).await),
        Said::Dismiss | Said::Nothing => None,
    }
}

/// Answers a request that is repeated with the answer to our question.
pub(crate) async fn resume(
    conversation: &Conversation,
    caller: &Caller,
    asked: &Asked,
    retry: &Retry<'_>,
) -> Answer {
    let Retry { parked: state, said } = retry;
    let approval = match own(conversation, caller, state.approval.as_str()).await {
        Ok(approval) => approval,
        Err(fault) => return fault.answer(&asked.id),
    };
    let deadline = Deadline::new(conversation);
    let (approval, waits) = match said {
        Said::Decline => (take_back(conversation, &approval).await, true),
        Said::Accept => (decision(conversation, caller, asked, &approval, deadline).await, true),
        Said::Nothing if state.waits => {
            (decision(conversation, caller, asked, &approval, deadline).await, true)
        }
        Said::Nothing | Said::Dismiss => (approval, false),
    };
    match &asked.manner {
        Manner::Repeat { prompt }
            if !approval.is_settled() && state.round < MOST_ROUNDS && *said != Said::Dismiss =>
        {
            let next = Parked { round: state.round + 1, waits, ..Parked::clone(state) };
            input_required(conversation, asked, &approval, (!waits).then_some(prompt), next)
        }
        // A client that declares less than before is answered in the way it can read.
        _ => outcome(conversation, caller, asked, &approval).await,
    }
}

/// The approval of that id, if this caller asked for it. Whether another's exists is not told.
pub(crate) async fn own(conversation: &Conversation, caller: &Caller, id: &str) -> Result<Approval, Fault> {
    let known = conversation.doors.plane.approvals().show(&ApprovalId::new(id)).await;
    let known = known.map_err(|violation| Fault::of(&violation))?;
    known.filter(|known| known.is_of(caller) && known.runs).ok_or_else(|| {
        Fault::invalid_params("there is no such request of yours; it may have ended some time ago")
    })
}

/// Until when one answer may be waited for.
#[derive(Debug, Clone, Copy)]
struct Deadline(Instant);

impl Deadline {
    fn new(conversation: &Conversation) -> Self {
        Self(Instant::now() + conversation.pace.decision)
    }
}

/// Waits for a decision and what comes of it, for as long as a client can be expected to.
async fn decision(
    conversation: &Conversation,
    caller: &Caller,
    asked: &Asked,
    approval: &Approval,
    Deadline(until): Deadline,
) -> Approval {
    let Ok(_place) = conversation.waits.try_acquire() else { return approval.clone() };
    let doors = &conversation.doors;
    let left = until.saturating_duration_since(Instant::now());
    let approvals = doors.plane.approvals();
    let decided = async {
        match &asked.words {
            Some(words) => approvals.follow(&approval.id, left, caller, &**words).await,
            None => approvals.wait(&approval.id, left).await,
        }
    };
    tokio::select! {
        decided = decided => decided.unwrap_or_else(|_| approval.clone()),
        () = doors.stopping.cancelled() => approval.clone(),
    }
}

/// The requester wants it no more. What has been decided meanwhile stays so.
pub(crate) async fn take_back(conversation: &Conversation, approval: &Approval) -> Approval {
    let approvals = conversation.doors.plane.approvals();
    match approvals.cancel(&approval.id, &approval.caller).await {
        Ok(cancelled) => cancelled,
        Err(_) => approvals.show(&approval.id).await.ok().flatten().unwrap_or_else(|| approval.clone()),
    }
}

/// What there is to say about a request now: how it ended, or that it waits.
async fn outcome(conversation: &Conversation, caller: &Caller, asked: &Asked, approval: &Approval) -> Answer {
    let Some(result) = collect(conversation, caller, approval).await else {
        return waiting(conversation, asked, approval);
    };
    match Told::of(&result, asked.shape, asked.era) {
        Ok(told) => {
            let meta = CallMeta::of(approval.call, &result, Some(approval));
            told.render(conversation, asked, &meta)
        }
        Err(fault) => fault.answer(&asked.id),
    }
}

/// What the call itself would have answered, if it has ended.
pub(crate) async fn collect(
    conversation: &Conversation,
    caller: &Caller,
    approval: &Approval,
) -> Option<Result<Done, Violation>> {
    if !approval.is_settled() {
        return None;
    }
    conversation.doors.plane.approvals().collect(&approval.id, caller).await.transpose()
}

/// Says that the call waits. An error to clients, so that no model takes it for the tool's answer.
fn waiting(conversation: &Conversation, asked: &Asked, approval: &Approval) -> Answer {
    let mut envelope = approval.envelope();
    let plane = &conversation.doors.plane;
    let state =
        plane.catalog().resolve(REQUEST_TOOL).filter(|tool| plane.policy().sees(&approval.caller, tool));
    envelope["hint"] = format!(
        "nothing has run: a person must agree first. Call {} again with exactly the same arguments to wait for the \
         decision and get the result{}; until then do not try other ways to the same end{}",
        approval.asked_as.as_deref().unwrap_or(&approval.tool),
        if state.is_some() { format!(", or ask {REQUEST_TOOL} with this intentId how it stands") } else { String::new() },
        approval.way_out().map_or_else(String::new, |way| format!(". {way}")),
    )
    .into();
    if asked.shape != Shape::Tool {
        let fault = Fault::new(
            StatusCode::OK,
            ViolationKind::ApprovalVoid.jsonrpc_code(),
            "a person must agree first",
        );
        return fault.with_data(envelope).answer(&asked.id);
    }
    let meta = CallMeta::waiting(approval);
    let told = Told::Failed(Cow::Owned(envelope.to_string()));
    told.render(conversation, asked, &meta)
}

/// Says that nobody could decide.
fn unreachable_approver(conversation: &Conversation, asked: &Asked, approval: &Approval) -> Answer {
    let result = Err(Violation::new(
        ViolationKind::ApprovalVoid,
        format!(
            "`{}` needs an approver, and no approver can reach this node; nothing has run",
            approval.tool
        ),
    )
    .hint("let an operator start a node with `aegis up`, and use that"));
    match Told::of(&result, asked.shape, asked.era) {
        Ok(told) => {
            let meta = CallMeta::of(approval.call, &result, None);
            told.render(conversation, asked, &meta)
        }
        Err(fault) => fault.answer(&asked.id),
    }
}

/// Answers with a question. Without a prompt the client only comes back.
fn input_required(
    conversation: &Conversation,
    asked: &Asked,
    approval: &Approval,
    prompt: Option<&Prompt>,
    state: Parked,
) -> Answer {
    let mut out = answer::begin_as(&asked.id, "input_required", 2048);
    if let Some(prompt) = prompt {
        out.extend_from_slice(b"\"inputRequests\":");
        let params = question(asked.era, prompt, approval);
        answer::write_json(&mut out, &json!({QUESTION: {"method": "elicitation/create", "params": params}}));
        out.push(b',');
    }
    out.extend_from_slice(b"\"requestState\":");
    answer::write_json(&mut out, &Carried::Approval(state).seal());
    out.push(b',');
    let meta = CallMeta::waiting(approval);
    conversation.write_meta(&mut out, asked.era, Some(&meta));
    answer::end(out).into()
}

/// The same question as a request of ours.
fn elicitation(asking: &Question, era: Era, prompt: &Prompt, approval: &Approval) -> Vec<u8> {
    let params = question(era, prompt, approval);
    format!(r#"{{"jsonrpc":"2.0","id":{},"method":"elicitation/create","params":{params}}}"#, asking.id())
        .into_bytes()
}

fn question(era: Era, prompt: &Prompt, approval: &Approval) -> Value {
    let rules: Vec<&str> = approval.asks.iter().map(|ask| ask.rule.as_str()).collect();
    let message = format!(
        "{} waits for an approver, who has until {} to decide on {} ({}). Accept to wait for the decision, decline \
         to take the call back. Accepting approves nothing.",
        approval.tool,
        approval.expires,
        approval.id,
        rules.join("; "),
    );
    match prompt {
        Prompt::Page(origin) => json!({
            "mode": "url",
            "message": message,
            "url": format!("{origin}/approvals/{}", approval.id),
            "elicitationId": approval.id,
        }),
        Prompt::Form => {
            let mut params =
                json!({"message": message, "requestedSchema": {"type": "object", "properties": {}}});
            if era != Era::Legacy(Revision::June2025) {
                params["mode"] = "form".into();
            }
            params
        }
    }
}

#[cfg(test)]
#[path = "parked_tests.rs"]
mod tests;
