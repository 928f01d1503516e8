//! Takes a changed configuration file into force. A bad file keeps the old configuration and says why.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use aegis_core::{Event, Timestamp, config::NodeConfig, event::EventName, record::NodeRecord};
use aegis_doors::Doors;
use serde_json::{Map, Value};

use crate::{locate, node::ActiveConfig};

/// How often the file is looked at. A look is one `stat`.
const EVERY: Duration = Duration::from_millis(500);

/// Watches until the node stops. Without a file there is nothing to watch.
pub async fn watch(doors: Arc<Doors>, config: Arc<ActiveConfig>) {
    let Some(file) = config.file.clone() else { return };
    let mut seen = fingerprint(&file);
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = doors.stopping.cancelled() => return,
        }
        let now = fingerprint(&file);
        if now == seen || now.is_none() {
            continue;
        }
        seen = now;
        reload(&doors, &config, &file).await;
    }
}

async fn reload(doors: &Doors, config: &ActiveConfig, file: &Path) {
    let new = match locate::read_config(Some(file)) {
        Ok(new) => new,
        Err(error) => {
            tracing::error!("kept the old configuration: {error:#}");
            doors
                .plane
                .bus()
                .announce_node(Event::new(EventName::ConfigRejected).with("error", format!("{error:#}")));
            return;
        }
    };
    let old = config.current();
    doors.plane.policy().replace(&new.contexts());
    if needs_restart(&old, &new) {
        tracing::warn!("security contexts are in force; the other changes take effect at the next start");
    }
    config.replace(new);
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
