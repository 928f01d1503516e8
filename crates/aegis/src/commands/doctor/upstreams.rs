//! Can the MCP servers start, and have they what they need.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use aegis_core::{
    config::{McpServer, NodeConfig, SecretRef},
    secret::SecretError,
};
use aegis_routes::upstream::{absent, unresolved};
use aegis_stores::{
    DataDir,
    registry::{read_added_servers, read_secret_names},
};

use serde_json::Value;

use super::{Finding, State};
use crate::{
    cli::Acting,
    client::{Answer, Client},
    commands::upstream::{self, withheld::Why},
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
        // What only this shell lacks is no reason for one that runs, and of others the node knows better why they don't.
        if seen.up.contains(&server.name) {
            continue;
        }
        match seen.ended.remove(&server.name) {
            Some(ended) => findings.extend(ended),
            None => findings.extend(lacking(server, &has)),
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

/// What a server needs and this machine does not have, as it would be missing to a node that is started from this shell.
fn lacking(server: &McpServer, stored: &dyn Fn(&str) -> bool) -> Vec<Finding> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut findings: Vec<Finding> = absent(server, &path, "this shell's PATH")
        .map(|lack| Finding::bad(SERVERS, cannot_start(&server.name, &lack.what), lack.next))
        .into_iter()
        .collect();
    for reference in server.references().filter(|reference| !reference.is_per_principal()) {
        let error = match reference {
            SecretRef::Stored(secret) if !stored(secret) => SecretError::NotStored(secret.clone()),
            SecretRef::File(path) => match fs::File::open(path) {
                Ok(_) => continue,
                Err(error) => SecretError::NoFile { path: path.clone(), reason: error.to_string() },
            },
            // The node may have another environment than this shell.
            SecretRef::Env(variable) if std::env::var_os(variable).is_none() => {
                findings.push(Finding::warning(
                    SECRETS,
                    format!("`{}` needs the variable {variable}, which is not set here", server.name),
                    "set it where the node is started, or store a secret instead",
                ));
                continue;
            }
            _ => continue,
        };
        let lack = unresolved(server, reference, &error);
        findings.push(Finding::bad(SECRETS, cannot_start(&server.name, &lack.what), lack.next));
    }
    findings
}

fn cannot_start(name: &str, what: &str) -> String {
    format!("`{name}` can't start: {what}")
}

/// What the running node says of its servers.
#[derive(Default)]
struct Seen {
    /// Of those that do not run, or not well, by name.
    ended: BTreeMap<String, Vec<Finding>>,
    up: BTreeSet<String>,
    /// What is to be said besides.
    more: Vec<Finding>,
}

/// What the node finds missing of a server that does not run.
async fn missing(client: &Client, name: &str) -> Vec<Finding> {
    let Ok(Answer::Ok(found)) = client.get(&upstream::address(name, "")).await else { return Vec::new() };
    let lacks = found["missing"].as_array().into_iter().flatten();
    let told =
        |lack: &Value| Finding::bad(SERVERS, cannot_start(name, &text(&lack["what"])), text(&lack["next"]));
    lacks.map(told).collect()
}

/// Where to look at a server that does not come up. One that never did may be no MCP server at all.
fn look_at(name: &str, status: &Value) -> String {
    let doubt = match (status["last_healthy"].is_null(), status["transport"] == "stdio") {
        (false, _) => "",
        (true, true) => {
            "; a server that is a program speaks MCP on its standard input and output, and nothing else there"
        }
        (true, false) => "; look whether its address is that of an MCP server, path and all",
    };
    format!("aegis upstream logs {name}{doubt}")
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
        // One that is tried again and again is starting most of the time.
        let keeps_failing = state == "starting" && status["failed"] == true;
        if matches!(state.as_str(), "stopped" | "degraded") || keeps_failing {
            // What a server lacks is why it does not run: told once, with what to do.
            let mut told = missing(&client, &name).await;
            if told.is_empty() {
                let mend = look_at(&name, status);
                told.push(Finding::bad(SERVERS, format!("`{name}` is {state}: {reason}"), mend));
            }
            seen.ended.insert(name.clone(), told);
        } else if state == "starting" && !reason.is_empty() {
            let found = format!("`{name}` is starting: {reason}");
            seen.ended.insert(name.clone(), vec![Finding::warning(SERVERS, found, look_at(&name, status))]);
        } else if !status.is_null() {
            seen.up.insert(name.clone());
        }
        seen.more.extend(upstream::withheld::of(server).into_iter().map(|told| {
            let found = format!("`{name}` {}", told.found);
            match told.why {
                Why::Waiting | Why::Unusable => Finding::warning(SERVERS, found, told.next),
                // Somebody wanted it so.
                Why::Rejected | Why::Ceded => Finding::good(SERVERS, format!("{found} ({})", told.next)),
            }
        }));
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
