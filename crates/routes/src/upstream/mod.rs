//! MCP servers behind the node: started, looked after, listed, and called with a permit like everything else.
//!
//! Everything a server says is text from outside. Its definitions are held against what can be used and against what an
//! operator accepted; its answers are bounded, checked, labelled, and rid of secrets that it was given.

mod absentees;
mod answer;
mod ask;
mod bridge;
mod condition;
pub mod credentials;
mod definition;
mod direct;
mod growth;
mod judged;
mod lacks;
mod logs;
mod notices;
pub mod oauth;
mod offers;
mod operations;
mod overheard;
mod pool;
mod published;
mod reason;
mod remembered;
mod sandboxed;
pub mod schema;
mod server;
mod sign_in;
mod signed_in;
#[cfg(test)]
mod signed_in_tests;
mod tasks;
mod tool;
mod watch;
mod way;

#[cfg(test)]
mod oauth_tests;

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aegis_core::{
    Secret,
    config::{EgressConfig, McpServer, ToolPattern},
    secret::{Principal, Redactor, SecretSource, SubjectTokens},
    upstream::{
        BoxFuture, Lacks, LogLine, Pins, ServerStatus, ServerTool, SharedResource, SignInBegun, SignInWish,
        SignedIn, TestReport, UpstreamError, Upstreams,
    },
};
use aegis_mcp_client::{Handler, Http, Listed};
use http::HeaderValue;
use tokio::sync::{Notify, broadcast};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use aegis_mcp_client::http::header_parameters;
pub use direct::Direct;
pub use lacks::{absent, misplaced, unresolved};
pub use notices::Notice;
pub use offers::{NoOffers, Offers, Owner, Sought};
pub use remembered::remember;
pub use sandboxed::Confinement;

use crate::{catalog::Catalog, egress::EgressError};
use notices::Notices;
use oauth::AccessTokens;
use server::Server;
use way::Ways;

/// How often a server can be replaced before nobody waits for its start any more.
const MOST_REPLACED: usize = 5;
/// How long the node waits for servers to go.
const FAREWELL: Duration = Duration::from_secs(6);

/// What the servers need of the node.
#[derive(derive_more::Debug)]
pub struct Parts {
    pub catalog: Arc<Catalog>,
    #[debug(skip)]
    pub secrets: Arc<dyn SecretSource>,
    #[debug(skip)]
    pub subjects: Arc<dyn SubjectTokens>,
    #[debug(skip)]
    pub pins: Arc<dyn Pins>,
    pub egress: EgressConfig,
    /// Where programs start that name no directory.
    pub directory: PathBuf,
    /// Of servers that are to run in a sandbox.
    pub confinement: Confinement,
    /// As whom the node itself uses servers that know their callers.
    pub own: Principal,
    /// The node's name and version, shown to servers.
    pub name: String,
    pub version: &'static str,
    /// Tells this node's requests from all others when they come back to it.
    pub via: String,
}

/// All servers. Clones are the same.
#[derive(Debug, Clone)]
pub struct Servers(Arc<World>);

/// What the servers share.
#[derive(derive_more::Debug)]
pub(crate) struct World {
    catalog: Arc<Catalog>,
    ways: Ways,
    #[debug(skip)]
    pins: Arc<dyn Pins>,
    own: Principal,
    notices: Notices,
    servers: Mutex<BTreeMap<String, Arc<Server>>>,
    /// Which server has which resources.
    listings: Mutex<offers::Listings>,
    changed: Arc<Notify>,
    /// What the catalog shows is looked at and put there by one at a time.
    publishing: Mutex<()>,
    /// Whose the tasks at servers are.
    owned: tasks::Owned,
    tasks: TaskTracker,
    stopping: CancellationToken,
    /// One set of servers is taken into force at a time.
    replacing: tokio::sync::Mutex<()>,
}

