//! A node's gateway in a temporary directory, and what it recorded.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aegis_core::{
    Caller, Door, Event, Tier,
    config::{
        AccessMode, ApprovalsConfig, AuditConfig, LimitsConfig, NfsConfig, NodeConfig, SecurityContext,
        StorageConfig, TtlClass, VolumeConfig,
    },
    event::Announcement,
    id::{ContextName, TenantId, UserId},
    quantity::Size,
    record::{CallRecord, Entry, Intent, NodeRecord},
};
use aegis_gates::{
    PolicyGate,
    policy::{LabelBook, Rules},
};
use aegis_nfs::gateway::{Gateway, MadeExport, WantedExport};
use aegis_plane::{
    Bus, Parts, Plane,
    approvals::{NoPreviews, NoSessions},
};
use aegis_routes::{Catalog, files::Files, tools::fs};
use aegis_stores::{
    AuditLog, DataDir, Registry,
    audit::{Filter, LogReader},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use crate::client::Wire;

pub(crate) struct Stage {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) events: broadcast::Receiver<Arc<Announcement>>,
    pub(crate) plane: Arc<Plane>,
    dir: TempDir,
    stopping: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

/// Everything the audit log holds.
pub(crate) struct Recorded {
    pub(crate) calls: Vec<CallRecord>,
    pub(crate) intents: Vec<Intent>,
    pub(crate) notes: Vec<NodeRecord>,
}

fn contexts() -> Vec<SecurityContext> {
    let of = |value: Value| serde_json::from_value(value).unwrap();
    let mut contexts = NodeConfig::default().contexts();
    contexts.extend([
        of(json!({"name": "part", "capabilities": [
            {"tool_pattern": "fs.*", "path_allowlist": ["/workspace/open"]},
        ]})),
        of(json!({"name": "secretive", "capabilities": [{"tool_pattern": "fs.*", "path_allowlist": ["/workspace"]}],
            "deny_list": ["fs.*:/workspace/secret"]})),
        of(json!({"name": "blind", "capabilities": [{"tool_pattern": "fs.*", "path_allowlist": ["/workspace"]}],
            "deny_list": ["fs.read:/workspace/box/keys"]})),
        of(json!({"name": "walled", "capabilities": [{"tool_pattern": "*"}], "deny_list": ["*:/workspace/box/keys"]})),
        of(json!({"name": "asks", "capabilities": [
            {"tool_pattern": "fs.read"}, {"tool_pattern": "fs.list"},
            {"tool_pattern": "fs.write", "approval": "required"},
        ]})),
        of(json!({"name": "slow", "capabilities": [
            {"tool_pattern": "fs.list"}, {"tool_pattern": "fs.read"},
            {"tool_pattern": "fs.write", "rate_limit": {"calls": 2, "per_seconds": 3600}},
        ]})),
    ]);
    contexts
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_, _| {}).await
    }

    pub(crate) async fn with(configure: impl FnOnce(&mut StorageConfig, &Path)) -> Self {
        let dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        Self::on(dir, configure).await
    }

    pub(crate) async fn on(dir: TempDir, configure: impl FnOnce(&mut StorageConfig, &Path)) -> Self {
        let data = DataDir::open(dir.path().join("data")).unwrap();
        let mut storage = StorageConfig {
            nfs: NfsConfig { enabled: true, listen: ([127, 0, 0, 1], 0).into(), ..NfsConfig::default() },
            ..StorageConfig::default()
        };
        configure(&mut storage, dir.path());
        let files = Arc::new(Files::new(dir.path().join("volumes"), &storage).unwrap());
        let bus = Bus::default();
        let events = bus.subscribe();
        let plane = Plane::new(Parts {
            catalog: Arc::new(fs::register(Catalog::default(), &files)),
            policy: Arc::new(PolicyGate::new(&contexts(), Rules::none(), LabelBook::forgetful())),
            audit: AuditLog::open(&data, &AuditConfig::default()).unwrap(),
            bus,
            limits: LimitsConfig::default(),
            audit_config: AuditConfig::default(),
            registry: Registry::open(&data).unwrap(),
            approvals: ApprovalsConfig::default(),
            sessions: Arc::new(NoSessions),
            previews: Arc::new(NoPreviews),
            spans: Arc::new(aegis_core::trace::NoSpans),
        });
        let gateway = Gateway::open(&plane, &files, &storage.nfs, &data).unwrap();
        let listener = gateway.bind().await.unwrap().unwrap();
        let stopping = CancellationToken::new();
        let serving = tokio::spawn(Arc::clone(&gateway).serve(listener, stopping.clone()));
        Self { gateway, events, plane, dir, stopping, serving }
    }

    pub(crate) async fn export(&self, context: &str) -> MadeExport {
        self.export_volume(context, None).await
    }

    pub(crate) async fn export_volume(&self, context: &str, volume: Option<&str>) -> MadeExport {
        let wanted = wanted(context, volume, Duration::from_secs(600));
        self.gateway.export(&operator(), wanted).await.unwrap()
    }

    /// A client that has mounted the export.
    pub(crate) async fn mounted(&self, context: &str) -> Wire {
        Wire::mount(&self.export(context).await).await
    }

    /// Where the workspace is.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("volumes/local/workspace")
    }

    pub(crate) fn outside(&self) -> &Path {
        self.dir.path()
    }

    /// Events so far, by name.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let mut found = Vec::new();
        while let Ok(announcement) = self.events.try_recv() {
            found.push(announcement.event.clone());
        }
        found
    }

    /// Stops in order.
    pub(crate) async fn stop(self) -> (Recorded, TempDir) {
        self.stopping.cancel();
        self.serving.await.unwrap();
        self.plane.drain().await;
        self.plane.close().await;
        let reader = LogReader::open(&self.dir.path().join("data/audit.db")).unwrap();
        let mut recorded = Recorded { calls: Vec::new(), intents: Vec::new(), notes: Vec::new() };
        for stored in reader.tail(&Filter::default(), 100_000).unwrap().into_iter().rev() {
            match stored.entry.unwrap() {
                Entry::Call(record) => recorded.calls.push(*record),
                Entry::Intent(intent) => recorded.intents.push(intent),
                Entry::Node(note) => recorded.notes.push(note),
            }
        }
        (recorded, self.dir)
    }
}

