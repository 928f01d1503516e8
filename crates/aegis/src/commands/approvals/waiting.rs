//! Waiting for a decision, and telling what came of it.

use std::time::{Duration, Instant};

use aegis_core::{Approval, ApprovalState, Violation, approval::ApprovalOutcome, progress::Listener};
use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::{
    cli::Global,
    client::{Answer, Client},
    heard::Terminal,
    output::{self, Ending, harmless, json_line, json_pretty, say},
    program,
};

/// How long one look waits; the node has a limit of its own.
const ONE_LOOK: Duration = Duration::from_secs(30);

/// The request once nothing more will happen to it, or as it stands when the time is up. Who asked hears meanwhile what
/// the call says.
pub(crate) async fn settled(
    client: &Client,
    id: &str,
    at_most: Option<Duration>,
    heard: Option<&dyn Listener>,
) -> anyhow::Result<Result<Approval, Violation>> {
    let started = Instant::now();
    loop {
        let left = at_most.map_or(ONE_LOOK, |most| most.saturating_sub(started.elapsed()).min(ONE_LOOK));
        let look = format!("{}?wait={}s", super::path(id), left.as_secs());
        let approval: Approval = match client.wait(&look, left, heard).await? {
            Answer::Ok(value) => serde_json::from_value(value).context("the node's answer is unexpected")?,
            Answer::Refused(violation) => return Ok(Err(violation)),
            Answer::ToolFailed(_) => bail!("the node's answer is unexpected"),
        };
        let out_of_time = at_most.is_some_and(|most| started.elapsed() + Duration::from_secs(1) > most);
        if approval.is_settled() || out_of_time {
            return Ok(Ok(approval));
        }
    }
}

/// Whoever looks at a terminal hears a running call; a program reads one answer.
pub(crate) fn ears(global: &Global) -> Option<&'static dyn Listener> {
    if global.json { None } else { Some(&Terminal) }
}

/// Tells what came of a request: the answer of its call as `aegis call` would have shown it, or why there is none.
pub(crate) fn conclude(global: &Global, approval: &Approval) -> anyhow::Result<Ending> {
    let mut ending = match approval.state {
        ApprovalState::Pending | ApprovalState::Approved if !approval.is_settled() => Ending::Waiting,
        ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Executed => Ending::Done,
        ApprovalState::Failed => Ending::Failed,
        ApprovalState::Rejected | ApprovalState::Expired | ApprovalState::Cancelled => Ending::Denied,
    };
    match &approval.outcome {
        _ if ending == Ending::Waiting => {
            if global.json {
                json_line(approval);
            } else {
                eprintln!("{} is {}", approval.id, approval.state);
                eprintln!("  next: aegis approvals wait {}", approval.id);
            }
        }
        Some(ApprovalOutcome::Ran { value, failure, label, .. }) => {
            if global.json {
                json_line(&json!({
                    "call": approval.call,
                    "is_error": failure.is_some(),
                    "result": value,
                    "label": label,
                    "approval": {"id": approval.id, "state": approval.state, "expires": approval.expires},
                }));
            } else if let Some(kind) = failure {
                eprintln!("failed ({kind}): {}", harmless(value["error"].as_str().unwrap_or_default()));
                eprintln!("  more: aegis explain {kind}");
            } else if let Value::String(text) = value {
                say!("{text}");
            } else {
                json_pretty(&program::unheard(value, &label.source));
            }
            if ending == Ending::Done {
                ending = program::ending(value, &label.source, global.json);
            }
        }
        Some(ApprovalOutcome::Refused { violation }) => {
            output::refusal(violation, global.json);
        }
        None if global.json => json_line(approval),
        None => say!("{} is {}", approval.id, approval.state),
    }
    Ok(ending)
}
