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

use crate::{locate, node::ActiveConfig};

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

/// Watches until the node stops.
pub async fn watch(doors: Arc<Doors>, active: Arc<ActiveConfig>, watched: Watched) {
    let Watched { mut config, file, seen } = watched;
    let (mut in_force, mut last_seen) = (seen, seen);
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = doors.stopping.cancelled() => return,
        }
        let now = fingerprint(&file);
        // A file that is still being written changes between two looks.
        if now.is_some()
            && now != in_force
            && now == last_seen
            && let Some(new) = reload(&doors, &active, &file, &config).await
        {
            config = new;
        }
        if now == last_seen {
            in_force = now;
        }
        last_seen = now;
    }
}

async fn reload(doors: &Doors, active: &ActiveConfig, file: &Path, old: &NodeConfig) -> Option<NodeConfig> {
    let new = match locate::read_config(Some(file)) {
        Ok(new) => new,
        Err(error) => {
            tracing::error!("kept the old configuration: {error:#}");
            let rejected = Event::new(EventName::ConfigRejected).with("error", format!("{error:#}"));
            doors.plane.bus().announce_node(rejected);
            return None;
        }
    };
    let own = new.spec.security_contexts.clone();
    if let Err(error) = doors.contexts.replace_own(file.to_owned(), own).await {
        tracing::error!(%error, "kept the old configuration: the new contexts can't be written down");
        let rejected = Event::new(EventName::ConfigRejected).with("error", error.to_string());
        doors.plane.bus().announce_node(rejected);
        return None;
    }
    active.replace_contexts(file.to_owned(), new.spec.security_contexts.clone());
    active.replace_servers(new.spec.mcp_servers.clone());
    doors.servers.replace_own(file.to_owned(), new.spec.mcp_servers.clone()).await;
    active.replace_label_rules(new.spec.policy.label_rules);
    if needs_restart(old, &new) {
        tracing::warn!(
            "security contexts, MCP servers and label rules are in force; the other changes take effect at the next start"
        );
    }
    let mut detail = Map::new();
    detail.insert("file".into(), file.display().to_string().into());
    let record = NodeRecord {
        time: Timestamp::now(),
        action: "config-reloaded".into(),
        caller: None,
        detail: detail.clone(),
    };
    if let Err(violation) = doors.plane.note(record).await {
        tracing::error!(%violation, "the reload could not be recorded");
    }
    tracing::info!(file = %file.display(), "the configuration was reloaded");
    doors.plane.bus().announce_node(Event { name: EventName::ConfigReloaded, detail });
    Some(new)
}

/// Whether anything changed that is not taken into force at once.
fn needs_restart(old: &NodeConfig, new: &NodeConfig) -> bool {
    let rest = |config: &NodeConfig| {
        let mut config = config.clone();
        config.spec.security_contexts.clear();
        config.spec.mcp_servers.clear();
        config.spec.policy.label_rules = LabelRules::default();
        serde_json::to_value(config).unwrap_or(Value::Null)
    };
    rest(old) != rest(new)
}

/// Changes whenever the file is written or replaced.
type Fingerprint = (SystemTime, u64, u64);

fn fingerprint(file: &Path) -> Option<Fingerprint> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
