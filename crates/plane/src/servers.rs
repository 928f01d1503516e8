//! The MCP servers of a running node: those of the configuration file, and those that an operator added. The file
//! wins, so that the two never fight over a name.

mod layers;

use std::{path::PathBuf, sync::Arc};

use aegis_core::{
    Caller, Timestamp,
    config::{McpServer, ToolPattern, upstream::check_added},
    nearest::suggestion,
    record::{Entry, NodeRecord},
    upstream::{Definition, LogLine, ServerStatus, ServerTool, TestReport, UpstreamError, Upstreams},
};
use aegis_stores::{
    audit::{AuditError, AuditLog},
    registry::{AddedServer, Pin, PinState, Registry, RegistryError},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

pub use self::layers::{Configured, ServerLayers, ServerSource};

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
    #[error("the added server `{name}` in the registry can't be read: {source}")]
    Stored { name: String, source: serde_json::Error },
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

/// A definition that waits for a decision, beside the one it would replace.
#[derive(Debug, Clone, Serialize)]
pub struct Proposal {
    pub tool: String,
    /// Of the proposed one: what a decision is about.
    pub digest: String,
    pub seen: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Value>,
    pub proposed: Value,
    /// Line by line.
    pub diff: String,
}

/// Changes servers, one change at a time: recorded, stored, then in force.
#[derive(derive_more::Debug)]
pub struct Servers {
    layers: Mutex<ServerLayers>,
    #[debug(skip)]
    live: Arc<dyn Upstreams>,
    registry: Registry,
    audit: AuditLog,
}

impl Servers {
    pub fn new(layers: ServerLayers, live: Arc<dyn Upstreams>, registry: Registry, audit: AuditLog) -> Self {
        Self { layers: Mutex::new(layers), live, registry, audit }
    }

    /// Starts what is configured. Until then nothing runs.
    pub async fn start(&self) {
        let layers = self.layers.lock().await;
        self.live.replace(layers.servers()).await;
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

    /// Whether a tool of this name would be a server's.
    pub async fn claims(&self, tool: &str) -> bool {
        let servers = self.layers.lock().await.servers();
        servers.iter().flat_map(McpServer::claims).any(|pattern| pattern.matches(tool))
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
    pub async fn add(&self, server: McpServer, operator: &Caller) -> Result<Server, ServerError> {
        let mut layers = self.layers.lock().await;
        let there = layers.servers();
        if layers.in_file(&server.name) {
            return Err(ServerError::InFile { place: layers.place(), name: server.name });
        }
        if there.iter().any(|other| other.name == server.name) {
            return Err(ServerError::Taken(server.name));
        }
        check_added(&there, &server).map_err(ServerError::Invalid)?;
        let name = server.name.clone();
        let row = AddedServer {
            name: name.clone(),
            text: serde_json::to_string(&server)
                .map_err(|source| ServerError::Stored { name: name.clone(), source })?,
            added: Timestamp::now(),
            added_by: operator.user.clone(),
        };
        let config = serde_json::to_value(&server).unwrap_or_default();
        self.record("upstream-added", &name, [("config", config)], operator).await?;
        self.registry.add_server(row.clone()).await?;
        layers.add(row, server);
        self.live.replace(layers.servers()).await;
        drop(layers);
        self.show(&name).await
    }

    /// Ends an added server and forgets it, with what was accepted of it.
    pub async fn remove(&self, name: &str, operator: &Caller) -> Result<Configured, ServerError> {
        let mut layers = self.layers.lock().await;
        if layers.in_file(name) {
            return Err(ServerError::InFile { name: name.to_owned(), place: layers.place() });
        }
        let Some(found) = layers.configured().into_iter().find(|one| one.server.name == name) else {
            let all = layers.servers();
            return Err(unknown(name, all.iter().map(|server| server.name.as_str())));
        };
        self.record("upstream-removed", name, [], operator).await?;
        self.registry.remove_server(name).await?;
        self.registry.forget_pins(name).await?;
        layers.remove(name);
        self.live.replace(layers.servers()).await;
        Ok(found)
    }

    /// Takes a changed configuration file's servers in; what was added stays. Changed ones restart.
    pub async fn replace_own(&self, file: PathBuf, own: Vec<McpServer>) {
        let mut layers = self.layers.lock().await;
        layers.replace_own(file, own);
        self.live.replace(layers.servers()).await;
    }

    pub async fn restart(&self, name: &str, operator: &Caller) -> Result<Server, ServerError> {
        self.show(name).await?;
        self.record("upstream-restarted", name, [], operator).await?;
        self.live.restart(name).await?;
        self.show(name).await
    }

    /// Connects to a configured server for a look.
    pub async fn test(&self, name: &str) -> Result<TestReport, ServerError> {
        let server = self.show(name).await?.configured.server;
        Ok(self.live.test(&server).await)
    }

    /// Connects to a server that is not configured yet.
    pub async fn test_other(&self, server: &McpServer) -> TestReport {
        self.live.test(server).await
    }

    pub async fn logs(&self, name: &str, limit: usize) -> Result<Vec<LogLine>, ServerError> {
        self.show(name).await?;
        Ok(self.live.logs(name, limit).unwrap_or_default())
    }

    /// What waits for a decision.
    pub async fn proposals(&self, name: &str) -> Result<Vec<Proposal>, ServerError> {
        self.show(name).await?;
        let pins = self.registry.pins(name, false).await?;
        let accepted = |tool: &str| {
            let mut of_tool = pins.iter().filter(|pin| pin.definition.tool == tool);
            of_tool.find(|pin| pin.state == PinState::Accepted).map(|pin| &pin.definition)
        };
        let proposed = pins.iter().filter(|pin| pin.state == PinState::Proposed);
        Ok(proposed.map(|pin| proposal(pin, accepted(&pin.definition.tool))).collect())
    }

    /// Every definition that is remembered of a server.
    pub async fn pins(&self, name: &str) -> Result<Vec<Pin>, ServerError> {
        self.show(name).await?;
        Ok(self.registry.pins(name, true).await?)
    }

    /// Accepts or rejects what waits: these tools, each of this digest if one is given, or all when none is named.
    pub async fn decide(
        &self,
        name: &str,
        tools: Vec<(String, Option<String>)>,
        accept: bool,
        operator: &Caller,
    ) -> Result<Vec<Pin>, ServerError> {
        let waiting = self.proposals(name).await?;
        let meant: Vec<(String, Option<String>)> = waiting
            .iter()
            .filter(|one| {
                tools.is_empty()
                    || tools.iter().any(|(tool, digest)| {
                        *tool == one.tool && digest.as_ref().is_none_or(|digest| *digest == one.digest)
                    })
            })
            // With the digest that is recorded: what comes in between is not what was decided.
            .map(|one| (one.tool.clone(), Some(one.digest.clone())))
            .collect();
        if meant.is_empty() {
            return Err(ServerError::NothingProposed(name.to_owned()));
        }
        let action = if accept { "upstream-accepted" } else { "upstream-rejected" };
        let detail: Value =
            meant.iter().map(|(tool, digest)| json!({"tool": tool, "digest": digest})).collect();
        self.record(action, name, [("tools", detail)], operator).await?;
        let decided = self.registry.decide_pins(name, meant, accept, &operator.user).await?;
        self.live.pins_changed(name).await;
        Ok(decided)
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
            detail,
        };
        self.audit.record_durable(&Entry::Node(record)).await?;
        Ok(())
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> ServerError {
    ServerError::Unknown { name: name.to_owned(), close: suggestion(name, known) }
}

fn proposal(pin: &Pin, accepted: Option<&Definition>) -> Proposal {
    let value = |definition: &Definition| serde_json::from_str(&definition.text).unwrap_or_default();
    let before = accepted.map(Definition::readable).unwrap_or_default();
    let patch = diffy::create_patch(&before, &pin.definition.readable()).to_string();
    // The first two lines name the texts, which have better names.
    let diff = patch.lines().skip(2).collect::<Vec<_>>().join("\n");
    Proposal {
        tool: pin.definition.tool.clone(),
        digest: pin.definition.digest.clone(),
        seen: pin.seen,
        accepted: accepted.map(value),
        proposed: value(&pin.definition),
        diff,
    }
}
