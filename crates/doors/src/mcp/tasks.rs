//! Tasks: a call that waits for a person is a task to clients that hold those. Its id is the approval's, so it
//! survives both sides' restarts, and only the caller who asked finds it.

use std::sync::Arc;

use aegis_core::{Approval, ApprovalState, Call, Caller, Violation};
use aegis_plane::Done;
use axum::http::StatusCode;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    abilities::{Abilities, TASKS_EXTENSION},
    answer::{self, Answer},
    call::Running,
    conversation::Conversation,
    era::Era,
    fault::{Fault, MISSING_CAPABILITY},
    message::{Request, string},
    parked, progress,
    told::{CallMeta, Told},
    wanted::Shape,
};

/// How often a client should ask.
const POLL_MILLIS: u64 = 2_000;

/// Answers a call with a task in its place. What the task came to is asked for later, even if that is known by now.
pub(crate) fn created(conversation: &Conversation, id: &str, approval: &Approval) -> Vec<u8> {
    let mut out = answer::begin_as(id, "task", 1024);
    write(conversation, &mut out, approval, None);
    close(conversation, out)
}

/// `tasks/get`, `tasks/update` and `tasks/cancel`.
pub(crate) fn start(
    conversation: &Arc<Conversation>,
    caller: Caller,
    request: &Request<'_>,
) -> Result<Running, Fault> {
    if !Abilities::of_request(request.params.meta.capabilities).tasks {
        return Err(Fault::new(
            StatusCode::BAD_REQUEST,
            MISSING_CAPABILITY,
            format!("declare the extension `{TASKS_EXTENSION}` in the client's capabilities"),
        )
        .with_data(json!({"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}})));
    }
    let task = request
        .params
        .task_id
        .and_then(string)
        .ok_or_else(|| Fault::invalid_params("`params.taskId` must be the id of a task"))?
        .into_owned();
    let (id, method) = (request.id.as_str().to_owned(), request.method.clone().into_owned());
    let conversation = Arc::clone(conversation);
    if let Some(found) = conversation.server_tasks.find(&caller.credential, &task) {
        let call = found.call(&method, request.params.input_responses);
        let answer: BoxFuture<'static, _> =
            Box::pin(async move { Some(of_server(&conversation, caller, &id, &method, &task, call).await) });
        return Ok(Running {
            answer,
            progress_token: None,
            words: None,
            asides: None,
            doing: progress::RUNNING,
        });
    }
    let answer: BoxFuture<'static, _> = Box::pin(async move {
        Some(match parked::own(&conversation, &caller, &task).await {
            Ok(approval) => carry_out(&conversation, &caller, &id, &method, &approval).await.into(),
            Err(fault) => fault.answer(&id),
        })
    });
    Ok(Running { answer, progress_token: None, words: None, asides: None, doing: progress::RUNNING })
}

/// Asks the server whose task it is.
async fn of_server(
    conversation: &Conversation,
    caller: Caller,
    id: &str,
    method: &str,
    task: &str,
    call: Call,
) -> Answer {
    let reply = conversation.doors.plane.call(caller, call, CancellationToken::new()).await;
    let told = match Told::of(&reply.result, Shape::Task, Era::Modern) {
        Ok(told) => told,
        Err(fault) => return fault.answer(id),
    };
    let meta = CallMeta::of(reply.call, &reply.result, None);
    let mut out = answer::begin(id, Era::Modern, 1024);
    if let (Told::Passed { members, .. }, "tasks/get") = (&told, method) {
        let mut members: Map<String, Value> = serde_json::from_str(members).unwrap_or_default();
        members.insert("taskId".into(), task.into());
        let told = Told::Passed { members: Value::Object(members).to_string().into(), shape: Shape::Task };
        told.write(conversation, &mut out, Era::Modern, &meta);
    } else {
        conversation.write_meta(&mut out, Era::Modern, Some(&meta));
    }
    answer::end(out).into()
}

async fn carry_out(
    conversation: &Conversation,
    caller: &Caller,
    id: &str,
    method: &str,
    approval: &Approval,
) -> Vec<u8> {
    let mut out = answer::begin(id, Era::Modern, 1024);
    match method {
        "tasks/cancel" => drop(parked::take_back(conversation, approval).await),
        // Answers to questions: a task of ours has none, and what was not asked is to be ignored.
        "tasks/update" => {}
        _ => {
            let result = parked::collect(conversation, caller, approval).await;
            write(conversation, &mut out, approval, result.as_ref());
        }
    }
    close(conversation, out)
}

/// The members of a task, the result included when there is one.
fn write(
    conversation: &Conversation,
    out: &mut Vec<u8>,
    approval: &Approval,
    result: Option<&Result<Done, Violation>>,
) {
    let told = result.map(|result| Told::of(result, Shape::Tool, Era::Modern));
    let (status, message) = match (&told, approval.state) {
        (None, ApprovalState::Pending) => {
            ("working", format!("waits for an approver until {}", approval.expires))
        }
        (None, _) => ("working", "an approver agreed; it runs".to_owned()),
        (Some(_), ApprovalState::Cancelled) => ("cancelled", why(result)),
        (Some(Ok(_)), state) => ("completed", state.to_string()),
        (Some(Err(fault)), _) => ("failed", fault.message.clone()),
    };
    let updated = approval.ended.or(approval.decided).unwrap_or(approval.created);
    let members = json!({
        "taskId": approval.id,
        "status": status,
        "statusMessage": message,
        "createdAt": approval.created,
        "lastUpdatedAt": updated,
        "ttlMs": null,
        "pollIntervalMs": POLL_MILLIS,
    })
    .to_string();
    out.extend_from_slice(members.trim_start_matches('{').trim_end_matches('}').as_bytes());
    out.push(b',');
    match told.filter(|_| status != "cancelled") {
        Some(Ok(told)) => {
            out.extend_from_slice(b"\"result\":{\"resultType\":\"complete\",");
            if let Some(result) = result {
                let meta = CallMeta::of(approval.call, result, Some(approval));
                told.write(conversation, out, Era::Modern, &meta);
            }
            out.extend_from_slice(b"},");
        }
        Some(Err(fault)) => {
            out.extend_from_slice(b"\"error\":");
            answer::write_json(out, &fault.to_json());
            out.push(b',');
        }
        None => {}
    }
}

fn why(result: Option<&Result<Done, Violation>>) -> String {
    match result {
        Some(Err(violation)) => violation.message.clone(),
        _ => "it did not run".to_owned(),
    }
}

fn close(conversation: &Conversation, mut out: Vec<u8>) -> Vec<u8> {
    conversation.write_meta(&mut out, Era::Modern, None::<&()>);
    answer::end(out)
}
