mod import;

use std::{io::Read, path::Path};

use aegis_core::{
    config::{
        McpServer, SecretRef, ToolPattern,
        upstream::{self, DefinitionTrust, ServerCapability},
    },
    document,
};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::call::urlencoded;
use crate::{
    backend::Backend,
    cli::{Add, Global, Import, Upstream},
    client::Answer,
    output::{Ending, finish_change, harmless, json_line, say, say_part, table, text},
};

pub(super) async fn run(global: &Global, command: &Upstream) -> anyhow::Result<Ending> {
    super::log("error");
    match command {
        Upstream::Import(wanted) => return import_file(global, wanted).await,
        Upstream::Add(wanted) => return add(global, wanted).await,
        _ => {}
    }
    let backend = Backend::open(global).await?;
    let ended = one(global, &backend, command).await;
    backend.close().await;
    ended
}

async fn one(global: &Global, backend: &Backend, command: &Upstream) -> anyhow::Result<Ending> {
    let done = match command {
        Upstream::List { limit } => {
            let found = backend.get("/v1/upstreams").await?;
            finish_change(global, found, |found| list(found, *limit))
        }
        Upstream::Show { name } => finish_change(global, backend.get(&address(name, "")).await?, show),
        Upstream::Test { name } => {
            test(global, backend.patient_post(&address(name, "/test"), &json!({})).await?)
        }
        Upstream::Remove { name } => {
            finish_change(global, backend.delete(&address(name, "")).await?, |found| {
                say!("{} is removed", text(&found["name"]));
            })
        }
        Upstream::Restart { name } => {
            let restarted = backend.patient_post(&address(name, "/restart"), &json!({})).await?;
            finish_change(global, restarted, |found| say!("{} is {}", text(&found["name"]), state(found)))
        }
        Upstream::Logs { name, limit } => {
            let found = backend.get(&address(name, &format!("/logs?limit={limit}"))).await?;
            finish_change(global, found, |found| {
                for line in found["lines"].as_array().into_iter().flatten() {
                    say!("{}  {}", text(&line["time"]), text(&line["text"]));
                }
            })
        }
        Upstream::Diff { name } => {
            let found = backend.get(&address(name, "/diff")).await?;
            finish_change(global, found, |found| diff(name, found))
        }
        Upstream::Accept { name, tools, digest } => {
            let body = decision(tools, digest.as_deref());
            finish_change(global, backend.post(&address(name, "/accept"), &body).await?, decided)
        }
        Upstream::Reject { name, tools, digest } => {
            let body = decision(tools, digest.as_deref());
            finish_change(global, backend.post(&address(name, "/reject"), &body).await?, decided)
        }
        Upstream::Import(_) | Upstream::Add(_) => Ending::Usage,
    };
    Ok(done)
}

