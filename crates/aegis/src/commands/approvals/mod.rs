//! `aegis approvals`: what waits for a person, seen and decided.

mod page;
pub(super) mod prompt;
mod waiting;

use std::{io::IsTerminal, time::Duration};

use aegis_core::{
    Approval, ApprovalState, Timestamp,
    approval::{ApprovalOutcome, Standing},
    quantity::enumerated,
};
use anyhow::Context;
use serde_json::{Map, Value, json};

use super::call::urlencoded;
use crate::{
    cli::{Acting, Always, Approvals, Global},
    client::{Answer, Client},
    ending::Mistake,
    locate,
    output::{self, Ending, finish, harmless, json_line, say, say_part, table_or, text},
};

/// How long an approver is kept waiting for the call to end.
const MOMENT: Duration = Duration::from_secs(5);
/// How arguments are said.
const EXAMPLE: &str = r#"for example --arguments '{"path": {"glob": "/workspace/docs/**"}}'"#;
const WHOLE_EXAMPLE: &str = "aegis approvals always ID means the call of a request that waits (`aegis approvals list`); or for example \
     aegis approvals always --tool fs.write --user ann --any-arguments";
/// How much of a pattern a table shows.
const LONGEST_PATTERN: usize = 80;

pub(super) async fn run(global: &Global, command: &Approvals) -> anyhow::Result<Ending> {
    super::log("error");
    Ok(match command {
        Approvals::List { state, all, limit, after, acting } => {
            let mut look = format!("/v1/approvals?limit={limit}");
            if let Some(state) = state.filter(|_| !all) {
                look += &format!("&state={state}");
            }
            if let Some(after) = after {
                look += &format!("&after={}", urlencoded(&whole("approval:", after)));
            }
            let found = client(global, acting)?.get(&look).await?;
            finish(global, found, |found| {
                list(&rows(found, "approvals"));
                if let Some(next) = found["next"].as_str() {
                    let which = match state {
                        _ if *all => "--all ".to_owned(),
                        Some(ApprovalState::Pending) | None => String::new(),
                        Some(state) => format!("--state {state} "),
                    };
                    eprintln!("there are more: aegis approvals list {which}--after {}", harmless(next));
                }
            })
        }
        Approvals::Show { id, acting } => {
            let found = client(global, acting)?.get(&path(id)).await?;
            finish(global, found, |found| match serde_json::from_value::<Approval>(found.clone()) {
                Ok(approval) => show(&approval),
                Err(_) => output::json_pretty(found),
            })
        }
        Approvals::Approve { id, acting } => {
            let decided = approve(&client(global, acting)?, id).await?;
            finish(global, decided, told)
        }
        Approvals::Reject { id, reason, acting } => {
            let decided = reject(&client(global, acting)?, id, reason).await?;
            finish(global, decided, |approval| say!("{} is rejected", text(&approval["id"])))
        }
        Approvals::Cancel { id, acting } => {
            let ended = client(global, acting)?.post(&format!("{}/cancel", path(id)), &json!({})).await?;
            finish(global, ended, |approval| say!("{} is taken back", text(&approval["id"])))
        }
        Approvals::Wait { id, timeout, acting } => {
            let client = client(global, acting)?;
            match waiting::settled(&client, id, *timeout, waiting::ears(global)).await? {
                Ok(approval) => waiting::conclude(global, &approval)?,
                Err(violation) => output::refusal(&violation, global.json),
            }
        }
        Approvals::Always(wanted) => always(global, wanted).await?,
        Approvals::Standing { all, limit, acting } => {
            let client = client(global, acting)?;
            let found = client.get(&format!("/v1/approvals/always?all={all}&limit={limit}")).await?;
            finish(global, found, |found| standing(&rows(found, "standing")))
        }
        Approvals::Revoke { id, acting } => {
            let client = client(global, acting)?;
            let revoked = client
                .delete(&format!("/v1/approvals/always/{}", urlencoded(&whole("standing:", id))))
                .await?;
            finish(global, revoked, |row| say!("{} is revoked; such calls ask again", text(&row["id"])))
        }
    })
}

/// Approvals are the running node's business: it holds what waits, and runs what was approved.
fn client(global: &Global, acting: &Acting) -> anyhow::Result<Client> {
    locate::client_of_running(global, acting, "approvals are decided at a running one")
}

fn path(id: &str) -> String {
    format!("/v1/approvals/{}", urlencoded(&whole("approval:", id)))
}

/// An id as the node knows it: what stands before its colon may be left out.
fn whole(kind: &str, id: &str) -> String {
    if id.contains(':') { id.to_owned() } else { format!("{kind}{id}") }
}

