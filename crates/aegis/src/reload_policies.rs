//! Takes changed policy files into force, all or none. A mistake in one keeps the old policies and says why.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aegis_core::{Event, Timestamp, config::LabelRules, event::EventName, record::NodeRecord};
use aegis_doors::Doors;
use aegis_gates::policy::{Rules, RulesError, Schema, list_sources};
use serde_json::{Map, Value};

use crate::node::ActiveConfig;

/// How often the directory is looked at.
const EVERY: Duration = Duration::from_millis(500);

/// The policy files of a node, as they were before they were read: whatever changes afterwards is noticed.
#[derive(Debug, Clone)]
pub struct PolicyFiles {
    pub directory: PathBuf,
    seen: Fingerprint,
}

impl PolicyFiles {
    pub fn at(directory: PathBuf) -> Self {
        let seen = fingerprint(&directory);
        Self { directory, seen }
    }
}

/// Changes whenever a file of the directory is written, replaced, added or taken away.
type Fingerprint = Vec<(String, Option<(SystemTime, u64, u64)>)>;

fn fingerprint(directory: &Path) -> Fingerprint {
    let of = |path: &Path| {
        let found = fs::symlink_metadata(path).ok()?;
        Some((found.modified().ok()?, found.len(), found.ino()))
    };
    match list_sources(directory) {
        Ok(files) => files.into_iter().map(|(name, path)| (name, of(&path))).collect(),
        Err(error) => vec![(error.to_string(), None)],
    }
}

/// Watches until the node stops. The switch for the shipped rules is in the configuration, which is watched elsewhere.
pub async fn watch(doors: Arc<Doors>, active: Arc<ActiveConfig>, files: PolicyFiles) {
    let directory = Arc::new(files.directory);
    let mut in_force = (files.seen, doors.plane.policy().rules().label_rules());
    let mut last_seen = in_force.clone();
    let mut missing = false;
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = doors.stopping.cancelled() => return,
        }
        let looked = Arc::clone(&directory);
        let Ok(found) = tokio::task::spawn_blocking(move || fingerprint(&looked)).await else { return };
        let now = (found, active.current().spec.policy.label_rules);
        // Moved away, or a disk that is not there: not the same as an operator who took the rules back.
        if now.0.is_empty() && !in_force.0.is_empty() && !directory.is_dir() {
            if now == last_seen && !missing {
                gone(&doors, &directory);
                missing = true;
            }
            last_seen = now;
            continue;
        }
        // A file that is still being written changes between two looks.
        if now == last_seen {
            if now != in_force || missing {
                reload(&doors, &directory, now.1).await;
            }
            in_force.clone_from(&now);
            missing = false;
        }
        last_seen = now;
    }
}

/// Reads the policies anew whenever the catalog changes, until the node stops: tools that they were not read with stay
/// closed.
pub async fn keep_in_step(doors: Arc<Doors>, active: Arc<ActiveConfig>, directory: PathBuf) {
    let directory = Arc::new(directory);
    loop {
        tokio::select! {
            () = doors.plane.catalog().changed() => {}
            () = doors.stopping.cancelled() => return,
        }
        let label_rules = active.current().spec.policy.label_rules;
        match load(&doors, &directory, label_rules).await {
            Some(Ok(rules)) => doors.plane.policy().replace_rules(rules),
            Some(Err(error)) => reject(&doors, error),
            None => return,
        }
        doors.offers.tell_tools_changed();
    }
}

/// The policies, held against the tools there are at its end. `None` when the node is stopping.
async fn load(
    doors: &Doors,
    directory: &Arc<PathBuf>,
    label_rules: LabelRules,
) -> Option<Result<Rules, RulesError>> {
    let catalog = doors.plane.catalog();
    loop {
        let version = catalog.version();
        let schema = Schema::of(&catalog.specs()).expecting(doors.servers.patterns());
        let directory = Arc::clone(directory);
        let loading = tokio::task::spawn_blocking(move || Rules::load(&directory, &schema, label_rules));
        let loaded = loading.await.ok()?;
        if catalog.version() == version {
            return Some(loaded);
        }
    }
}

async fn reload(doors: &Doors, directory: &Arc<PathBuf>, label_rules: LabelRules) {
    let rules = match load(doors, directory, label_rules).await {
        Some(Ok(rules)) => rules,
        Some(Err(error)) => return reject(doors, error),
        None => return,
    };
    for warning in rules.warnings() {
        tracing::warn!("{warning}");
    }
    let mut detail = Map::new();
    detail.insert("policies".into(), directory.display().to_string().into());
    detail.insert("version".into(), rules.version().into());
    detail.insert("rules".into(), rules.list().len().into());
    detail.insert("label_rules".into(), serde_json::to_value(label_rules).unwrap_or(Value::Null));
    doors.plane.policy().replace_rules(rules);
    let record = NodeRecord {
        time: Timestamp::now(),
        action: "policies-reloaded".into(),
        caller: None,
        detail: detail.clone(),
    };
    if let Err(violation) = doors.plane.note(record).await {
        tracing::error!(%violation, "the reload could not be recorded");
    }
    tracing::info!(directory = %directory.display(), "the policies were reloaded");
    doors.plane.bus().announce_node(Event { name: EventName::ConfigReloaded, detail });
}

fn gone(doors: &Doors, directory: &Path) {
    let source = io::Error::from(io::ErrorKind::NotFound);
    reject(doors, RulesError::Unreadable { directory: directory.to_owned(), source });
}

fn reject(doors: &Doors, error: RulesError) {
    tracing::error!("kept the old policies:\n{error}");
    doors.plane.bus().announce_node(Event::new(EventName::ConfigRejected).with("error", error.to_string()));
    doors.plane.policy().refuse_rules(error);
}
