//! What became of servers that were just put there: a call that follows the command should not come too early.

use std::time::Duration;

use aegis_core::quantity::counted;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{address, because, replaced, state, tools, withheld};
use crate::{
    backend::Backend,
    cli::Global,
    client::Answer,
    output::{harmless, say, text},
};

/// How long a command waits for all the servers that it put there: until one that never answers is given up, unless its
/// entry says otherwise.
const PATIENCE: Duration = Duration::from_secs(35);
/// What comes sooner is not announced.
const QUIET: Duration = Duration::from_millis(700);

/// Waits until each of these servers runs or has failed to start, tells a person, and returns their states by name.
pub(super) async fn settle(global: &Global, node: &Backend, names: &[&str]) -> anyhow::Result<Vec<Value>> {
    let Backend::Running(client) = node else {
        if !global.json && !names.is_empty() {
            say!("it starts with the node: aegis up");
        }
        return Ok(Vec::new());
    };
    let deadline = Instant::now() + PATIENCE;
    let waiting = async {
        let mut found = Vec::new();
        for name in names {
            let left = deadline.saturating_duration_since(Instant::now());
            let path = address(name, &format!("?wait={}", left.as_secs()));
            if let Answer::Ok(server) = client.wait(&path, left, None).await? {
                found.push(server);
            }
        }
        Ok::<_, anyhow::Error>(found)
    };
    let mut waiting = std::pin::pin!(waiting);
    let found = tokio::select! {
        found = &mut waiting => found,
        () = tokio::time::sleep(QUIET) => {
            if !global.json {
                let what = if let [only] = names { (*only).to_owned() } else { counted(names.len(), "server") };
                eprintln!("waiting for {what} to start, at most {} s …", PATIENCE.as_secs());
            }
            waiting.await
        }
    }?;
    if !global.json {
        found.iter().for_each(tell);
    }
    Ok(found)
}

/// What became of a server, and the next step where there is one.
pub(super) fn tell(server: &Value) {
    let name = text(&server["name"]);
    match server["status"]["state"].as_str() {
        Some("running" | "degraded") => {
            say!("{name} is {}; tools: {}", state(server), tools(&server["status"]));
            for told in withheld::of(server) {
                say!("{name} {}", told.found);
                eprintln!("  next: {}", told.next);
            }
        }
        Some("starting") => {
            say!("{name} is still starting{}; `aegis upstream list` shows when it runs", because(server));
        }
        Some("stopped") => {
            say!("{name} is stopped{}", because(server));
            eprintln!("  next: aegis upstream logs {name}");
        }
        _ => say!("{name} is {}{}", state(server), because(server)),
    }
}

/// What the node said when it took the server: what it needs and does not have yet, and whose place it takes.
pub(super) fn remarks(name: &str, found: &Value) {
    if let Some(told) = replaced(found) {
        say!("{told}");
    }
    for lack in found["missing"].as_array().into_iter().flatten() {
        eprintln!("warning: {}: {}", harmless(name), text(&lack["what"]));
        eprintln!("  next: {}", text(&lack["next"]));
    }
}

/// Tells of something that may keep a server from working.
pub(super) fn warn(global: &Global, name: &str, remark: &str, told: &mut Value) {
    if !global.json {
        eprintln!("warning: {}: {}", harmless(name), harmless(remark));
    } else if let Some(all) = told["remarks"].as_array_mut() {
        all.push(remark.into());
    } else {
        told["remarks"] = json!([remark]);
    }
}

/// Whether a server that should run can't: it did not come up or, where nothing runs, something of it is missing.
pub(super) fn is_broken(told: &Value) -> bool {
    let lacks = || told["missing"].as_array().is_some_and(|missing| !missing.is_empty());
    match told["status"]["state"].as_str() {
        // One that failed and is tried again has not come up either.
        Some("starting") => told["status"]["failed"] == true,
        Some(state) => state == "stopped",
        None => told["enabled"] != false && lacks(),
    }
}

/// The state of a server in the answer of a script.
pub(super) fn note(told: &mut Value, settled: &[Value]) {
    if let Some(found) = settled.iter().find(|found| found["name"] == told["name"]) {
        told["status"] = found["status"].clone();
    } else if told.get("status").is_some() {
        // Of a node that has ended with the command nothing runs.
        told["status"] = json!(null);
    }
}
