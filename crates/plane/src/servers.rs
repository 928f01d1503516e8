//! The MCP servers of a running node: those of the configuration file, and those that an operator added. The file
//! wins, so that the two never fight over a name.

mod journal;
mod layers;
mod proposals;
mod removed;
mod sign_in;

use std::{path::PathBuf, sync::Arc, time::Duration};

use aegis_core::{
    Caller, Timestamp,
    config::{McpServer, ToolPattern, upstream::check_added},
    id::{TenantId, UserId},
    nearest::suggestion,
    record::{Entry, NodeRecord},
    redact,
    upstream::{
        Lack, Lacks, LogLine, ServerStatus, ServerTool, SharedResource, TestReport, UpstreamError, Upstreams,
        taken,
    },
};
use aegis_stores::{
    audit::{AuditError, AuditLog},
    registry::{AddedServer, Registry, RegistryError},
};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::{Mutex, MutexGuard};

pub use self::journal::Journal;
pub use self::layers::{Configured, ServerLayers, ServerSource};
pub use self::proposals::Proposal;
pub use self::removed::{LeftSecret, Removed};

/// How long what a server needs is looked for.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("there is no server `{name}`{close}")]
    Unknown { name: String, close: String },
    #[error("the server `{name}` is defined in {place}")]
    InFile { name: String, place: String },
    #[error("there is a server `{0}` already: remove it first, or choose another name")]
    Taken(String),
    #[error("the server can't be added: {0}")]
    Invalid(String),
    #[error("the server can't be added: {}", .0.what)]
    Unusable(Lack),
    #[error("the added server `{name}` in the registry can't be read: {source}")]
    Stored { name: String, source: serde_json::Error },
    #[error("the server `{server}` has no tool `{tool}`{close}")]
    UnknownTool { server: String, tool: String, close: String },
    #[error("the server `{name}` is defined in {place}, where nothing is said of signing in")]
    NoSignIn { name: String, place: String },
    #[error(
        "the server `{0}` was removed or got another address while somebody signed in to it, so nobody is: \
         `aegis upstream sign-in {0}`"
    )]
    Moved(String),
    #[error("the server `{0}` has not been started: servers run while a node does, `aegis up`")]
    NotStarted(String),
    #[error("nothing of `{0}` waits for a decision: `aegis upstream diff {0}` shows what does")]
    NothingProposed(String),
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("the audit log can't be written: {0}")]
    Unrecordable(#[from] AuditError),
}

/// A server as it is configured and as it is doing.
#[derive(Debug, Clone, Serialize)]
pub struct Server {
    #[serde(flatten)]
    pub configured: Configured,
    /// `None` when the node has not started it.
    pub status: Option<ServerStatus>,
}

/// What became of a server that was put there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    Added,
    Updated,
    Unchanged,
}

/// A server that was put there.
#[derive(Debug, Clone)]
pub struct Installed {
    pub server: Server,
    pub change: Change,
    /// What it needs and does not have yet.
    pub missing: Vec<Lack>,
}

/// Changes servers, one change at a time: recorded, stored, then in force.
#[derive(derive_more::Debug)]
pub struct Servers {
    layers: Mutex<ServerLayers>,
    #[debug(skip)]
    live: Arc<dyn Upstreams>,
    registry: Registry,
    /// Whose secrets servers are given, whoever calls and whoever operates.
    tenant: TenantId,
    audit: AuditLog,
}

impl Servers {
    /// `tenant` is that of the stored secrets that servers are given.
    pub fn new(
        layers: ServerLayers,
        live: Arc<dyn Upstreams>,
        registry: Registry,
        tenant: TenantId,
        audit: AuditLog,
    ) -> Self {
        Self { layers: Mutex::new(layers), live, registry, tenant, audit }
    }

    /// Starts what is configured. Until then nothing runs.
    pub async fn start(&self) {
        let layers = self.layers.lock().await;
        self.live.replace(layers.servers()).await;
        self.note_replaced(&layers.servers());
    }

    /// The node's own tools in whose place this server's stand.
    pub fn replaces(&self, server: &Configured) -> Vec<String> {
        if server.hidden.is_some() { Vec::new() } else { self.live.replaces(&server.server) }
    }

    fn note_replaced(&self, servers: &[McpServer]) {
        for server in servers {
            let names = self.live.replaces(server);
            if !names.is_empty() {
                tracing::info!("{} by the MCP server `{}`", taken(&names), server.name);
            }
        }
    }

    /// By name.
    pub async fn list(&self) -> Vec<Server> {
        let statuses = self.live.list();
        let status = |name: &str| statuses.iter().find(|status| status.name == name).cloned();
        let configured = self.layers.lock().await.configured();
        configured
            .into_iter()
            .map(|configured| Server { status: status(&configured.server.name), configured })
            .collect()
    }

