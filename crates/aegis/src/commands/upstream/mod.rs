mod add;
mod client_file;
mod filled_in;
mod grant;
mod import;
mod misplaced;
mod settled;
mod sign_in;
pub(super) mod withheld;

use aegis_core::{
    config::McpServer,
    document,
    quantity::{counted, enumerated},
    upstream::taken,
};
use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    backend::Backend,
    cli::{Global, Upstream},
    client::Answer,
    output::{Ending, finish, harmless, json_line, say, say_part, table, text},
};

pub(super) async fn run(global: &Global, command: &Upstream) -> anyhow::Result<Ending> {
    super::log("error");
    match command {
        Upstream::Import(wanted) => import::run(global, wanted).await,
        Upstream::Add(wanted) => add::run(global, wanted).await,
        Upstream::List { limit } => {
            let show = |found: &Value| list(found, *limit);
            ask(global, async |node| Ok(finish(global, node.get("/v1/upstreams").await?, show))).await
        }
        Upstream::Show { name } => {
            ask(global, async |node| Ok(finish(global, node.get(&address(name, "")).await?, show))).await
        }
        Upstream::Test { name } => {
            let path = address(name, "/test");
            ask(global, async |node| Ok(test(global, name, node.patient_post(&path, &json!({})).await?)))
                .await
        }
        Upstream::SignIn(wanted) => sign_in::run(global, wanted).await,
        Upstream::Remove { name } => ask(global, async |node| remove(global, node, name).await).await,
        Upstream::Enable { name } => ask(global, async |node| switch(global, node, name, true).await).await,
        Upstream::Disable { name } => ask(global, async |node| switch(global, node, name, false).await).await,
        Upstream::Restart { name } => {
            let path = address(name, "/restart");
            ask(global, async |node| Ok(restarted(global, node.patient_post(&path, &json!({})).await?))).await
        }
        Upstream::Logs { name, limit } => {
            let path = address(name, &format!("/logs?limit={limit}"));
            ask(global, async |node| Ok(finish(global, node.get(&path).await?, logs))).await
        }
        Upstream::Diff { name } => {
            let show = |found: &Value| diff(name, found);
            ask(global, async |node| Ok(finish(global, node.get(&address(name, "/diff")).await?, show))).await
        }
        Upstream::Accept { name, tools, digest } => {
            let (path, body) = (address(name, "/accept"), decision(tools, digest.as_deref()));
            ask(global, async |node| Ok(finish(global, node.patient_post(&path, &body).await?, decided)))
                .await
        }
        Upstream::Reject { name, tools, digest } => {
            let (path, body) = (address(name, "/reject"), decision(tools, digest.as_deref()));
            ask(global, async |node| Ok(finish(global, node.patient_post(&path, &body).await?, decided)))
                .await
        }
    }
}

async fn ask(
    global: &Global,
    work: impl AsyncFnOnce(&Backend) -> anyhow::Result<Ending>,
) -> anyhow::Result<Ending> {
    let backend = Backend::open(global).await?;
    let ended = work(&backend).await;
    backend.close().await;
    ended
}

/// One answer of several: shown to a person at once, and handed back for the one value that `--json` prints.
fn step(global: &Global, answer: Answer, show: impl FnOnce(&Value)) -> (Ending, Value) {
    let (ending, told) = match &answer {
        Answer::Ok(found) => (Ending::Done, found.clone()),
        Answer::ToolFailed(found) => (Ending::Failed, found.clone()),
        Answer::Refused(violation) => (Ending::of(violation.kind), json!({"error": violation.to_jsonrpc()})),
    };
    if !global.json {
        finish(global, answer, show);
    }
    (ending, told)
}

pub(super) fn address(name: &str, rest: &str) -> String {
    format!("/v1/upstreams/{}{rest}", urlencoded(name))
}

fn state(server: &Value) -> String {
    match (server["hidden"].as_str(), server["status"]["state"].as_str()) {
        (Some(_), _) => "not used".to_owned(),
        (None, Some(state)) => state.to_owned(),
        (None, None) if server["enabled"] == false => "disabled".to_owned(),
        (None, None) => "not started".to_owned(),
    }
}

/// Why a server is in its state, where that is known.
fn because(server: &Value) -> String {
    let reason = server["hidden"].as_str().or_else(|| server["status"]["reason"].as_str());
    reason.map(|reason| format!(": {}", harmless(reason))).unwrap_or_default()
}

