//! `aegis approvals`: what waits for a person, seen and decided.

mod page;
pub(super) mod prompt;
mod waiting;

use std::io::IsTerminal;

use aegis_core::{Approval, ApprovalState, Timestamp, approval::Standing};
use anyhow::Context;
use serde_json::{Map, Value, json};

use super::call::urlencoded;
use crate::{
    cli::{Acting, Always, Approvals, Global},
    client::{Answer, Client},
    locate,
    output::{self, Ending, finish, harmless, json_line, say, say_part, table, text},
};

/// How much of a pattern a table shows.
const LONGEST_PATTERN: usize = 80;

pub(super) async fn run(global: &Global, command: &Approvals) -> anyhow::Result<Ending> {
    super::log("error");
    match command {
        Approvals::List { state, all, limit, acting } => {
            let state = state.filter(|_| !all).map(|state| format!("&state={state}")).unwrap_or_default();
            let found = client(global, acting)?.get(&format!("/v1/approvals?limit={limit}{state}")).await?;
            finish(global, found, |found| list(&rows(found, "approvals")))
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
            finish(global, decided, |approval| {
                say!("{} is approved", text(&approval["id"]));
                say!("  next: aegis approvals wait {}", text(&approval["id"]));
            })
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
            match waiting::settled(&client, id, *timeout).await? {
                Ok(approval) => waiting::conclude(global, &approval),
                Err(violation) => Ok(output::refusal(&violation, global.json)),
            }
        }
        Approvals::Always(wanted) => always(global, wanted).await,
        Approvals::Standing { limit, acting } => {
            let client = client(global, acting)?;
            let found = client.get(&format!("/v1/approvals/always?limit={limit}")).await?;
            finish(global, found, |found| standing(&rows(found, "standing")))
        }
        Approvals::Revoke { id, acting } => {
            let client = client(global, acting)?;
            let revoked = client.delete(&format!("/v1/approvals/always/{}", urlencoded(id))).await?;
            finish(global, revoked, |row| say!("{} is revoked; such calls ask again", text(&row["id"])))
        }
    }
}

/// Approvals are the running node's business: it holds what waits, and runs what was approved.
fn client(global: &Global, acting: &Acting) -> anyhow::Result<Client> {
    locate::client_of_running(global, acting, "approvals are decided at a running one")
}

fn path(id: &str) -> String {
    format!("/v1/approvals/{}", urlencoded(id))
}

async fn approve(client: &Client, id: &str) -> anyhow::Result<Answer> {
    client.post(&format!("{}/approve", path(id)), &json!({})).await
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
        "user": approval.caller.user,
        "tenant": approval.caller.tenant,
    })
}

async fn always(global: &Global, wanted: &Always) -> anyhow::Result<Ending> {
    let client = client(global, &wanted.acting)?;
    let mut row = match &wanted.id {
        None => json!({}),
        Some(id) => match find(&client, id).await? {
            Ok(approval) => exactly(&approval),
            Err(other) => return finish(global, other, |_| {}),
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
        let Ok(pattern) = serde_json::from_str::<Map<String, Value>>(arguments) else {
            eprintln!("error: the arguments are no JSON object");
            eprintln!("  next: for example --arguments '{{\"path\": {{\"glob\": \"/workspace/docs/**\"}}}}'");
            return Ok(Ending::Usage);
        };
        row["arguments"] = pattern.into();
    }
    row["until"] = json!(wanted.until);
    row["covers_labels"] = wanted.covers_labels.into();
    for (member, flag) in [("tool", "--tool"), ("user", "--user")] {
        if row[member].is_null() {
            eprintln!("error: {flag} is missing; or name a request, whose call is then meant");
            return Ok(Ending::Usage);
        }
    }
    let made = client.post("/v1/approvals/always", &row).await?;
    let Answer::Ok(standing) = &made else { return finish(global, made, |_| {}) };
    if !global.json {
        say!("{} until {}", text(&standing["id"]), text(&standing["until"]));
        say!("  take it back: aegis approvals revoke {}", text(&standing["id"]));
    }
    // Who settles the question settles the request that raised it.
    let Some(id) = &wanted.id else {
        if global.json {
            json_line(standing);
        }
        return Ok(Ending::Done);
    };
    let decided = approve(&client, id).await?;
    if global.json
        && let Answer::Ok(approval) = &decided
    {
        json_line(&json!({"standing": standing, "approval": approval}));
        return Ok(Ending::Done);
    }
    finish(global, decided, |approval| say!("{} is approved", text(&approval["id"])))
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
    table(["ID", "STATE", "TOOL", "CALLER", "CONTEXT", "TIME"], &rows);
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
            let pattern = match row.arguments.is_empty() {
                true => "any".to_owned(),
                false => clipped(&Value::Object(row.arguments).to_string()),
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
    table(["ID", "STATE", "TOOL", "CALLER", "ARGUMENTS", "NOTE"], &rows);
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