fn address(name: &str, rest: &str) -> String {
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

fn list(found: &Value, limit: usize) {
    let servers = found["upstreams"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows: Vec<[String; 6]> = servers
        .iter()
        .take(limit)
        .map(|server| {
            let status = &server["status"];
            let tools = match status["quarantined"].as_u64().unwrap_or(0) {
                0 => status["tools"].to_string(),
                waiting => format!("{}, {waiting} wait for you", status["tools"]),
            };
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
}

fn show(found: &Value) {
    let status = &found["status"];
    say!("# {} is {}", text(&found["name"]), state(found));
    for (label, member) in [("reason", "reason"), ("protocol", "protocol"), ("since", "since")] {
        if let Some(value) = status[member].as_str() {
            say!("# {label}: {}", harmless(value));
        }
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
}

fn test(global: &Global, answer: Answer) -> Ending {
    let Answer::Ok(report) = answer else { return finish_change(global, answer, |_| {}) };
    let works = report["works"] == true;
    if global.json {
        json_line(&report);
    } else if works {
        say!(
            "it works: {}, MCP {}, {} tool(s), {} resource(s), {} prompt(s), {} ms",
            text(&report["server"]),
            text(&report["protocol"]),
            report["tools"].as_array().map_or(0, Vec::len),
            report["resources"],
            report["prompts"],
            report["millis"]
        );
        for tool in report["tools"].as_array().into_iter().flatten() {
            say!("  {}", text(tool));
        }
    } else {
        eprintln!("it does not work: {}", text(&report["error"]));
    }
    if works { Ending::Done } else { Ending::Failed }
}

fn diff(name: &str, found: &Value) {
    let proposals = found["proposals"].as_array().map(Vec::as_slice).unwrap_or_default();
    if proposals.is_empty() {
        say!("nothing of {name} waits for a decision");
        return;
    }
    for proposal in proposals {
        let tool = text(&proposal["tool"]);
        let was = if proposal["accepted"].is_null() { "never accepted" } else { "changed" };
        say!("{tool}: {was}, seen {}, digest {}", text(&proposal["seen"]), text(&proposal["digest"]));
        for line in proposal["diff"].as_str().unwrap_or_default().lines() {
            say!("  {}", harmless(line));
        }
        say!();
    }
    say!("`aegis upstream accept {name}` accepts all of it; name tools to accept some, or use `reject`");
}

fn decision(tools: &[String], digest: Option<&str>) -> Value {
    let tools: Vec<Value> = tools.iter().map(|tool| json!({"tool": tool, "digest": digest})).collect();
    json!({ "tools": tools })
}

fn decided(found: &Value) {
    for one in found["decided"].as_array().into_iter().flatten() {
        say!("{} is {}", text(&one["tool"]), text(&one["state"]));
    }
}

async fn add(global: &Global, wanted: &Add) -> anyhow::Result<Ending> {
    let server = match &wanted.file {
        Some(file) => match from_file(global, file)? {
            Some(server) => server,
            None => return Ok(Ending::Failed),
        },
        None => from_flags(wanted)?,
    };
    let backend = Backend::open(global).await?;
    let ended = add_to(global, &backend, &server, wanted.grant.as_deref()).await;
    backend.close().await;
    ended
}

async fn add_to(
    global: &Global,
    backend: &Backend,
    server: &McpServer,
    grant: Option<&str>,
) -> anyhow::Result<Ending> {
    let answer = backend.patient_post("/v1/upstreams", &serde_json::to_value(server)?).await?;
    let ended =
        finish_change(global, answer, |found| say!("{} is added and {}", text(&found["name"]), state(found)));
    match grant {
        Some(context) if ended == Ending::Done => {
            grant_in(global, backend, context, std::slice::from_ref(server)).await
        }
        _ => Ok(ended),
    }
}

fn from_file(global: &Global, file: &Path) -> anyhow::Result<Option<McpServer>> {
    let (name, written) = (file.display().to_string(), read(file)?);
    match upstream::parse(&written) {
        Ok(mut servers) if servers.len() == 1 => Ok(servers.pop()),
        Ok(servers) => bail!("{name} holds {} servers; give one at a time", servers.len()),
        Err(mistakes) => {
            if global.json {
                json_line(&json!({"file": name, "valid": false, "mistakes": mistakes}));
            } else {
                eprintln!("{}", document::render(&mistakes, &written, &name));
                eprintln!("{} mistake(s); nothing was added", mistakes.len());
            }
            Ok(None)
        }
    }
}

fn from_flags(wanted: &Add) -> anyhow::Result<McpServer> {
    let mut server = McpServer::named(wanted.name.as_deref().unwrap_or_default());
    match (wanted.command.split_first(), &wanted.url) {
        (Some((program, args)), None) => {
            server.executable = Some(program.clone());
            server.args = args.to_vec();
        }
        (None, Some(url)) => server.url = Some(url.clone()),
        _ => bail!("say how the server is reached: `--url URL`, or `-- PROGRAM ARGS…` at the end"),
    }
    let pair = |given: &str, flag: &str| -> anyhow::Result<(String, String)> {
        let (name, value) = given.split_once('=').with_context(|| format!("write --{flag} NAME=…"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    for given in &wanted.environment {
        server.environment.extend([pair(given, "env")?]);
    }
    for given in &wanted.credentials {
        let (name, reference) = pair(given, "credential")?;
        server.credentials.insert(name, SecretRef::parse(&reference));
    }
    for given in &wanted.capabilities {
        server.capabilities.push(ServerCapability::Name(ToolPattern::parse(given)?));
    }
    server.namespace.clone_from(&wanted.namespace);
    if wanted.approve_definitions {
        server.trust = DefinitionTrust::Approve;
    }
    upstream::check_added(&[], &server).map_err(anyhow::Error::msg)?;
    Ok(server)
}

async fn import_file(global: &Global, wanted: &Import) -> anyhow::Result<Ending> {
    let name = wanted.file.display().to_string();
    let imported = match import::read(&read(&wanted.file)?, &wanted.only) {
        Ok(imported) => imported,
        Err(reason) => bail!("{name} can't be taken over: {reason}"),
    };
    if !wanted.write {
        preview(global, wanted, &imported);
        return Ok(if imported.servers.is_empty() { Ending::Failed } else { Ending::Done });
    }
    let backend = Backend::open(global).await?;
    let ended = write(global, &backend, wanted, &imported).await;
    backend.close().await;
    ended
}

fn preview(global: &Global, wanted: &Import, imported: &import::Imported) {
    let secrets: Vec<&String> = imported.secrets.keys().collect();
    if global.json {
        let left_out: Vec<Value> = (imported.left_out.iter())
            .map(|(name, reason)| json!({"name": name, "reason": reason}))
            .collect();
        json_line(&json!({"written": false, "mcp_servers": imported.servers, "secrets": secrets,
            "left_out": left_out, "remarks": imported.remarks}));
        return;
    }
    if !imported.servers.is_empty() {
        let servers = serde_json::to_value(&imported.servers).unwrap_or_default();
        say_part!("{}", document::to_yaml(&json!({"mcp_servers": servers})));
    }
    for name in &secrets {
        eprintln!("secret: {name} goes to the secret store");
    }
    tell(imported);
    eprintln!("nothing was changed; --write adds {} server(s)", imported.servers.len());
    if wanted.grant.is_none() {
        eprintln!("with --grant CONTEXT, agents of that security context may call their tools");
    }
}

fn tell(imported: &import::Imported) {
    for (name, reason) in &imported.left_out {
        eprintln!("left out: {}: {}", harmless(name), harmless(reason));
    }
    for remark in &imported.remarks {
        eprintln!("note: {}", harmless(remark));
    }
}

async fn write(
    global: &Global,
    backend: &Backend,
    wanted: &Import,
    imported: &import::Imported,
) -> anyhow::Result<Ending> {
    let mut ended = Ending::Done;
    // First what servers need to start.
    for (name, secret) in &imported.secrets {
        let body = json!({"name": name, "value": secret.expose()});
        let answer = backend.post("/v1/secrets", &body).await?;
        let stored = finish_change(global, answer, |_| say!("secret:{name} is stored"));
        if stored != Ending::Done {
            ended = stored;
        }
    }
    let mut added = Vec::new();
    for server in &imported.servers {
        match add_to(global, backend, server, None).await? {
            Ending::Done => added.push(server.clone()),
            other => ended = other,
        }
    }
    if let Some(context) = &wanted.grant
        && !added.is_empty()
    {
        let granted = grant_in(global, backend, context, &added).await?;
        if granted != Ending::Done {
            ended = granted;
        }
    }
    if !global.json {
        tell(imported);
        if !added.is_empty() {
            let context = wanted.grant.as_deref().unwrap_or("CONTEXT");
            eprintln!(
                "next: in the client, put one server in the place of these: \
                 {{\"command\": \"aegis\", \"args\": [\"mcp\", \"--context\", \"{context}\"]}}"
            );
        }
    }
    Ok(if ended == Ending::Done && !imported.left_out.is_empty() { Ending::Failed } else { ended })
}

/// Lets users of a context call the tools of these servers.
async fn grant_in(
    global: &Global,
    backend: &Backend,
    context: &str,
    servers: &[McpServer],
) -> anyhow::Result<Ending> {
    let path = format!("/v1/contexts/{}", urlencoded(context));
    let present = match backend.get(&path).await? {
        Answer::Ok(found) => Some(found["context"].clone()),
        _ => None,
    };
    let answer = backend.put(&path, &import::granted(present.as_ref(), context, servers)).await?;
    Ok(finish_change(global, answer, |_| {
        let patterns: Vec<String> =
            servers.iter().flat_map(McpServer::claims).map(|pattern| pattern.to_string()).collect();
        say!("the context {context} may call {}", patterns.join(", "));
    }))
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("can't read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))
}