async fn remove(global: &Global, backend: &Backend, name: &str) -> anyhow::Result<Ending> {
    let answer = backend.delete(&address(name, "")).await?;
    let removed = match &answer {
        Answer::Ok(found) => serde_json::from_value::<McpServer>(found["config"].clone()).ok(),
        _ => None,
    };
    let taken_back = match &removed {
        Some(server) => grant::take_back(backend, server).await?,
        None => grant::TakenBack::default(),
    };
    let answer = match answer {
        Answer::Ok(mut found) => {
            found["taken_from"] = json!(taken_back.from);
            found["still_granted_by"] = json!(taken_back.kept);
            Answer::Ok(found)
        }
        other => other,
    };
    Ok(finish(global, answer, |found| {
        say!("{} is removed", text(&found["name"]));
        for secret in found["secrets_deleted"].as_array().into_iter().flatten() {
            say!("its sign-in is forgotten: secret:{} is deleted", text(secret));
        }
        for secret in found["secrets_left"].as_array().into_iter().flatten() {
            let (name, users) = (text(&secret["name"]), texts(&secret["used_by"]));
            match users.is_empty() {
                true => say!("secret:{name} is still stored: `aegis secret delete {name}` deletes it"),
                false => say!("secret:{name} is still stored, for {}", enumerated(&users)),
            }
        }
        for context in &taken_back.from {
            say!("the context {context} no longer grants it");
        }
        for context in &taken_back.kept {
            say!("the context {context} still names it: change it where `aegis context show {context}` says");
        }
    }))
}

/// Switches a server on or off. One that does not come up is a failure, for scripts too.
async fn switch(global: &Global, node: &Backend, name: &str, enabled: bool) -> anyhow::Result<Ending> {
    let (path, word) = if enabled { ("/enable", "enabled") } else { ("/disable", "disabled") };
    let answer = node.patient_post(&address(name, path), &json!({})).await?;
    let (mut ended, mut told) = step(global, answer, |found| {
        let already = if found["change"] == "unchanged" { " already" } else { "" };
        say!("{} is {word}{already}", text(&found["name"]));
        settled::remarks(name, found);
    });
    if ended == Ending::Done && enabled {
        let found = settled::settle(global, node, &[name]).await?;
        settled::note(&mut told, &found);
        if settled::is_broken(&told) {
            ended = Ending::Failed;
        }
    }
    if global.json {
        json_line(&told);
    }
    Ok(ended)
}

/// Which tools of the node's own a server takes the place of, in words.
fn replaced(server: &Value) -> Option<String> {
    let names = texts(&server["replaces"]);
    (!names.is_empty()).then(|| format!("{} by {}", taken(&names), text(&server["name"])))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(text).collect()
}