/// Agrees, and holds the line for a moment: most calls end at once, and whoever agreed wants to know how.
async fn approve(client: &Client, id: &str) -> anyhow::Result<Answer> {
    client.post(&format!("{}/approve?wait={}s", path(id), MOMENT.as_secs()), &json!({})).await
}

/// What came of a request that was just approved.
fn told(approval: &Value) {
    let Ok(approval) = serde_json::from_value::<Approval>(approval.clone()) else {
        return output::json_pretty(approval);
    };
    let Approval { id, state, .. } = &approval;
    let caller = harmless(approval.caller.user.as_str());
    match (state, &approval.outcome) {
        (ApprovalState::Approved, _) if !approval.runs => {
            say!("{id} is approved; it only asked, so nothing runs");
        }
        (ApprovalState::Approved, _) => {
            say!("{id} is approved; its call runs now");
            say!("  how it ends: aegis approvals wait {id}");
        }
        (ApprovalState::Executed, _) => {
            say!("{id} is approved; its call has run, and {caller} gets the answer");
            say!("  to see it: aegis approvals show {id}");
        }
        (ApprovalState::Failed, None) => {
            say!("{id} is approved; its call has run and failed, and {caller} gets the reason");
            say!("  to see it: aegis approvals show {id}");
        }
        (_, Some(ApprovalOutcome::Refused { violation })) => {
            say!("{id} is approved, but is {state} now: {}", harmless(&violation.message));
            if let Some(hint) = &violation.hint {
                say!("  next: {}", harmless(hint));
            }
        }
        (_, _) => say!("{id} is {state}"),
    }
}

async fn reject(client: &Client, id: &str, reason: &str) -> anyhow::Result<Answer> {
    client.post(&format!("{}/reject", path(id)), &json!({"reason": reason})).await
}

/// Everything about a request.
async fn find(client: &Client, id: &str) -> anyhow::Result<Result<Approval, Answer>> {
    match client.get(&path(id)).await? {
        Answer::Ok(value) => {
            Ok(Ok(serde_json::from_value(value).context("the node's answer is unexpected")?))
        }
        other => Ok(Err(other)),
    }
}

/// A row that lets exactly the arguments of this request through.
fn exactly(approval: &Approval) -> Value {
    let arguments: Map<String, Value> =
        approval.arguments.iter().map(|(name, value)| (name.clone(), json!({"equals": value}))).collect();
    json!({
        "tool": approval.tool,
        "arguments": arguments,
        "only_named": true,
        "user": approval.caller.user,
        "tenant": approval.caller.tenant,
    })
}

async fn always(global: &Global, wanted: &Always) -> anyhow::Result<Ending> {
    if wanted.id.is_none() {
        let is_said = wanted.arguments.is_some() || wanted.any_arguments;
        let unsaid: Vec<&str> = [
            ("--tool", wanted.tool.is_some()),
            ("--user", wanted.user.is_some()),
            ("--arguments or --any-arguments", is_said),
        ]
        .into_iter()
        .filter_map(|(flag, is_said)| (!is_said).then_some(flag))
        .collect();
        if !unsaid.is_empty() {
            let message = format!(
                "without a request, say what is agreed to: {} {} missing",
                enumerated(&unsaid),
                if unsaid.len() == 1 { "is" } else { "are" }
            );
            return Err(Mistake::new(message, WHOLE_EXAMPLE).into());
        }
    }
    let client = client(global, &wanted.acting)?;
    let mut row = match &wanted.id {
        None => json!({}),
        Some(id) => match find(&client, id).await? {
            Ok(approval) if approval.arguments_cut && wanted.arguments.is_none() && !wanted.any_arguments => {
                let over = format!("{id} is over, and its arguments are no longer kept in full");
                return Err(Mistake::new(
                    over,
                    "say which are meant: --arguments PATTERN, or --any-arguments",
                )
                .into());
            }
            Ok(approval) => exactly(&approval),
            Err(other) => return Ok(finish(global, other, |_| {})),
        },
    };
    for (member, value) in
        [("tool", &wanted.tool), ("user", &wanted.user), ("tenant", &wanted.tenant), ("note", &wanted.note)]
    {
        if let Some(value) = value {
            row[member] = value.as_str().into();
        }
    }
    if let Some(arguments) = &wanted.arguments {
        let pattern = serde_json::from_str::<Map<String, Value>>(arguments)
            .map_err(|error| Mistake::new(format!("the arguments are no JSON object: {error}"), EXAMPLE))?;
        row["arguments"] = pattern.into();
        row["only_named"] = false.into();
    } else if wanted.any_arguments {
        row["any_arguments"] = true.into();
        if let Some(row) = row.as_object_mut() {
            row.retain(|member, _| !["arguments", "only_named"].contains(&member.as_str()));
        }
    }
    row["until"] = json!(wanted.until);
    row["covers_labels"] = wanted.covers_labels.into();
    let made = client.post("/v1/approvals/always", &row).await?;
    let Answer::Ok(standing) = &made else { return Ok(finish(global, made, |_| {})) };
    if !global.json {
        say!("{} until {}", text(&standing["id"]), text(&standing["until"]));
        say!("  covers {}", harmless(standing["covers"].as_str().unwrap_or_default()));
        say!("  take it back: aegis approvals revoke {}", text(&standing["id"]));
    }
    // Who settles the question settles the request that raised it.
    let Some(id) = &wanted.id else {
        if global.json {
            json_line(standing);
        }
        return Ok(Ending::Done);
    };
    let decided = approve(&client, id).await;
    if !global.json {
        return Ok(finish(global, decided?, told));
    }
    // One value, also when the request could not be approved: what was made stands all the same.
    let (told, ending) = match decided {
        Ok(Answer::Ok(approval)) => (json!({"standing": standing, "approval": approval}), Ending::Done),
        Ok(Answer::Refused(violation)) => {
            (json!({"standing": standing, "error": violation.to_jsonrpc()}), Ending::of(violation.kind))
        }
        Ok(Answer::ToolFailed(value)) => (json!({"standing": standing, "error": value}), Ending::Failed),
        Err(error) => {
            let message = output::in_words(&error);
            (json!({"standing": standing, "error": {"message": message}}), Ending::Failed)
        }
    };
    json_line(&told);
    Ok(ending)
}