impl Servers {
    /// Nothing is started yet; `replace` says which servers there are.
    pub fn new(parts: Parts) -> Result<Self, EgressError> {
        let http: Arc<dyn Http> = Arc::new(Direct::new(&parts.egress)?);
        let tokens =
            Arc::new(AccessTokens::new(Arc::clone(&http), Arc::clone(&parts.secrets), parts.subjects));
        let via = HeaderValue::try_from(parts.via).unwrap_or_else(|_| HeaderValue::from_static("aegis"));
        let ways = Ways {
            secrets: parts.secrets,
            tokens,
            http,
            directory: parts.directory,
            confinement: parts.confinement,
            tenant: parts.own.tenant.clone(),
            node: parts.name,
            version: parts.version,
            via,
            sign_ins: sign_in::SignIns::default(),
        };
        let world = Arc::new(World {
            catalog: parts.catalog,
            ways,
            pins: parts.pins,
            own: parts.own,
            notices: Notices::default(),
            servers: Mutex::default(),
            listings: Mutex::default(),
            changed: Arc::default(),
            publishing: Mutex::default(),
            owned: tasks::Owned::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            replacing: tokio::sync::Mutex::default(),
        });
        tokio::spawn(published::keep(
            Arc::downgrade(&world),
            Arc::clone(&world.changed),
            world.stopping.clone(),
        ));
        Ok(Self(world))
    }

    /// What servers say unasked, from now on.
    pub fn notices(&self) -> broadcast::Receiver<Notice> {
        self.0.notices.listen()
    }

    /// Puts what servers offer into the catalog at once, for whoever waited for them.
    pub fn publish(&self) {
        self.0.publish();
    }

    /// Ends all servers and waits, not for ever, until they are gone.
    pub async fn close(&self) {
        self.0.stopping.cancel();
        for server in std::mem::take(&mut *self.0.table()).into_values() {
            server.end();
        }
        self.0.tasks.close();
        let _ = tokio::time::timeout(FAREWELL, self.0.tasks.wait()).await;
        self.0.unpublish();
    }
}

impl World {
    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Server>>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn server(&self, name: &str) -> Option<Arc<Server>> {
        self.table().get(name).cloned()
    }

    /// Those that are switched on.
    fn servers(&self) -> Vec<Arc<Server>> {
        self.table().values().filter(|server| server.config.enabled).cloned().collect()
    }

    fn redactor(&self) -> Arc<Redactor> {
        self.ways.secrets.redactor()
    }

    fn redacted(&self, text: &str) -> String {
        match self.redactor().text(text) {
            Cow::Borrowed(text) => text.to_owned(),
            Cow::Owned(text) => text,
        }
    }