fn list(found: &Value, limit: usize) {
    let servers = found["upstreams"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<[String; 6]> = servers
        .iter()
        .take(limit)
        .map(|server| {
            let status = &server["status"];
            let tools = tools(status);
            let reason = server["hidden"].as_str().or_else(|| status["reason"].as_str()).unwrap_or_default();
            [
                text(&server["name"]),
                state(server),
                if status.is_null() { String::new() } else { tools },
                text(&server["source"]),
                text(&server["reached"]),
                harmless(reason).into_owned(),
            ]
        })
        .collect();
    if rows.is_empty() {
        say!(
            "no MCP servers; add one with `aegis upstream add`, or take over a client's with `aegis upstream import`"
        );
        return;
    }
    table(["SERVER", "STATE", "TOOLS", "FROM", "REACHED BY", "WHY"], &rows);
    if limit < servers.len() {
        say!("… {limit} of {}; more with --limit", servers.len());
    }
    for told in servers.iter().take(limit).filter_map(replaced) {
        say!("{told}");
    }
    shared(found);
    for server in servers.iter().take(limit) {
        for told in withheld::of(server) {
            say!("{} {}\n  next: {}", text(&server["name"]), told.found, told.next);
        }
    }
}

/// How many tools there are, and what became of the others.
fn tools(status: &Value) -> String {
    let mut told = status["tools"].to_string();
    match status["quarantined"].as_u64().unwrap_or(0) {
        0 => {}
        1 => told.push_str(", 1 waits for you"),
        waiting => told.push_str(&format!(", {waiting} wait for you")),
    }
    match status["rejected"].as_u64().unwrap_or(0) {
        0 => {}
        rejected => told.push_str(&format!(", {rejected} rejected")),
    }
    match ["unusable", "ceded"].iter().filter_map(|member| status[member].as_u64()).sum::<u64>() {
        0 => {}
        others => told.push_str(&format!(", {others} not passed on")),
    }
    told
}

/// How many addresses of resources are told one by one.
const SHARED_SHOWN: usize = 10;

/// Resources that several servers list, which clients can't read by their address alone.
fn shared(found: &Value) {
    let all = found["shared_resources"].as_array().map(Vec::as_slice).unwrap_or_default();
    if all.is_empty() {
        return;
    }
    say!("resources that several servers list; readers name the server, with the tool mcp.resources.read:");
    for one in all.iter().take(SHARED_SHOWN) {
        let servers: Vec<String> = one["servers"].as_array().into_iter().flatten().map(text).collect();
        say!("  {}  {}", text(&one["uri"]), servers.join(", "));
    }
    if all.len() > SHARED_SHOWN {
        say!("  … {SHARED_SHOWN} of {}; all with --json", all.len());
    }
}

fn show(found: &Value) {
    let status = &found["status"];
    say!("# {} is {}", text(&found["name"]), state(found));
    for (label, member) in [("reason", "reason"), ("protocol", "protocol"), ("since", "since")] {
        if let Some(value) = status[member].as_str() {
            say!("# {label}: {}", harmless(value));
        }
    }
    if let Some(told) = replaced(found) {
        say!("# {told}");
    }
    say_part!("{}", document::to_yaml(&found["config"]));
    let tools = found["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !tools.is_empty() {
        let row = |tool: &Value| {
            let name = tool["name"].as_str().map_or_else(|| "(not passed on)".to_owned(), str::to_owned);
            [text(&tool["tool"]), harmless(&name).into_owned(), text(&tool["withheld"])]
        };
        say!();
        table(["ITS NAME", "AGENTS CALL IT", "WITHHELD"], &tools.iter().map(row).collect::<Vec<_>>());
    }
    shared(found);
}

/// One that did not come up is a failure, for scripts too.
fn restarted(global: &Global, answer: Answer) -> Ending {
    let down = matches!(&answer, Answer::Ok(found) if found["status"]["state"] == "stopped");
    match finish(global, answer, settled::tell) {
        Ending::Done if down => Ending::Failed,
        ending => ending,
    }
}

fn test(global: &Global, name: &str, answer: Answer) -> Ending {
    let Answer::Ok(report) = answer else { return finish(global, answer, |_| {}) };
    let works = report["works"] == true;
    if global.json {
        json_line(&report);
    } else if works {
        say!(
            "it works: {}, MCP {}, {}, {}, {}, {} ms",
            text(&report["server"]),
            text(&report["protocol"]),
            counted(report["tools"].as_array().map_or(0, Vec::len), "tool"),
            counted(report["resources"].as_u64().unwrap_or(0), "resource"),
            counted(report["prompts"].as_u64().unwrap_or(0), "prompt"),
            report["millis"]
        );
        for tool in report["tools"].as_array().into_iter().flatten() {
            say!("  {}", text(tool));
        }
    } else {
        eprintln!("it does not work: {}", text(&report["error"]));
        let missing = report["missing"].as_array().map(Vec::as_slice).unwrap_or_default();
        for lack in missing {
            eprintln!("  {}\n  next: {}", text(&lack["what"]), text(&lack["next"]));
        }
        if missing.is_empty() {
            eprintln!(
                "  next: mend it, then `aegis upstream restart {name}`; `aegis upstream logs {name}` has what it wrote before"
            );
        }
    }
    if works { Ending::Done } else { Ending::Failed }
}

fn logs(found: &Value) {
    for line in found["lines"].as_array().into_iter().flatten() {
        say!("{}  {}", text(&line["time"]), text(&line["text"]));
    }
}

fn diff(name: &str, found: &Value) {
    let proposals = found["proposals"].as_array().map(Vec::as_slice).unwrap_or_default();
    if proposals.is_empty() {
        say!("nothing of {name} waits for a decision");
        return;
    }
    for proposal in proposals {
        let tool = text(&proposal["tool"]);
        let was = match (proposal["state"].as_str(), &proposal["accepted"]) {
            (Some("rejected"), _) => "rejected",
            (_, Value::Null) => "never accepted",
            _ => "changed",
        };
        say!("{tool}: {was}, seen {}, digest {}", text(&proposal["seen"]), text(&proposal["digest"]));
        for line in proposal["diff"].as_str().unwrap_or_default().lines() {
            say!("  {}", harmless(line));
        }
        say!();
    }
    let rejected = proposals.iter().filter(|one| one["state"] == "rejected").count();
    if rejected < proposals.len() {
        say!(
            "`aegis upstream accept {name}` accepts all that waits; name tools to accept some, or use `reject`"
        );
    }
    if rejected > 0 {
        say!(
            "what was rejected is accepted after all by its digest: `aegis upstream accept {name} TOOL --digest DIGEST`"
        );
    }
}

fn decision(tools: &[String], digest: Option<&str>) -> Value {
    let tools: Vec<Value> = tools.iter().map(|tool| json!({"tool": tool, "digest": digest})).collect();
    json!({ "tools": tools })
}

fn decided(found: &Value) {
    for one in found["decided"].as_array().into_iter().flatten() {
        say!("{} is {}", text(&one["tool"]), text(&one["state"]));
        if let Some(waits) = one["waits"].as_str() {
            say!("  not in force yet: {}", harmless(waits));
        }
    }
}
