//! The composition root: every part is made here, once, and handed to whoever needs it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{
    Caller, Door, Tier, Timestamp,
    config::{NodeConfig, SecurityContext, security_context::OPERATOR_CONTEXT},
    record::{Entry, NodeRecord},
    runtimes,
};
use aegis_doors::Doors;
use aegis_gates::{IdentityGate, PolicyGate};
use aegis_plane::{Bus, Parts, Plane};
use aegis_routes::{
    Catalog,
    egress::Egress,
    files::Files,
    tools::{self, aegis::NodeFacts, assistant::local_file_read::LocalFileRead, web::Engine},
};
use aegis_stores::{AuditLog, DataDir, Registry};
use anyhow::Context;
use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Subsystems that `aegis.system.info` names.
const CAPABILITIES: [&str; 4] = ["files", "web", "audit", "mcp"];

/// A node that is ready to take calls. It serves nobody until a door is opened.
#[derive(Debug)]
pub struct Node {
    pub doors: Arc<Doors>,
    pub data: DataDir,
    pub config: Arc<ActiveConfig>,
}

/// The configuration in force and the file it came from.
#[derive(Debug)]
pub struct ActiveConfig {
    pub file: Option<PathBuf>,
    current: ArcSwap<NodeConfig>,
}

impl ActiveConfig {
    pub fn new(file: Option<PathBuf>, config: NodeConfig) -> Self {
        Self { file, current: ArcSwap::from_pointee(config) }
    }

    pub fn current(&self) -> Arc<NodeConfig> {
        self.current.load_full()
    }

    /// Puts new contexts in force. The other sections stay as the node was started with them.
    pub fn replace_contexts(&self, contexts: Vec<SecurityContext>) {
        let mut config = NodeConfig::clone(&self.current());
        config.spec.security_contexts = contexts;
        self.current.store(Arc::new(config));
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        self.file.as_ref().map_or_else(|| "(built-in defaults)".to_owned(), |file| file.display().to_string())
    }
}

/// Whether the node can do its work, for `aegis.system.info`.
pub type Health = Arc<dyn Fn() -> bool + Send + Sync>;

fn health(audit: &AuditLog) -> Health {
    let audit = audit.clone();
    Arc::new(move || audit.health().is_ok())
}

/// The tools of this node. Everything that lists, checks, documents or runs a tool starts from this table.
pub fn catalog(config: &Arc<ActiveConfig>, volumes: &Path, healthy: Health) -> anyhow::Result<Catalog> {
    let spec = &config.current().spec;
    let files = Arc::new(Files::new(volumes.to_owned(), &spec.storage).context("the volumes can't be used")?);
    let egress = Egress::new(&spec.egress).context("spec.egress can't be used")?;
    let engine = Engine::from_config(&spec.web_search).context("spec.web_search can't be used")?;
    let shown = Arc::clone(config);
    let facts = NodeFacts {
        version: VERSION,
        capabilities: CAPABILITIES.to_vec(),
        healthy,
        config: Arc::new(move || (shown.place(), shown.current().to_yaml())),
    };
    let catalog = tools::fs::register(Catalog::default(), &files).with(LocalFileRead::new(&files));
    let catalog = tools::web::register_web(catalog, &egress, &engine);
    Ok(tools::aegis::register(catalog, facts, runtimes::registry(&spec.runtimes)))
}

impl Node {
    /// Opens the data directory and puts the node together. Settles what an earlier node left open.
    pub async fn open(data: &Path, file: Option<PathBuf>, config: NodeConfig) -> anyhow::Result<Self> {
        let data = DataDir::open(data)?;
        // What a killed node left would send commands, and the operator's token, to whoever has its address now.
        if let Err(error) = std::fs::remove_file(data.node_file())
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).context("can't remove the traces of an earlier node");
        }
        let config = Arc::new(ActiveConfig::new(file, config));
        let current = config.current();
        let registry = Registry::open(&data)?;
        registry.ensure_operator_token(&current.spec.tenancy.default_tenant).await?;
        let audit = AuditLog::open(&data, &current.spec.audit)?;
        let catalog = Arc::new(catalog(&config, &data.volumes(), health(&audit))?);
        let plane = Plane::new(Parts {
            catalog,
            policy: Arc::new(PolicyGate::new(&current.contexts())),
            audit,
            bus: Bus::default(),
            limits: current.spec.limits.clone(),
            audit_config: current.spec.audit.clone(),
        });
        plane.settle_interrupted().await?;
        let doors = Arc::new(Doors {
            plane,
            identity: IdentityGate::new(registry.clone()),
            registry,
            network: current.spec.network.clone(),
            name: current.metadata.name.clone(),
            version: VERSION,
            stopping: CancellationToken::new(),
        });
        Ok(Self { doors, data, config })
    }

    /// The person at this machine, who could read the operator's token anyway; as a user of `context` when named.
    pub fn local_caller(&self, door: Door, context: Option<&str>) -> Caller {
        let tier =
            if context.is_none_or(|name| name == OPERATOR_CONTEXT) { Tier::Operator } else { Tier::User };
        Caller {
            tenant: self.config.current().spec.tenancy.default_tenant.clone(),
            user: "operator".into(),
            tier,
            context: context.unwrap_or(OPERATOR_CONTEXT).into(),
            credential: "local".into(),
            door,
            session: None,
        }
    }

    /// Records something about the node. On disk before it returns.
    pub async fn note(&self, action: &str, detail: Map<String, Value>) -> anyhow::Result<()> {
        let record = NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller: None, detail };
        self.doors.plane.note(record).await?;
        Ok(())
    }

    /// As [`Node::note`], without waiting for the disk.
    pub async fn mention(&self, action: &str, detail: Map<String, Value>) -> anyhow::Result<()> {
        let record = NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller: None, detail };
        self.doors.plane.audit().record(&Entry::Node(record)).await?;
        Ok(())
    }

    /// Ends the node in order: calls in work finish, the audit log gets its last head.
    pub async fn close(self) {
        self.doors.stopping.cancel();
        self.doors.plane.drain().await;
        self.doors.plane.close().await;
        if let Err(error) = self.doors.registry.flush().await {
            tracing::warn!(%error, "the registry did not close cleanly");
        }
    }
}
