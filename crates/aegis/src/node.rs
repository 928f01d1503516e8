//! The composition root: every part is made here, once, and handed to whoever needs it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{
    Caller, Door, Tier, Timestamp,
    caller::AGENT_USER,
    config::{LabelRules, NodeConfig, PolicyConfig, SecurityContext, security_context::OPERATOR_CONTEXT},
    record::{Entry, NodeRecord},
    runtimes,
};
use aegis_doors::Doors;
use aegis_gates::{
    IdentityGate, PolicyGate,
    identity::seal::SealGate,
    policy::{LabelBook, Rules, Schema},
};
use aegis_plane::{Bus, Contexts, Parts, Plane, contexts::Layers};
use aegis_routes::{
    Catalog, ToolPreviews,
    egress::Egress,
    files::Files,
    tools::{
        self,
        aegis::NodeFacts,
        assistant::{approval_request::ApprovalRequest, local_file_read::LocalFileRead},
        web::Engine,
    },
};
use aegis_stores::{AuditLog, DataDir, Registry};
use anyhow::Context;
use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::reload_policies::PolicyFiles;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Subsystems that `aegis.system.info` names.
const CAPABILITIES: [&str; 7] = ["files", "web", "audit", "mcp", "seal", "policy", "approvals"];

/// A node that is ready to take calls. It serves nobody until a door is opened.
#[derive(Debug)]
pub struct Node {
    pub doors: Arc<Doors>,
    pub data: DataDir,
    pub config: Arc<ActiveConfig>,
    pub policies: PolicyFiles,
}

/// The configuration in force and the file it came from.
#[derive(Debug)]
pub struct ActiveConfig {
    file: ArcSwapOption<PathBuf>,
    current: ArcSwap<NodeConfig>,
}

impl ActiveConfig {
    pub fn new(file: Option<PathBuf>, config: NodeConfig) -> Self {
        Self { file: ArcSwapOption::from_pointee(file), current: ArcSwap::from_pointee(config) }
    }

    pub fn current(&self) -> Arc<NodeConfig> {
        self.current.load_full()
    }

    /// Puts the contexts of `file` in force. The other sections stay as the node was started with them.
    pub fn replace_contexts(&self, file: PathBuf, contexts: Vec<SecurityContext>) {
        self.file.store(Some(Arc::new(file)));
        let mut config = NodeConfig::clone(&self.current());
        config.spec.security_contexts = contexts;
        self.current.store(Arc::new(config));
    }

    /// Says what the rules about labels do from now on; the policies are then read anew.
    pub fn replace_label_rules(&self, label_rules: LabelRules) {
        let mut config = NodeConfig::clone(&self.current());
        config.spec.policy.label_rules = label_rules;
        self.current.store(Arc::new(config));
    }

