//! Can the MCP servers start, and have they what they need.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use aegis_core::{
    config::{McpServer, NodeConfig, SecretRef},
    quantity::counted,
};
use aegis_routes::upstream::has_program;
use aegis_stores::{
    DataDir,
    registry::{read_added_servers, read_secret_names},
};

use serde_json::Value;

use super::{Finding, State};
use crate::{
    cli::Acting,
    client::Answer,
    locate::{self, NodeFile},
    output::text,
};

const SERVERS: &str = "mcp servers";
const SECRETS: &str = "secrets";

pub(super) async fn look(data: &Path, running: Option<&NodeFile>, config: &NodeConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    let paths = DataDir::read_only(data).ok();
    let mut servers = config.spec.mcp_servers.clone();
    let mut stored = Vec::new();
    if let Some(paths) = &paths {
        let added = read_added_servers(&paths.registry_database()).unwrap_or_default();
        let own: BTreeSet<String> = servers.iter().map(|server| server.name.clone()).collect();
        let added = added.iter().filter_map(|row| serde_json::from_str::<McpServer>(&row.text).ok());
        // The file wins; the other one is told as not used.
        servers.extend(added.filter(|server| !own.contains(&server.name)));
        stored = read_secret_names(&paths.registry_database()).unwrap_or_default();
        findings.extend(keys(&paths.secret_keys(), stored.len()));
    }
    let wanted: Vec<&McpServer> = servers.iter().filter(|server| server.enabled).collect();
    if wanted.is_empty() {
        return findings;
    }
    let tenant = config.spec.tenancy.default_tenant.as_str();
    let has = |name: &str| stored.iter().any(|(owner, known)| owner.as_str() == tenant && known == name);
    let before = findings.len();
    let mut seen = match running {
        Some(running) => states(data, running).await,
        None => Seen::default(),
    };
    for server in &wanted {
        let mut found: Vec<Finding> = program(server).into_iter().collect();
        found.extend(server.references().filter_map(|reference| lacking(server, reference, &has)));
        let ended = seen.ended.remove(&server.name);
        // What a server lacks is why it does not run: told once, with what to do. What only this shell lacks is no reason
        // for one that runs, and where the node has a better one, that one counts.
        if found.iter().any(|finding| finding.state == State::Bad) {
            findings.extend(found);
        } else if let Some(ended) = ended {
            findings.push(ended);
        } else if !seen.up.contains(&server.name) {
            findings.extend(found);
        }
    }
    findings.extend(seen.more);
    if findings[before..].iter().all(|finding| finding.state == State::Good) {
        findings
            .push(Finding::good(SERVERS, format!("{} configured, each with what it needs", wanted.len())));
    }
    findings
}

fn keys(file: &Path, secrets: usize) -> Option<Finding> {
    if secrets == 0 {
        return None;
    }
    Some(match fs::metadata(file) {
        Ok(metadata) if metadata.permissions().mode() & 0o077 != 0 => Finding::bad(
            SECRETS,
            format!("others can read {}, and with it every secret", file.display()),
            format!(
                "chmod 600 {}, then give each secret a new value with `aegis secret rotate`",
                file.display()
            ),
        ),
        Ok(_) => Finding::good(SECRETS, format!("{secrets} stored")),
        Err(_) => Finding::bad(
            SECRETS,
            format!("{secrets} stored, and {} is gone, which opens them", file.display()),
            "restore it from a backup, or delete the secrets and set them again",
        ),
    })
}

fn program(server: &McpServer) -> Option<Finding> {
    // In a sandbox there are other programs than here.
    let executable = server.executable.as_deref().filter(|_| server.sandbox.is_none())?;
    if has_program(executable, &std::env::var_os("PATH").unwrap_or_default()) {
        return None;
    }
    Some(Finding::bad(
        SERVERS,
        format!("`{}` can't start: there is no program `{executable}`", server.name),
        "install it, or write its whole path",
    ))
}