    pub async fn show(&self, name: &str) -> Result<Server, ServerError> {
        let all = self.list().await;
        match all.iter().find(|server| server.configured.server.name == name) {
            Some(found) => Ok(found.clone()),
            None => Err(unknown(name, all.iter().map(|server| server.configured.server.name.as_str()))),
        }
    }

    pub fn tools(&self, name: &str) -> Vec<ServerTool> {
        self.live.tools(name)
    }

    /// The servers that a tool of this name could be of.
    pub async fn claimants(&self, tool: &str) -> Vec<String> {
        let mut servers = self.layers.lock().await.servers();
        servers.retain(|server| server.claims().iter().any(|pattern| pattern.matches(tool)));
        servers.into_iter().map(|server| server.name).collect()
    }

    /// Names that tools of the running servers have, or will have.
    pub fn patterns(&self) -> Vec<ToolPattern> {
        self.live.claims()
    }

    /// Whether a request with this mark comes from this node itself, by way of a server that leads back to it.
    pub fn leads_back(&self, mark: &str) -> bool {
        self.live.sent(mark)
    }

    /// How the running ones are doing, for those who only look.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        self.live.list()
    }

    /// Adds a server and starts it.
    pub async fn add(&self, server: McpServer, operator: &Caller) -> Result<Installed, ServerError> {
        let lacks = self.look(&server).await;
        let layers = self.layers.lock().await;
        if !layers.in_file(&server.name) && layers.added(&server.name).is_some() {
            return Err(ServerError::Taken(server.name));
        }
        let missing = usable(lacks)?;
        let server = self.install(layers, server, Change::Added, operator).await?;
        Ok(Installed { server, change: Change::Added, missing })
    }

    /// Adds a server, or puts it in the place of the added one of its name. One that is there already, as it is, notices
    /// nothing.
    pub async fn put(&self, server: McpServer, operator: &Caller) -> Result<Installed, ServerError> {
        let lacks = self.look(&server).await;
        let layers = self.layers.lock().await;
        let change = match layers.configured().into_iter().find(|one| one.server.name == server.name) {
            Some(same) if same.server == server => {
                drop(layers);
                let server = self.show(&server.name).await?;
                return Ok(Installed { server, change: Change::Unchanged, missing: lacks.missing });
            }
            Some(_) => Change::Updated,
            None => Change::Added,
        };
        let missing = usable(lacks)?;
        let server = self.install(layers, server, change, operator).await?;
        Ok(Installed { server, change, missing })
    }

    /// What a server needs and does not have at this moment.
    pub async fn missing(&self, server: &McpServer) -> Vec<Lack> {
        self.look(server).await.missing
    }

    /// Looks for what a server's entry names. Never while the layers are held: a disk may not answer.
    async fn look(&self, server: &McpServer) -> Lacks {
        let looked = tokio::time::timeout(LONGEST_LOOK, self.live.lacks(server)).await;
        looked.unwrap_or_else(|_| Lacks {
            wrong: Vec::new(),
            missing: vec![Lack {
                what: format!("what it needs could not be looked at within {} s", LONGEST_LOOK.as_secs()),
                next: "look whether the disks answer that hold its program, its files and its mounts"
                    .to_owned(),
            }],
        })
    }

    async fn install(
        &self,
        layers: MutexGuard<'_, ServerLayers>,
        server: McpServer,
        change: Change,
        operator: &Caller,
    ) -> Result<Server, ServerError> {
        let origin = (Timestamp::now(), operator.user.clone());
        self.store(layers, server, origin, change, operator).await
    }

    /// Changes something about an added server, which stays the one that somebody else may have added.
    async fn amend(
        &self,
        layers: MutexGuard<'_, ServerLayers>,
        server: McpServer,
        operator: &Caller,
    ) -> Result<Server, ServerError> {
        let origin = layers.origin(&server.name);
        let origin = origin.unwrap_or_else(|| (Timestamp::now(), operator.user.clone()));
        self.store(layers, server, origin, Change::Updated, operator).await
    }

    async fn store(
        &self,
        mut layers: MutexGuard<'_, ServerLayers>,
        server: McpServer,
        (added, added_by): (Timestamp, UserId),
        change: Change,
        operator: &Caller,
    ) -> Result<Server, ServerError> {
        if layers.in_file(&server.name) {
            return Err(ServerError::InFile { place: layers.place(), name: server.name });
        }
        let mut others = layers.servers();
        others.retain(|other| other.name != server.name);
        check_added(&others, &server).map_err(ServerError::Invalid)?;
        let name = server.name.clone();
        let row = AddedServer {
            name: name.clone(),
            text: serde_json::to_string(&server)
                .map_err(|source| ServerError::Stored { name: name.clone(), source })?,
            added,
            added_by,
        };
        let config = serde_json::to_value(&server).unwrap_or_default();
        let action = if change == Change::Updated { "upstream-changed" } else { "upstream-added" };
        self.record(action, &name, [("config", config)], operator).await?;
        self.registry.add_server(row.clone()).await?;
        layers.remove(&name);
        layers.add(row, server.clone());
        self.live.replace(layers.servers()).await;
        self.note_replaced(&[server]);
        drop(layers);
        self.show(&name).await
    }

    /// Waits until a server that is being started runs, or has failed to.
    pub async fn started(&self, name: &str) {
        self.live.started(name).await;
    }

    /// Resources that several servers list, by address.
    pub async fn shared_resources(&self) -> Vec<SharedResource> {
        self.live.shared_resources().await
    }

    /// Switches an added server on or off. One that is as it should be notices nothing.
    pub async fn switch(
        &self,
        name: &str,
        enabled: bool,
        operator: &Caller,
    ) -> Result<Installed, ServerError> {
        let found = self.show(name).await?.configured.server;
        let lacks = if enabled { self.look(&found).await } else { Lacks::default() };
        let layers = self.layers.lock().await;
        if layers.in_file(name) {
            return Err(ServerError::InFile { name: name.to_owned(), place: layers.place() });
        }
        // As it is now: looking took a while.
        let Some(mut server) = layers.added(name).cloned() else {
            return Err(unknown(name, layers.servers().iter().map(|server| server.name.as_str())));
        };
        if server.enabled == enabled {
            drop(layers);
            let server = self.show(name).await?;
            return Ok(Installed { server, change: Change::Unchanged, missing: lacks.missing });
        }
        let missing = usable(lacks)?;
        server.enabled = enabled;
        let server = self.amend(layers, server, operator).await?;
        Ok(Installed { server, change: Change::Updated, missing })
    }

    /// Takes a changed configuration file's servers in; what was added stays. Changed ones restart.
    pub async fn replace_own(&self, file: PathBuf, own: Vec<McpServer>) {
        let mut layers = self.layers.lock().await;
        layers.replace_own(file, own);
        self.live.replace(layers.servers()).await;
        self.note_replaced(&layers.servers());
    }

    /// Starts a server anew, and waits for what comes of it.
    pub async fn restart(&self, name: &str, operator: &Caller) -> Result<Server, ServerError> {
        let found = self.show(name).await?;
        // Only what happens is recorded.
        if !found.configured.server.enabled {
            return Err(UpstreamError::Disabled(name.to_owned()).into());
        }
        if found.status.is_none() {
            return Err(ServerError::NotStarted(name.to_owned()));
        }
        self.record("upstream-restarted", name, [], operator).await?;
        self.live.restart(name).await?;
        self.live.started(name).await;
        self.show(name).await
    }

    /// Connects to a server for a look, whether or not it is configured.
    pub async fn test(&self, server: &McpServer) -> TestReport {
        self.live.test(server).await
    }

    pub async fn logs(&self, name: &str, limit: usize) -> Result<Vec<LogLine>, ServerError> {
        self.show(name).await?;
        Ok(self.live.logs(name, limit).unwrap_or_default())
    }

    /// The servers that are given this secret, and whether each is a program, which gets it only when it starts.
    pub(crate) async fn holders_of(&self, secret: &str) -> Vec<(String, bool)> {
        let named =
            |server: &McpServer| server.references().any(|reference| layers::may_mean(reference, secret));
        let servers = self.layers.lock().await.servers();
        let holders = servers.iter().filter(|server| server.enabled && named(server));
        holders.map(|server| (server.name.clone(), server.executable.is_some())).collect()
    }

    /// Starts a program anew because a secret of its changed.
    pub(crate) async fn restart_holder(&self, name: &str) -> Result<(), UpstreamError> {
        self.live.restart(name).await
    }

    async fn record<const N: usize>(
        &self,
        action: &str,
        server: &str,
        more: [(&str, Value); N],
        operator: &Caller,
    ) -> Result<(), ServerError> {
        let mut detail = Map::new();
        detail.insert("server".into(), server.into());
        detail.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let record = NodeRecord {
            time: Timestamp::now(),
            action: action.to_owned(),
            caller: Some(operator.clone()),
            // A server's settings may hold secrets that nothing but their names announces.
            detail: redact::arguments(&detail),
        };
        self.audit.record_durable(&Entry::Node(record)).await?;
        Ok(())
    }
}

/// What is missing, unless something is wrong.
fn usable(lacks: Lacks) -> Result<Vec<Lack>, ServerError> {
    match lacks.wrong.into_iter().next() {
        Some(wrong) => Err(ServerError::Unusable(wrong)),
        None => Ok(lacks.missing),
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> ServerError {
    ServerError::Unknown { name: name.to_owned(), close: suggestion(name, known) }
}