    /// Where it is, for people.
    pub fn place(&self) -> String {
        self.file
            .load()
            .as_ref()
            .map_or_else(|| "(built-in defaults)".to_owned(), |file| file.display().to_string())
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
    catalog_on(config, &files(config, volumes)?, healthy)
}

fn files(config: &ActiveConfig, volumes: &Path) -> anyhow::Result<Arc<Files>> {
    let storage = &config.current().spec.storage;
    Ok(Arc::new(Files::new(volumes.to_owned(), storage).context("the volumes can't be used")?))
}

fn catalog_on(config: &Arc<ActiveConfig>, files: &Arc<Files>, healthy: Health) -> anyhow::Result<Catalog> {
    let spec = &config.current().spec;
    let egress = Egress::new(&spec.egress).context("spec.egress can't be used")?;
    let engine = Engine::from_config(&spec.web_search).context("spec.web_search can't be used")?;
    let shown = Arc::clone(config);
    let facts = NodeFacts {
        version: VERSION,
        capabilities: CAPABILITIES.to_vec(),
        healthy,
        config: Arc::new(move || (shown.place(), shown.current().to_yaml())),
    };
    let catalog =
        tools::fs::register(Catalog::default(), files).with(LocalFileRead::new(files)).with(ApprovalRequest);
    let catalog = tools::web::register_web(catalog, &egress, &engine);
    let catalog = tools::aegis::register(catalog, facts, runtimes::registry(&spec.runtimes));
    Ok(tools::zaru::register(catalog))
}

/// Where the Cedar policies of a node are.
pub fn policies(config: &NodeConfig, data: &Path) -> PathBuf {
    data.join(config.spec.policy.directory.as_deref().unwrap_or(Path::new("policies")))
}

async fn policy_gate(
    config: &PolicyConfig,
    contexts: &[SecurityContext],
    policies: &PolicyFiles,
    catalog: &Catalog,
    registry: &Registry,
) -> anyhow::Result<PolicyGate> {
    let directory = &policies.directory;
    // One that was named and is missing is a mistake; the default one need not be there.
    anyhow::ensure!(
        config.directory.is_none() || directory.is_dir(),
        "spec.policy.directory: {} is not there; without its policies the node would allow what they forbid",
        directory.display()
    );
    // There is no older set to go on with, and without its policies a node would allow what they forbid.
    let rules = Rules::load(directory, &Schema::of(catalog.specs()), config.label_rules)
        .with_context(|| format!("the policies in {} can't be used", directory.display()))?;
    for warning in rules.warnings() {
        tracing::warn!("{warning}");
    }
    let labels = LabelBook::open(registry.clone(), config.label_memory.0).await?;
    Ok(PolicyGate::open(contexts, rules, labels, registry.clone()).await?)
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
        let own = config.spec.security_contexts.clone();
        let config = Arc::new(ActiveConfig::new(file.clone(), config));
        let current = config.current();
        // The log and the registry are files of their own; their disk writes need not wait for each other.
        let audit = {
            let (data, config) = (data.clone(), current.spec.audit.clone());
            tokio::task::spawn_blocking(move || AuditLog::open(&data, &config))
        };
        let registry = Registry::open(&data)?;
        registry.ensure_operator_token(&current.spec.tenancy.default_tenant).await?;
        let seal = SealGate::open(&data, registry.clone(), &current.spec.seal).await?;
        let audit = audit.await??;
        let files = files(&config, &data.volumes())?;
        let catalog = Arc::new(catalog_on(&config, &files, health(&audit))?);
        let layers = Layers::load(&registry, file, own).await?;
        let policies = PolicyFiles::at(policies(&current, data.root()));
        let policy =
            policy_gate(&current.spec.policy, &layers.contexts(), &policies, &catalog, &registry).await?;
        let policy = Arc::new(policy);
        let contexts = Contexts::new(layers, Arc::clone(&policy), registry.clone(), audit.clone());
        let plane = Plane::new(Parts {
            catalog,
            policy,
            audit,
            bus: Bus::default(),
            limits: current.spec.limits.clone(),
            audit_config: current.spec.audit.clone(),
            registry: registry.clone(),
            approvals: current.spec.approvals.clone(),
            sessions: Arc::new(seal.clone()),
            previews: Arc::new(ToolPreviews::new(&files)),
        });
        plane.settle_interrupted().await?;
        plane.resume_approved().await?;
        let doors = Arc::new(Doors {
            plane,
            contexts,
            identity: IdentityGate::new(registry.clone(), seal),
            registry,
            network: current.spec.network.clone(),
            name: current.metadata.name.clone(),
            version: VERSION,
            stopping: CancellationToken::new(),
        });
        Ok(Self { doors, data, config, policies })
    }

    /// The person at this machine, who could read the operator's token anyway; as a user of `context` when named.
    pub fn local_caller(&self, door: Door, context: Option<&str>) -> Caller {
        let narrowed = context.is_some_and(|name| name != OPERATOR_CONTEXT);
        let (user, tier) = if narrowed { (AGENT_USER, Tier::User) } else { ("operator", Tier::Operator) };
        Caller {
            tenant: self.config.current().spec.tenancy.default_tenant.clone(),
            user: user.into(),
            tier,
            context: context.unwrap_or(OPERATOR_CONTEXT).into(),
            credential: "local".into(),
            door,
            session: None,
            pinned: None,
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
        self.doors.identity.seal().close().await;
        if let Err(error) = self.doors.registry.flush().await {
            tracing::warn!(%error, "the registry did not close cleanly");
        }
    }
}
