//! Can the MCP servers start, and have they what they need.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use aegis_core::{
    config::{McpServer, NodeConfig, SecretRef},
    quantity::counted,
};
use aegis_stores::{
    DataDir,
    registry::{read_added_servers, read_secret_names},
};

use super::Finding;
use crate::{
    cli::Acting,
    client::Answer,
    locate::{self, NodeFile},
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
        servers.extend(added.iter().filter_map(|row| serde_json::from_str::<McpServer>(&row.text).ok()));
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
    for server in &wanted {
        findings.extend(program(server));
        findings.extend(server.references().filter_map(|reference| lacking(server, reference, &has)));
    }
    if let Some(running) = running {
        findings.extend(states(data, running).await);
    }
    if findings.len() == before {
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
    if found(executable) {
        return None;
    }
    Some(Finding::bad(
        SERVERS,
        format!("`{}` can't start: there is no program `{executable}`", server.name),
        "install it, or write its whole path",
    ))
}

fn found(executable: &str) -> bool {
    let is_program = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if executable.contains('/') {
        return is_program(PathBuf::from(executable));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| is_program(directory.join(executable)))
}

fn lacking(server: &McpServer, reference: &SecretRef, stored: &dyn Fn(&str) -> bool) -> Option<Finding> {
    let name = &server.name;
    match reference {
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

async fn states(data: &Path, running: &NodeFile) -> Vec<Finding> {
    let Ok(client) = locate::client(data, running, &Acting::default()) else { return Vec::new() };
    let Ok(Answer::Ok(found)) = client.get("/v1/upstreams").await else { return Vec::new() };
    let servers = found["upstreams"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut findings = Vec::new();
    for server in servers.iter().filter(|server| server["enabled"] == true) {
        let (name, status) = (text(&server["name"]), &server["status"]);
        let (state, reason) = (text(&status["state"]), text(&status["reason"]));
        if let Some(hidden) = server["hidden"].as_str() {
            let mend = format!("aegis upstream remove {name}, or change the configuration file");
            findings.push(Finding::warning(SERVERS, format!("`{name}` is not used: {hidden}"), mend));
        } else if matches!(state.as_str(), "stopped" | "degraded") {
            let mend = format!("aegis upstream logs {name}");
            findings.push(Finding::bad(SERVERS, format!("`{name}` is {state}: {reason}"), mend));
        }
        if status["quarantined"].as_u64().unwrap_or(0) > 0 {
            findings.push(Finding::warning(
                SERVERS,
                format!(
                    "`{name}` waits for a decision on {}",
                    counted(status["quarantined"].as_u64().unwrap_or(0), "tool")
                ),
                format!("aegis upstream diff {name}, then accept or reject"),
            ));
        }
    }
    findings
}
