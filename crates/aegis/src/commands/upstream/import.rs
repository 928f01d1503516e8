//! `aegis upstream import`.

use aegis_core::{
    Violation, ViolationKind,
    config::{McpServer, NodeConfig, upstream::Grant},
    document,
    quantity::{counted, enumerated},
};
use aegis_routes::upstream::absent;
use anyhow::bail;
use serde_json::{Value, json};

use super::{
    address, ask,
    client_file::{self, ClientFileError, Imported},
    grant, misplaced, settled, step,
};
use crate::{
    backend::Backend,
    cli::{Global, Import},
    client::Answer,
    commands::secret,
    ending::Mistake,
    input,
    known::Known,
    output::{Ending, harmless, json_line, refusal, say, say_part, text},
};

pub(super) async fn run(global: &Global, wanted: &Import) -> anyhow::Result<Ending> {
    let name = wanted.file.display().to_string();
    let variables = |name: &str| std::env::var(name).ok();
    let mut imported = match client_file::read(&input::text(&wanted.file)?, &wanted.only, &variables) {
        Ok(imported) => imported,
        Err(error @ ClientFileError::NoServer { .. }) => {
            let next = "name a server of the file, as it stands there, or leave --only out";
            return Err(Mistake::new(format!("{name}: {error}"), next).into());
        }
        Err(error) => bail!("{name} can't be taken over: {error}"),
    };
    for server in &imported.servers {
        let misplaced = misplaced::remarks(server).await;
        imported.remarks.extend(misplaced.into_iter().map(|told| format!("{}: {told}", server.name)));
    }
    if !wanted.write {
        // What the node would say, as far as it can be seen from here.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = tokio::task::spawn_blocking(|| Known::of(NodeConfig::default(), None)).await??;
        for server in &imported.servers {
            if let Some(lack) = absent(server, &path, "this shell's PATH") {
                imported.remarks.push(format!("{}: {}: {}", server.name, lack.what, lack.next));
            }
            let claims = server.claims();
            let is_claimed = |name: &&str| claims.iter().any(|claim| claim.matches(name));
            let taken: Vec<&str> = own.catalog.built_ins().filter(is_claimed).collect();
            if server.enabled && !taken.is_empty() {
                let (name, taken) = (&server.name, enumerated(&taken));
                imported.remarks.push(format!("{name}: it would take the place of the node's own {taken}"));
            }
        }
        preview(global, wanted, &imported);
        return Ok(if imported.left_out.is_empty() { Ending::Done } else { Ending::Failed });
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
    eprintln!("nothing was changed; --write adds or updates {}", counted(imported.servers.len(), "server"));
    if wanted.grant.is_none() {
        eprintln!("with --grant CONTEXT, agents of that security context may use them");
    }
}

const ITSELF: &str = "it is aegis itself";

fn left_out(imported: &Imported) -> Vec<Value> {
    let own = imported.itself.iter().map(|name| json!({"name": name, "reason": ITSELF}));
    let others = imported.left_out.iter().map(|(name, reason)| json!({"name": name, "reason": reason}));
    own.chain(others).collect()
}

fn tell(imported: &Imported) {
    for name in &imported.itself {
        eprintln!("left out: {}: {ITSELF}", harmless(name));
    }
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
    let remark = match &wanted.grant {
        Some(context) => match grant::prepare(node, context).await? {
            Ok(remark) => remark,
            Err(violation) => return Ok(refusal(&violation, global.json)),
        },
        None => None,
    };
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
        grant::warn(global, remark.as_deref(), &mut granted);
    }
    let names: Vec<&str> = there.iter().map(|server| server.name.as_str()).collect();
    let settled = settled::settle(global, node, &names).await?;
    servers.iter_mut().for_each(|told| settled::note(told, &settled));
    if ended == Ending::Done && (!imported.left_out.is_empty() || servers.iter().any(settled::is_broken)) {
        ended = Ending::Failed;
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
    Ok(ended)
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

/// The server as the file has it, with everything that was settled for it here and that a client's file can't say: its
/// sandbox, whether its definitions are trusted, what was decided about its tools, whether it is switched off, its sign-in.
async fn as_settled_here(node: &Backend, server: &McpServer) -> anyhow::Result<McpServer> {
    let mut server = server.clone();
    let Answer::Ok(found) = node.get(&address(&server.name, "")).await? else { return Ok(server) };
    let Ok(there) = serde_json::from_value::<McpServer>(found["config"].clone()) else { return Ok(server) };
    let is_bare = server.oauth.is_none()
        && !server.credentials.keys().any(|header| header.eq_ignore_ascii_case("authorization"));
    if server.url.is_some() && there.url == server.url && is_bare {
        server.oauth = there.oauth.clone().filter(|oauth| oauth.grant == Grant::AuthorizationCode);
    }
    Ok(McpServer {
        enabled: server.enabled && there.enabled,
        executable: server.executable,
        args: server.args,
        working_directory: server.working_directory,
        environment: server.environment,
        inherit_environment: server.inherit_environment,
        url: server.url,
        transport: server.transport,
        headers: server.headers,
        credentials: server.credentials,
        oauth: server.oauth,
        ..there
    })
}

async fn put(global: &Global, node: &Backend, server: &McpServer) -> anyhow::Result<(Ending, Value)> {
    let server = &as_settled_here(node, server).await?;
    let answer = node.patient_put(&address(&server.name, ""), &serde_json::to_value(server)?).await?;
    let (ending, mut told) = step(global, answer, |found| {
        say!("{} is {}", text(&found["name"]), text(&found["change"]));
        settled::remarks(&server.name, found);
    });
    // The file knows of no sandbox, so nothing of what one hides has been told.
    if ending == Ending::Done && server.sandbox.is_some() {
        for remark in misplaced::remarks(server).await {
            settled::warn(global, &server.name, &remark, &mut told);
        }
    }
    Ok((ending, told))
}
