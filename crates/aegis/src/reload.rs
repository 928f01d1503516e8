//! Takes a changed configuration file into force. A bad file keeps the old configuration and says why.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aegis_core::{
    Event, Timestamp,
    config::{LabelRules, NodeConfig},
    event::EventName,
    record::NodeRecord,
};
use aegis_doors::Doors;
use serde_json::{Map, Value};

use crate::{known, locate, node::ActiveConfig};

/// How often the file is looked at. A look is one `stat`.
const EVERY: Duration = Duration::from_millis(500);

/// A configuration as it was read, and the file it is read from.
#[derive(Debug)]
pub struct Watched {
    pub config: NodeConfig,
    file: PathBuf,
    /// As it was before it was read: whatever changes afterwards is noticed.
    seen: Option<Fingerprint>,
}

impl Watched {
    /// Reads `file`. Without one the defaults hold, until a file appears at `otherwise`.
    pub fn read(file: Option<PathBuf>, otherwise: PathBuf) -> anyhow::Result<Self> {
        let seen = file.as_deref().and_then(fingerprint);
        let config = locate::read_config(file.as_deref())?;
        Ok(Self { config, file: file.unwrap_or(otherwise), seen })
    }
}

/// What came of a changed file.
enum Taken {
    InForce(Box<NodeConfig>),
    /// The file is at fault: nothing changes until it does.
    Refused,
    /// The record could not be written: it is tried again.
    Unrecorded,
}

/// Watches until the node stops.
pub async fn watch(doors: Arc<Doors>, active: Arc<ActiveConfig>, watched: Watched) {
    let Watched { mut config, file, seen } = watched;
    let (mut in_force, mut last_seen) = (seen, seen);
    // What could not be recorded is told once, however often it is tried.
    let mut unrecorded = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = doors.stopping.cancelled() => return,
        }
        let now = fingerprint(&file);
        // A file that is still being written changes between two looks.
        if now == last_seen && now != in_force {
            let taken = match now {
                Some(_) => reload(&doors, &active, &file, &config, unrecorded == now).await,
                None => {
                    reject(&doors, format!("{} is gone", file.display()));
                    Taken::Refused
                }
            };
            match taken {
                Taken::InForce(new) => (config, in_force, unrecorded) = (*new, now, None),
                Taken::Refused => in_force = now,
                Taken::Unrecorded => unrecorded = now,
            }
        }
        last_seen = now;
    }
}

async fn reload(doors: &Doors, active: &ActiveConfig, file: &Path, old: &NodeConfig, is_told: bool) -> Taken {
    let new = match locate::read_config(Some(file)) {
        Ok(new) => new,
        Err(error) => {
            reject(doors, format!("{error:#}"));
            return Taken::Refused;
        }
    };
    let mut detail = Map::new();
    detail.insert("file".into(), file.display().to_string().into());
    let record = |action: &str, detail: &Map<String, Value>| NodeRecord {
        time: Timestamp::now(),
        action: action.into(),
        caller: None,
        detail: detail.clone(),
    };
    // Whatever a context then allows or a server does can be traced back to the file that said so.
    if let Err(violation) = doors.plane.note(record("config-reloaded", &detail)).await {
        if !is_told {
            reject(doors, format!("the reload can't be recorded: {violation}"));
        }
        return Taken::Unrecorded;
    }
    let own = new.spec.security_contexts.clone();
    if let Err(error) = doors.contexts.replace_own(file.to_owned(), own).await {
        let error = format!("the new contexts can't be written down: {error}");
        reject(doors, error.clone());
        detail.insert("error".into(), error.into());
        if let Err(violation) = doors.plane.note(record("config-rejected", &detail)).await {
            tracing::error!(%violation, "that the configuration was not reloaded after all can't be recorded");
        }
        return Taken::Refused;
    }
    active.replace_contexts(file.to_owned(), new.spec.security_contexts.clone());
    active.replace_servers(new.spec.mcp_servers.clone());
    doors.servers.replace_own(file.to_owned(), new.spec.mcp_servers.clone()).await;
    active.replace_label_rules(new.spec.policy.label_rules);
    let waiting: Vec<String> = waiting(old, &new).into_iter().map(|(path, _)| path).collect();
    if !waiting.is_empty() {
        tracing::warn!(
            "security contexts, MCP servers and label rules are in force; the other changes take effect at the next start: {}",
            waiting.join(", ")
        );
    }
    known::warn_of_doubts(doors).await;
    tracing::info!(file = %file.display(), "the configuration was reloaded");
    doors.plane.bus().announce_node(Event { name: EventName::ConfigReloaded, detail });
    Taken::InForce(Box::new(new))
}

fn reject(doors: &Doors, error: String) {
    tracing::error!("kept the old configuration: {error}");
    doors.plane.bus().announce_node(Event::new(EventName::ConfigRejected).with("error", error.clone()));
    doors.contexts.refuse_file(error);
}

/// What `new` has otherwise than `old` and is not taken into force at once: each member with its new value.
pub fn waiting(old: &NodeConfig, new: &NodeConfig) -> Vec<(String, Value)> {
    let rest = |config: &NodeConfig| {
        let mut config = config.clone();
        config.spec.security_contexts.clear();
        config.spec.mcp_servers.clear();
        config.spec.policy.label_rules = LabelRules::default();
        serde_json::to_value(config).unwrap_or(Value::Null)
    };
    let mut found = Vec::new();
    differing(&rest(old), &rest(new), "", &mut found);
    found
}

fn differing(old: &Value, new: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match (old, new) {
        (old, new) if old == new => {}
        (Value::Object(before), Value::Object(after)) => {
            let gone = before.keys().filter(|name| !after.contains_key(*name));
            for name in after.keys().chain(gone) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                differing(&old[name], &new[name], &path, found);
            }
        }
        (_, new) => found.push((path.to_owned(), new.clone())),
    }
}

/// Changes whenever the file is written or replaced.
type Fingerprint = (SystemTime, u64, u64);

fn fingerprint(file: &Path) -> Option<Fingerprint> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_a_restart_is_named() {
        let read = |spec: &str| {
            let head = "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {name: n}\nspec: ";
            NodeConfig::parse(&format!("{head}{spec}")).unwrap()
        };
        let old = read("{}");
        assert_eq!(
            waiting(&old, &read("{security_contexts: [{name: mine}], policy: {label_rules: off}}")),
            []
        );
        let found =
            waiting(&old, &read("{network: {listen: \"127.0.0.1:9000\"}, storage: {max_list_entries: 7}}"));
        assert_eq!(
            found,
            [
                ("spec.network.listen".to_owned(), Value::from("127.0.0.1:9000")),
                ("spec.storage.max_list_entries".to_owned(), Value::from(7))
            ]
        );
    }
}
