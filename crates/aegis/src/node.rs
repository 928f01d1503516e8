//! The composition root: every part is made here, once, and handed to whoever needs it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use aegis_core::{
    Caller, Door, Tier, Timestamp, Violation,
    caller::AGENT_USER,
    config::{McpServer, NodeConfig, PolicyConfig, security_context::OPERATOR_CONTEXT},
    id::CallId,
    progress::Listener,
    record::{Entry, NodeRecord},
    runtimes,
    secret::{Principal, SecretSource},
    trace::{NoSpans, Spans},
    upstream::ServerState,
};
use aegis_doors::Doors;
use aegis_gates::{
    IdentityGate, PolicyGate,
    identity::seal::SealGate,
    policy::{LabelBook, Rules, Schema},
};
use aegis_nfs::gateway::Gateway;
use aegis_plane::{
    Bus, Contexts, Parts, Plane, Secrets, Servers,
    contexts::Layers,
    servers::{Journal, ServerLayers},
};
use aegis_routes::{
    Catalog, ToolPreviews,
    egress::Egress,
    exec::Exec,
    files::Files,
    tools::{
        self,
        aegis::NodeFacts,
        assistant::{approval_request::ApprovalRequest, local_file_read::LocalFileRead},
        web::Engine,
    },
    upstream::{Confinement, Direct, Parts as UpstreamParts, Servers as UpstreamServers},
};
use aegis_stores::{AuditLog, DataDir, Registry, SecretResolver};
use anyhow::Context;
use serde_json::{Map, Value};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use crate::active_config::ActiveConfig;
use crate::{
    otlp,
    reload_policies::{self, PolicyFiles},
    volumes,
};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Subsystems that `aegis.system.info` names.
const CAPABILITIES: [&str; 8] = ["files", "web", "exec", "audit", "mcp", "seal", "policy", "approvals"];

/// How long a node that ends waits for its last traces to go out.
const LAST_TRACES: Duration = Duration::from_secs(5);
/// How often it is looked whether servers are ready.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// A node that is ready to take calls. It serves nobody until a door is opened.
#[derive(Debug)]
pub struct Node {
    pub doors: Arc<Doors>,
    pub data: DataDir,
    pub config: Arc<ActiveConfig>,
    pub policies: PolicyFiles,
    upstream: UpstreamServers,
    /// Where servers went, on record.
    journal: Arc<Journal>,
    /// Sends traces; ends when the node does.
    traces: Option<JoinHandle<()>>,
}

/// Whether the node can do its work, for `aegis.system.info`.
pub type Health = Arc<dyn Fn() -> bool + Send + Sync>;

/// The tools are made while the log is still being opened; until it is there, nothing works.
fn health(audit: Arc<OnceLock<AuditLog>>) -> Health {
    Arc::new(move || audit.get().is_some_and(|audit| audit.health().is_ok()))
}

/// The tools of this node. Everything that lists, checks, documents or runs a tool starts from this table.
pub fn catalog(config: &Arc<ActiveConfig>, volumes: &Path, healthy: Health) -> anyhow::Result<Catalog> {
    let files = files(config, volumes)?;
    catalog_on(config, &files, &exec(config, &files)?, healthy)
}

fn exec(config: &ActiveConfig, files: &Arc<Files>) -> anyhow::Result<Arc<Exec>> {
    let spec = &config.current().spec;
    let egress = Egress::new(&spec.egress).context("spec.egress can't be used")?;
    Ok(Arc::new(Exec::new(spec.exec.clone(), files, &egress)))
}

fn files(config: &ActiveConfig, volumes: &Path) -> anyhow::Result<Arc<Files>> {
    let storage = &config.current().spec.storage;
    Ok(Arc::new(Files::new(volumes.to_owned(), storage).context("the volumes can't be used")?))
}

fn catalog_on(
    config: &Arc<ActiveConfig>,
    files: &Arc<Files>,
    exec: &Arc<Exec>,
    healthy: Health,
) -> anyhow::Result<Catalog> {
    let spec = &config.current().spec;
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
    let catalog = tools::assistant::register_writers(catalog, files);
    let catalog = tools::cmd::register(catalog, exec);
    let catalog = tools::web::register_web(catalog, exec.egress(), &engine);
    let catalog = tools::aegis::register(catalog, facts, runtimes::registry(&spec.runtimes));
    Ok(tools::zaru::register(catalog))
}

/// Where the Cedar policies of a node are.
pub fn policies(config: &NodeConfig, data: &Path) -> PathBuf {
    data.join(config.spec.policy.directory.as_deref().unwrap_or(Path::new("policies")))
}

/// What is made out of the configuration alone, without the data of the node. Blocks.
struct Prepared {
    files: Arc<Files>,
    exec: Arc<Exec>,
    catalog: Arc<Catalog>,
    rules: anyhow::Result<Rules>,
}

