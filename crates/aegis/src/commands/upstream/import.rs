//! `aegis upstream import`.

use aegis_core::{Violation, ViolationKind, config::McpServer, document, quantity::counted};
use anyhow::bail;
use serde_json::{Value, json};

use super::{
    address, ask, because,
    client_file::{self, Imported},
    grant, state, step,
};
use crate::{
    backend::Backend,
    cli::{Global, Import},
    client::Answer,
    commands::secret,
    input,
    output::{Ending, harmless, json_line, say, say_part, text},
};

pub(super) async fn run(global: &Global, wanted: &Import) -> anyhow::Result<Ending> {
    let name = wanted.file.display().to_string();
    let imported = match client_file::read(&input::text(&wanted.file)?, &wanted.only) {
        Ok(imported) => imported,
        Err(reason) => bail!("{name} can't be taken over: {reason}"),
    };
    if !wanted.write {
        preview(global, wanted, &imported);
        return Ok(if imported.servers.is_empty() { Ending::Failed } else { Ending::Done });
    }
    ask(global, async |node| write(global, node, wanted, &imported).await).await
}

fn preview(global: &Global, wanted: &Import, imported: &Imported) {
    let secrets: Vec<&String> = imported.secrets.keys().collect();
    if global.json {
        json_line(&json!({"written": false, "mcp_servers": imported.servers, "secrets": secrets,
            "left_out": left_out(imported), "remarks": imported.remarks}));
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
    eprintln!("nothing was changed; --write adds {}", counted(imported.servers.len(), "server"));
    if wanted.grant.is_none() {
        eprintln!("with --grant CONTEXT, agents of that security context may use them");
    }
}

fn left_out(imported: &Imported) -> Vec<Value> {
    imported.left_out.iter().map(|(name, reason)| json!({"name": name, "reason": reason})).collect()
}

fn tell(imported: &Imported) {
    for (name, reason) in &imported.left_out {
        eprintln!("left out: {}: {}", harmless(name), harmless(reason));
    }
    for remark in &imported.remarks {
        eprintln!("note: {}", harmless(remark));
    }
}

/// What is there as it should be stays; what differs is brought to what the file says.
async fn write(
    global: &Global,
    node: &Backend,
    wanted: &Import,
    imported: &Imported,
) -> anyhow::Result<Ending> {
    let mut ended = Ending::Done;
    let mut note = |(ending, told): (Ending, Value)| {
        if ending != Ending::Done {
            ended = ending;
        }
        (ending == Ending::Done, told)
    };
    let named = |name: &str, mut told: Value| {
        told["name"] = name.into();
        told
    };
    // First what servers need to start.
    let mut secrets = Vec::new();
    for (name, secret) in &imported.secrets {
        let (_, told) = note(store(global, node, name, secret.expose()).await?);
        secrets.push(named(name, told));
    }
    let (mut there, mut servers) = (Vec::new(), Vec::new());
    for server in &imported.servers {
        let (is_there, told) = note(put(global, node, server).await?);
        servers.push(named(&server.name, told));
        if is_there {
            there.push(server.clone());
        }
    }
    let mut granted = Value::Null;
    if let Some(context) = &wanted.grant
        && !there.is_empty()
    {
        let answer = grant::give(node, context, &there).await?;
        (_, granted) = note(step(global, answer, |found| grant::tell(context, &there, found)));
    }
    if global.json {
        json_line(&json!({"written": true, "mcp_servers": servers, "secrets": secrets, "granted": granted,
            "left_out": left_out(imported), "remarks": imported.remarks}));
    } else {
        tell(imported);
        if !there.is_empty() {
            let context = wanted.grant.as_deref().unwrap_or("CONTEXT");
            eprintln!(
                "next: in the client, put one server in the place of these: \
                 {{\"command\": \"aegis\", \"args\": [\"mcp\", \"--context\", \"{context}\"]}}"
            );
        }
    }
    Ok(if ended == Ending::Done && !imported.left_out.is_empty() { Ending::Failed } else { ended })
}

async fn store(global: &Global, node: &Backend, name: &str, value: &str) -> anyhow::Result<(Ending, Value)> {
    let is = |violation: &Violation, kind: ViolationKind| violation.kind == kind;
    let set = node.post("/v1/secrets", &json!({"name": name, "value": value})).await?;
    let Answer::Refused(conflict) = &set else {
        return Ok(step(global, set, |_| say!("secret:{name} is stored")));
    };
    if !is(conflict, ViolationKind::Conflict) {
        return Ok(step(global, set, |_| {}));
    }
    // There is one already. How long it is good for was said by somebody, and the file says nothing about it.
    let renewed = json!({"value": value, "keep_expiry": true});
    let answer = match node.put(&secret::address(name, None), &renewed).await? {
        // It was refused for another reason.
        Answer::Refused(unknown) if is(&unknown, ViolationKind::UnknownName) => set,
        other => other,
    };
    Ok(step(global, answer, |found| {
        let what = if found["changed"] == false { "unchanged" } else { "updated" };
        say!("secret:{name} is {what}");
    }))
}

async fn put(global: &Global, node: &Backend, server: &McpServer) -> anyhow::Result<(Ending, Value)> {
    let answer = node.patient_put(&address(&server.name, ""), &serde_json::to_value(server)?).await?;
    Ok(step(global, answer, |found| {
        say!("{} is {} and {}{}", text(&found["name"]), text(&found["change"]), state(found), because(found));
    }))
}