fn lacking(server: &McpServer, reference: &SecretRef, stored: &dyn Fn(&str) -> bool) -> Option<Finding> {
    let name = &server.name;
    let is_sign_in = server.oauth.as_ref().is_some_and(|oauth| oauth.sign_in.as_ref() == Some(reference));
    match reference {
        SecretRef::Stored(secret) if is_sign_in && !stored(secret) => Some(Finding::bad(
            SECRETS,
            format!("`{name}` waits for somebody to sign in"),
            format!("aegis upstream sign-in {name}"),
        )),
        SecretRef::Stored(secret) if !reference.is_per_principal() && !stored(secret) => Some(Finding::bad(
            SECRETS,
            format!("`{name}` needs the secret `{secret}`, which is not stored"),
            format!("aegis secret set {secret}"),
        )),
        SecretRef::File(file) if fs::File::open(file).is_err() => Some(Finding::bad(
            SECRETS,
            format!("`{name}` needs {file}, which can't be read"),
            "make the file, or let this user read it",
        )),
        // The node may have another environment than this shell.
        SecretRef::Env(variable) if std::env::var_os(variable).is_none() => Some(Finding::warning(
            SECRETS,
            format!("`{name}` needs the variable {variable}, which is not set here"),
            "set it where the node is started, or store a secret instead",
        )),
        _ => None,
    }
}

/// What the running node says of its servers.
#[derive(Default)]
struct Seen {
    /// Those that do not run, or not well, by name.
    ended: BTreeMap<String, Finding>,
    up: BTreeSet<String>,
    /// What is to be said besides.
    more: Vec<Finding>,
}

async fn states(data: &Path, running: &NodeFile) -> Seen {
    let mut seen = Seen::default();
    let Ok(client) = locate::client(data, running, &Acting::default()) else { return seen };
    let Ok(Answer::Ok(found)) = client.get("/v1/upstreams").await else { return seen };
    let listed = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for server in listed(&found["upstreams"]).iter().filter(|server| server["enabled"] == true) {
        let (name, status) = (text(&server["name"]), &server["status"]);
        let (state, reason) = (text(&status["state"]), text(&status["reason"]));
        if let Some(hidden) = server["hidden"].as_str() {
            let mend = format!("aegis upstream remove {name}, or change the configuration file");
            seen.more.push(Finding::warning(SERVERS, format!("`{name}` is not used: {hidden}"), mend));
            continue;
        }
        if matches!(state.as_str(), "stopped" | "degraded") {
            let mend = format!("aegis upstream logs {name}");
            let told = Finding::bad(SERVERS, format!("`{name}` is {state}: {reason}"), mend);
            seen.ended.insert(name.clone(), told);
        } else if !status.is_null() {
            seen.up.insert(name.clone());
        }
        let count = |member: &str| status[member].as_u64().unwrap_or(0);
        if count("quarantined") > 0 {
            seen.more.push(Finding::warning(
                SERVERS,
                format!("`{name}` waits for a decision on {}", counted(count("quarantined"), "tool")),
                format!("aegis upstream diff {name}, then accept or reject"),
            ));
        }
        if count("rejected") > 0 {
            let told = counted(count("rejected"), "tool");
            seen.more.push(Finding::good(
                SERVERS,
                format!(
                    "`{name}`: {told} rejected; `aegis upstream accept {name} TOOL` accepts one after all"
                ),
            ));
        }
    }
    seen.more.extend(listed(&found["shared_resources"]).first().map(|first| {
        let servers: Vec<String> = listed(&first["servers"]).iter().map(text).collect();
        let others = listed(&found["shared_resources"]).len() - 1;
        let more = if others > 0 { format!(", and {others} more such") } else { String::new() };
        Finding::warning(
            SERVERS,
            format!("the resource {} is listed by {}{more}", text(&first["uri"]), servers.join(" and ")),
            "readers name the server, with the tool mcp.resources.read; or grant a context one of the servers only",
        )
    }));
    seen
}