impl Prepared {
    fn new(
        config: &Arc<ActiveConfig>,
        volumes: &Path,
        policies: &Path,
        healthy: Health,
    ) -> anyhow::Result<Self> {
        let files = files(config, volumes)?;
        let exec = exec(config, &files)?;
        let catalog = Arc::new(catalog_on(config, &files, &exec, healthy)?);
        let spec = &config.current().spec;
        let rules = rules(&spec.policy, policies, &catalog, &spec.mcp_servers);
        Ok(Self { files, exec, catalog, rules })
    }
}

/// The MCP servers behind the node. None is started yet.
fn upstream(
    config: &NodeConfig,
    data: &DataDir,
    confinement: Confinement,
    catalog: &Arc<Catalog>,
    registry: &Registry,
    seal: &SealGate,
    secrets: &Arc<dyn SecretSource>,
) -> anyhow::Result<UpstreamServers> {
    let tenant = config.spec.tenancy.default_tenant.clone();
    UpstreamServers::new(UpstreamParts {
        catalog: Arc::clone(catalog),
        secrets: Arc::clone(secrets),
        subjects: Arc::new(seal.clone()),
        pins: Arc::new(registry.clone()),
        egress: config.spec.egress.clone(),
        directory: data.root().join("servers"),
        confinement,
        own: Principal { tenant, user: "aegis".into() },
        name: config.metadata.name.clone(),
        version: VERSION,
        via: CallId::fresh().to_string(),
    })
    .context("the way to MCP servers can't be made")
}

/// Who is told of calls that have ended, and what tells a collector.
struct Telemetry {
    spans: Arc<dyn Spans>,
    sender: Option<otlp::Sender>,
}

fn telemetry(config: &NodeConfig, secrets: &Arc<dyn SecretSource>) -> anyhow::Result<Telemetry> {
    let Some(otlp) = &config.spec.observability.otlp else {
        return Ok(Telemetry { spans: Arc::new(NoSpans), sender: None });
    };
    let http = Arc::new(Direct::new(&config.spec.egress).context("spec.observability.otlp can't be used")?);
    let (exporter, sender) = otlp::exporter(otlp, &config.metadata.name, VERSION, http, Arc::clone(secrets));
    Ok(Telemetry { spans: Arc::new(exporter), sender: Some(sender) })
}

fn rules(
    config: &PolicyConfig,
    directory: &Path,
    catalog: &Catalog,
    servers: &[McpServer],
) -> anyhow::Result<Rules> {
    // One that was named and is missing is a mistake; the default one need not be there.
    anyhow::ensure!(
        config.directory.is_none() || directory.is_dir(),
        "spec.policy.directory: {} is not there; without its policies the node would allow what they forbid",
        directory.display()
    );
    // There is no older set to go on with, and without its policies a node would allow what they forbid.
    let expected = servers.iter().flat_map(McpServer::claims).collect();
    let rules = Rules::load(directory, &Schema::of(&catalog.specs()).expecting(expected), config.label_rules)
        .with_context(|| format!("the policies in {} can't be used", directory.display()))?;
    for warning in rules.warnings() {
        tracing::warn!("{warning}");
    }
    Ok(rules)
}

