//! Takes a changed configuration file into force. A bad file keeps the old configuration and says why.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aegis_core::{Event, Timestamp, config::NodeConfig, event::EventName, record::NodeRecord};
use aegis_doors::Doors;
use serde_json::{Map, Value};

use crate::{locate, node::ActiveConfig};

/// How often the file is looked at. A look is one `stat`.
const EVERY: Duration = Duration::from_millis(500);

/// Watches until the node stops. A node that started without a file takes the one that appears in its place.
pub async fn watch(doors: Arc<Doors>, config: Arc<ActiveConfig>, file: PathBuf) {
    let mut in_force = fingerprint(&file);
    let mut last_seen = in_force;
    let mut from_file =
        config.file.as_ref().and_then(|file| locate::read_config(Some(file)).ok()).unwrap_or_default();
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
            && let Some(new) = reload(&doors, &config, &file, &from_file).await
        {
            from_file = new;
        }
        if now == last_seen {
            in_force = now;
        }
        last_seen = now;
    }
}

async fn reload(doors: &Doors, config: &ActiveConfig, file: &Path, old: &NodeConfig) -> Option<NodeConfig> {
    let new = match locate::read_config(Some(file)) {
        Ok(new) => new,
        Err(error) => {
            tracing::error!("kept the old configuration: {error:#}");
            let rejected = Event::new(EventName::ConfigRejected).with("error", format!("{error:#}"));
            doors.plane.bus().announce_node(rejected);
            return None;
        }
    };
    doors.plane.policy().replace(&new.contexts());
    config.replace_contexts(new.spec.security_contexts.clone());
    if needs_restart(old, &new) {
        tracing::warn!("security contexts are in force; the other changes take effect at the next start");
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

/// Whether anything but the contexts changed.
fn needs_restart(old: &NodeConfig, new: &NodeConfig) -> bool {
    let rest = |config: &NodeConfig| {
        let mut config = config.clone();
        config.spec.security_contexts.clear();
        serde_json::to_value(config).unwrap_or(Value::Null)
    };
    rest(old) != rest(new)
}

/// Changes whenever the file is written or replaced.
fn fingerprint(file: &Path) -> Option<(SystemTime, u64, u64)> {
    let metadata = fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