impl Recorded {
    /// Operations with how they ended, in order.
    pub(crate) fn operations(&self) -> Vec<(String, String, String)> {
        self.calls
            .iter()
            .map(|call| {
                let asked = call.asked_as.clone().unwrap_or_default();
                let path = call.arguments["path"].as_str().unwrap_or_default().to_owned();
                (asked, path, call.result.status().to_owned())
            })
            .collect()
    }

    pub(crate) fn count(&self, asked_as: &str, status: &str) -> usize {
        self.operations().iter().filter(|(asked, _, ended)| asked == asked_as && ended == status).count()
    }
}

pub(crate) fn wanted(context: &str, volume: Option<&str>, lasting: Duration) -> WantedExport {
    WantedExport {
        context: ContextName::new(context),
        tenant: TenantId::new("local"),
        user: UserId::new("agent"),
        volume: volume.map(str::to_owned),
        lasting,
    }
}

pub(crate) fn operator() -> Caller {
    Caller {
        tenant: "local".into(),
        user: "operator".into(),
        tier: Tier::Operator,
        context: "aegis-system-operator".into(),
        credential: "local".into(),
        door: Door::Cli,
        session: None,
        pinned: None,
    }
}

pub(crate) fn volume(
    name: &str,
    host_path: &Path,
    mount_path: &str,
    access_mode: AccessMode,
) -> VolumeConfig {
    std::fs::create_dir_all(host_path).unwrap();
    VolumeConfig {
        name: name.into(),
        host_path: host_path.to_str().unwrap().into(),
        mount_path: mount_path.into(),
        access_mode,
        size_limit: None,
        ttl_class: TtlClass::Persistent,
        tenant: None,
    }
}

pub(crate) fn small(storage: &mut StorageConfig) {
    storage.workspace_size_limit = Size(64 << 10);
}