fn list(approvals: &[Value]) {
    let now = Timestamp::now();
    let rows: Vec<[String; 6]> = approvals
        .iter()
        .filter_map(|row| serde_json::from_value::<Approval>(row.clone()).ok())
        .map(|approval| {
            let caller = &approval.caller;
            [
                approval.id.to_string(),
                approval.state.to_string(),
                approval.tool.clone(),
                format!("{} of {}", harmless(caller.user.as_str()), harmless(caller.tenant.as_str())),
                caller.context.to_string(),
                match approval.state {
                    ApprovalState::Pending => page::left(approval.expires, now),
                    _ => approval.ended.or(approval.decided).map_or_else(String::new, |at| at.to_string()),
                },
            ]
        })
        .collect();
    let nothing = "no requests; those that have ended are shown by `aegis approvals list --all`";
    table_or(["ID", "STATE", "TOOL", "CALLER", "CONTEXT", "TIME"], &rows, nothing);
}

fn show(approval: &Approval) {
    let coloured = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    say_part!("{}", page::render(approval, Timestamp::now(), coloured));
    if approval.state == ApprovalState::Pending {
        say_part!("{}", page::commands(approval));
    }
}

fn standing(found: &[Value]) {
    let rows: Vec<[String; 6]> = found
        .iter()
        .filter_map(|row| serde_json::from_value::<Standing>(row.clone()).ok())
        .map(|row| {
            let pattern = match (row.arguments.is_empty(), row.only_named) {
                (true, false) => "any".to_owned(),
                (true, true) => "none".to_owned(),
                (false, true) => format!("only {}", clipped(&Value::Object(row.arguments).to_string())),
                (false, false) => clipped(&Value::Object(row.arguments).to_string()),
            };
            [
                row.id,
                match row.revoked {
                    Some(at) => format!("revoked {at}"),
                    None if row.until <= Timestamp::now() => format!("over since {}", row.until),
                    None => format!("until {}", row.until),
                },
                row.tool,
                format!("{} of {}", harmless(row.user.as_str()), harmless(row.tenant.as_str())),
                pattern,
                harmless(&row.note.unwrap_or_default()).into_owned(),
            ]
        })
        .collect();
    let nothing = "nothing has been agreed to for a while; `aegis approvals always` does that";
    table_or(["ID", "STATE", "TOOL", "CALLER", "ARGUMENTS", "NOTE"], &rows, nothing);
}

/// Enough to recognise a row by; `--json` has the whole.
fn clipped(text: &str) -> String {
    let shown = harmless(text);
    match shown.char_indices().nth(LONGEST_PATTERN) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown.into_owned(),
    }
}

fn rows(found: &Value, member: &str) -> Vec<Value> {
    found[member].as_array().cloned().unwrap_or_default()
}