impl Node {
    /// Opens the data directory and puts the node together. Settles what an earlier node left open.
    pub async fn open(data: &Path, file: Option<PathBuf>, config: NodeConfig) -> anyhow::Result<Self> {
        let data = DataDir::open(data)?;
        if let Some(volume) = volumes::exposing(&config, data.root()) {
            anyhow::bail!(
                "the volume `{}` would let agents reach the node's own keys, records and rules: {} and the data directory \
                 {} are one in the other; choose another host_path under spec.storage.volumes",
                volume.name,
                volume.host_path,
                data.root().display()
            );
        }
        // What a killed node left would send commands, and the operator's token, to whoever has its address now.
        if let Err(error) = std::fs::remove_file(data.node_file())
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).context("can't remove the traces of an earlier node");
        }
        let own = config.spec.security_contexts.clone();
        let config = Arc::new(ActiveConfig::new(file.clone(), config));
        let current = config.current();
        let policies = PolicyFiles::at(policies(&current, data.root()));
        let log = Arc::new(OnceLock::new());
        // The log and the registry are files of their own, and the tools and policies need neither: none of the
        // three waits for the others.
        let prepared = {
            let (config, healthy) = (Arc::clone(&config), health(Arc::clone(&log)));
            let (volumes, policies) = (data.volumes(), policies.directory.clone());
            tokio::task::spawn_blocking(move || Prepared::new(&config, &volumes, &policies, healthy))
        };
        let audit = {
            let (data, config) = (data.clone(), current.spec.audit.clone());
            tokio::task::spawn_blocking(move || AuditLog::open(&data, &config))
        };
        let registry = Registry::open(&data)?;
        registry.ensure_operator_token(&current.spec.tenancy.default_tenant).await?;
        let seal = SealGate::open(&data, registry.clone(), &current.spec.seal).await?;
        let servers = ServerLayers::load(&registry, file.clone(), current.spec.mcp_servers.clone()).await?;
        let layers = Layers::load(&registry, file, own).await?;
        let labels = LabelBook::open(registry.clone(), current.spec.policy.label_memory.0).await?;
        let audit = audit.await??;
        let audit = log.get_or_init(|| audit).clone();
        let Prepared { files, exec, catalog, rules: read } = prepared.await??;
        // They may be about tools of servers that an operator added, which only the registry knows.
        let added = servers.servers();
        catalog.expect(added.iter().flat_map(McpServer::claims).collect());
        let rules = match read {
            Err(_) if added.len() > current.spec.mcp_servers.len() => {
                let (config, directory) = (current.spec.policy.clone(), policies.directory.clone());
                let catalog = Arc::clone(&catalog);
                tokio::task::spawn_blocking(move || rules(&config, &directory, &catalog, &added)).await?
            }
            other => other,
        }?;
        let ceiling = current.spec.exec.ceiling.clone();
        let policy = PolicyGate::open(&layers.contexts(), rules, labels, registry.clone(), ceiling).await?;
        let policy = Arc::new(policy);
        let contexts = Contexts::new(layers, Arc::clone(&policy), registry.clone(), audit.clone());
        let tenant = current.spec.tenancy.default_tenant.clone();
        let secrets: Arc<dyn SecretSource> = Arc::new(SecretResolver::new(registry.clone(), tenant.clone()));
        let bus = Bus::default();
        let journal = Arc::new(Journal::new(audit.clone(), bus.clone()));
        let confinement = Confinement {
            sandbox: exec.sandbox().clone(),
            exec: exec.config().clone(),
            egress: exec.egress().clone(),
            files: Arc::clone(&files),
            journal: Arc::clone(&journal) as Arc<dyn Listener>,
            data: data.root().canonicalize().unwrap_or_else(|_| data.root().to_owned()),
        };
        let upstream = upstream(&current, &data, confinement, &catalog, &registry, &seal, &secrets)?;
        let telemetry = telemetry(&current, &secrets)?;
        let live = Arc::new(upstream.clone());
        let servers = Servers::new(servers, live, registry.clone(), tenant, audit.clone());
        let servers = Arc::new(servers);
        let secrets = Secrets::new(registry.clone(), audit.clone(), Arc::clone(&servers));
        let previews = Arc::new(ToolPreviews::new(&files, &catalog));
        let plane = Plane::new(Parts {
            catalog,
            policy,
            audit,
            bus,
            limits: current.spec.limits.clone(),
            audit_config: current.spec.audit.clone(),
            registry: registry.clone(),
            approvals: current.spec.approvals.clone(),
            sessions: Arc::new(seal.clone()),
            previews,
            spans: telemetry.spans,
        });
        plane.settle_interrupted().await?;
        plane.resume_approved().await?;
        let volumes = Gateway::open(&plane, &files, &current.spec.storage.nfs, &data)?;
        let doors = Arc::new(Doors {
            volumes,
            plane,
            contexts,
            servers,
            secrets,
            offers: Arc::new(upstream.clone()),
            identity: IdentityGate::new(registry.clone(), seal),
            registry,
            network: current.spec.network.clone(),
            name: current.metadata.name.clone(),
            version: VERSION,
            stopping: CancellationToken::new(),
        });
        let traces = telemetry.sender.map(|sender| tokio::spawn(sender.run(doors.stopping.clone())));
        Ok(Self { doors, data, config, policies, upstream, journal, traces })
    }

    /// Starts the MCP servers behind the node.
    pub async fn start_servers(&self) {
        let (doors, config) = (Arc::clone(&self.doors), Arc::clone(&self.config));
        tokio::spawn(reload_policies::keep_in_step(doors, config, self.policies.directory.clone()));
        self.doors.servers.start().await;
    }

    /// Waits until each of the `needed` servers is ready or can't be, or time is up.
    pub async fn servers_ready(&self, patience: Duration, needed: impl Fn(&str) -> bool) {
        let starting = || {
            let statuses = self.doors.servers.statuses();
            statuses.iter().any(|status| status.state == ServerState::Starting && needed(&status.name))
        };
        let ready = async {
            while starting() {
                tokio::time::sleep(BETWEEN_LOOKS).await;
            }
            self.upstream.publish();
            self.doors.plane.policies_read().await;
        };
        let _ = tokio::time::timeout(patience, ready).await;
    }

    /// Whether there is a context of this name, for whoever acts in one from the start.
    pub fn knows_context(&self, name: Option<&str>) -> Result<(), Violation> {
        name.map_or(Ok(()), |name| self.doors.plane.policy().contexts().named(name).map(|_| ()))
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
        self.doors.volumes.close().await;
        self.doors.plane.drain().await;
        self.upstream.close().await;
        self.journal.close().await;
        if let Some(traces) = self.traces {
            // What is left goes out first, but nobody waits for ever.
            let _ = tokio::time::timeout(LAST_TRACES, traces).await;
        }
        self.doors.plane.close().await;
        self.doors.identity.seal().close().await;
        if let Err(error) = self.doors.registry.flush().await {
            tracing::warn!(%error, "the registry did not close cleanly");
        }
    }
}