    fn offers_changed(&self) {
        self.changed.notify_one();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Upstreams for Servers {
    fn list(&self) -> Vec<ServerStatus> {
        self.0.table().values().map(|server| server.status()).collect()
    }

    fn tools(&self, server: &str) -> Vec<ServerTool> {
        self.0.server(server).map(|server| server.tools()).unwrap_or_default()
    }

    fn logs(&self, server: &str, limit: usize) -> Option<Vec<LogLine>> {
        self.0.server(server).map(|server| server.logs.last(limit))
    }

    fn restart<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<(), UpstreamError>> {
        Box::pin(async move {
            let found = self.0.server(server).ok_or_else(|| UpstreamError::Unknown(server.to_owned()))?;
            if !found.config.enabled {
                return Err(UpstreamError::Disabled(server.to_owned()));
            }
            found.restart_now();
            Ok(())
        })
    }

    fn started<'a>(&'a self, server: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            // One that is replaced meanwhile is waited for as it is configured by then.
            for _ in 0..MOST_REPLACED {
                match self.0.server(server) {
                    Some(found) if !found.started().await => {}
                    _ => break,
                }
            }
            // Whoever waited calls next.
            self.publish();
        })
    }

    fn test<'a>(&'a self, server: &'a McpServer) -> BoxFuture<'a, TestReport> {
        Box::pin(async move {
            let began = Instant::now();
            let mut report = TestReport {
                works: false,
                error: None,
                protocol: None,
                server: None,
                tools: Vec::new(),
                resources: 0,
                prompts: 0,
                millis: 0,
            };
            let overheard = Arc::new(overheard::Overheard::default());
            let ears: Arc<dyn Handler> = overheard.clone();
            let looking = async {
                let client = self
                    .0
                    .ways
                    .open(server, Some(&self.0.own), &ears)
                    .await
                    .map_err(|error| error.to_string())?;
                let listed = |what| {
                    let client = client.clone();
                    async move { client.list(what).await.map_err(|error| error.to_string()) }
                };
                if let Some(facts) = client.facts() {
                    report.protocol = Some(facts.version.to_string());
                    report.server =
                        Some(self.0.redacted(&format!("{} {}", facts.name, facts.server_version)));
                    let can = |capability| facts.can(capability, None);
                    if can("tools") {
                        let redactor = self.0.redactor();
                        for entry in listed(Listed::Tools).await? {
                            let entry = definition::cleaned(&redactor, &entry);
                            match definition::read(server, &entry, &|name| self.0.catalog.built_in(name)) {
                                Ok(sound) => report.tools.push(sound.tool),
                                Err(unsound) => {
                                    report.tools.push(format!("{}: {}", unsound.tool, unsound.reason));
                                }
                            }
                        }
                    }
                    if can("resources") {
                        report.resources = listed(Listed::Resources).await?.len();
                    }
                    if can("prompts") {
                        report.prompts = listed(Listed::Prompts).await?.len();
                    }
                }
                Ok::<_, String>(())
            };
            let patience = server.limits.start_timeout.0;
            let ended = tokio::time::timeout(patience, looking).await;
            let error = match ended {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(self.0.redacted(&error)),
                Err(_) => Some(format!("it was not ready within {} s", patience.as_secs_f32())),
            };
            if let Some(error) = error {
                let lost = self.0.ways.lost_script(server).await.unwrap_or_default();
                report.error = Some(format!("{error}{lost}{}", overheard.told(&self.0)));
            }
            report.works = report.error.is_none();
            report.millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            report
        })
    }

    fn replace<'a>(&'a self, servers: Vec<McpServer>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let _turn = self.0.replacing.lock().await;
            if self.0.stopping.is_cancelled() {
                return;
            }
            let mut fresh = Vec::new();
            let gone: Vec<Arc<Server>> = {
                let mut table = self.0.table();
                let mut before = std::mem::take(&mut *table);
                for config in servers {
                    let server = match before.remove(&config.name) {
                        Some(same) if *same.config == config => same,
                        before => {
                            if let Some(changed) = &before {
                                changed.end();
                            }
                            let server = Server::new(config);
                            fresh.push((Arc::clone(&server), before));
                            server
                        }
                    };
                    table.insert(server.config.name.clone(), server);
                }
                before.into_values().inspect(|gone| gone.end()).collect()
            };
            for (server, before) in fresh {
                self.0.tasks.spawn(server.look_after(Arc::clone(&self.0), before));
            }
            self.0.publish();
            // Whoever asks for it to go may forget what was accepted of it, which nobody may write down again after.
            for server in gone {
                drop(server.judging.lock().await);
            }
        })
    }

    fn replaces(&self, server: &McpServer) -> Vec<String> {
        self.0.replaced_by(server)
    }

    fn lacks<'a>(&'a self, server: &'a McpServer) -> BoxFuture<'a, Lacks> {
        Box::pin(self.0.ways.lacks(server))
    }

    fn shared_resources(&self) -> BoxFuture<'_, Vec<SharedResource>> {
        Box::pin(self.0.shared_resources())
    }

    fn begin_sign_in<'a>(
        &'a self,
        server: &'a McpServer,
        wish: &'a SignInWish,
        as_configured: bool,
    ) -> BoxFuture<'a, Result<SignInBegun, UpstreamError>> {
        Box::pin(self.0.ways.begin_sign_in(server, wish, as_configured))
    }

    fn finish_sign_in<'a>(
        &'a self,
        server: &'a McpServer,
        back: &'a Secret,
    ) -> BoxFuture<'a, Result<SignedIn<'a>, UpstreamError>> {
        Box::pin(self.0.ways.finish_sign_in(server, back))
    }

    fn sent(&self, mark: &str) -> bool {
        self.0.ways.via.to_str().is_ok_and(|own| own == mark)
    }

    fn claims(&self) -> Vec<ToolPattern> {
        self.0.servers().iter().flat_map(|server| server.config.claims()).collect()
    }

    fn pins_changed<'a>(&'a self, server: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(server) = self.0.server(server) else { return };
            if !matches!(server.judge_again(&self.0).await, Ok(true)) {
                return server.list_again();
            }
            server.healthy_if_running();
            // Whoever decided calls next.
            self.publish();
        })
    }
}
