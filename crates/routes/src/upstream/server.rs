//! One server: its connection, its condition, what it offers, and the task that looks after all three.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    config::{
        McpServer,
        upstream::{HealthMethod, Identity},
    },
    secret::Principal,
    upstream::{ServerState, Standing},
};
use aegis_mcp_client::{Client, Error, Handler, Interests};
use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    World,
    condition::{Condition, words},
    definition::{Sound, Unsound},
    logs::Logs,
    notices::Notice,
    pool::Pool,
    reason::Reason,
    watch::Watched,
    way::NoWay,
};

/// Checks in a row that may fail before the connection is given up.
const MOST_FAILED_CHECKS: u32 = 3;
/// A server that lived this long has recovered from whatever it had.
const RECOVERED: Duration = Duration::from_secs(30);
/// However often a server says that its list changed, it is not asked more often.
const BETWEEN_LISTS: Duration = Duration::from_millis(500);
/// How long a server may take to go.
pub(super) const FAREWELL: Duration = Duration::from_secs(5);
/// How often idle connections are looked for.
const SWEEP: Duration = Duration::from_secs(30);

#[derive(derive_more::Debug)]
pub(super) struct Server {
    pub(super) config: Arc<McpServer>,
    pub(super) logs: Logs,
    pub(super) condition: Mutex<Condition>,
    /// The connection that all share, and by which the server is looked after.
    pub(super) connection: ArcSwapOption<Client>,
    pub(super) pool: Pool,
    offered: ArcSwap<Offered>,
    /// One asks at a time which definitions are accepted: what was asked first must not be believed last.
    pub(super) judging: tokio::sync::Mutex<()>,
    pub(super) slots: Semaphore,
    pub(super) in_work: AtomicUsize,
    #[debug(skip)]
    watched: Mutex<Watched>,
    relist: AtomicBool,
    pub(super) restart: AtomicBool,
    wake: Notify,
    /// Its tools that are another server's, by the names that agents would call, and why.
    ceded: Mutex<BTreeMap<String, String>>,
    /// Told of every change of its state.
    pub(super) turned: Notify,
    pub(super) stop: CancellationToken,
    /// Cancelled when nobody looks after it any more.
    over: CancellationToken,
}

/// What a server offers, as it was listed last.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// With what is known of its definition.
    pub(super) sound: Vec<(Arc<Sound>, Standing)>,
    pub(super) unsound: Vec<Unsound>,
}

impl Server {
    pub(super) fn new(config: McpServer) -> Arc<Self> {
        let state = if config.enabled { ServerState::Starting } else { ServerState::Disabled };
        Arc::new(Self {
            slots: Semaphore::new(config.limits.max_concurrent_calls as usize),
            pool: Pool::new(&config),
            config: Arc::new(config),
            logs: Logs::default(),
            condition: Mutex::new(Condition::new(state)),
            connection: ArcSwapOption::empty(),
            offered: ArcSwap::default(),
            judging: tokio::sync::Mutex::default(),
            in_work: AtomicUsize::new(0),
            watched: Mutex::default(),
            relist: AtomicBool::new(false),
            restart: AtomicBool::new(false),
            wake: Notify::new(),
            ceded: Mutex::default(),
            turned: Notify::new(),
            stop: CancellationToken::new(),
            over: CancellationToken::new(),
        })
    }

    pub(super) fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn offered(&self) -> Arc<Offered> {
        self.offered.load_full()
    }

    pub(super) fn offer(&self, offered: Offered) {
        self.offered.store(Arc::new(offered));
    }

    /// Notes which of its tools are another server's, as far as that is news.
    pub(super) fn cedes(&self, ceded: BTreeMap<String, String>) {
        let mut before = self.ceded();
        for (name, why) in ceded.iter().filter(|(name, why)| before.get(*name) != Some(*why)) {
            self.logs.add(&format!("[`{name}` {why}]"));
        }
        *before = ceded;
    }

    pub(super) fn ceded(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.ceded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection that all share, or why there is none.
    pub(super) fn shared(&self) -> Result<Arc<Client>, String> {
        match self.connection.load_full() {
            Some(client) if client.ended().is_none() => Ok(client),
            _ => Err(self.why_not()),
        }
    }

    /// The connection for a principal, or why there is none.
    pub(super) async fn connection(
        self: &Arc<Self>,
        world: &Arc<World>,
        principal: &Principal,
    ) -> Result<Arc<Client>, String> {
        match self.config.identity {
            Identity::Shared => self.shared(),
            Identity::PerPrincipal => {
                // One that can't be reached at all is not tried once for every caller.
                self.shared()?;
                self.pool.get(self, world, principal).await
            }
        }
    }

    pub(super) fn restart_now(&self) {
        self.restart.store(true, Ordering::SeqCst);
        self.enter(ServerState::Starting, Some("it is being restarted".into()));
        self.wake.notify_one();
    }

    pub(super) fn list_again(&self) {
        self.relist.store(true, Ordering::SeqCst);
        self.wake.notify_one();
    }

    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Looks after the server until it is taken out of the configuration or the node stops.
    /// `before` is the server as it was configured, which goes first.
    pub(super) async fn look_after(self: Arc<Self>, world: Arc<World>, before: Option<Arc<Self>>) {
        if let Some(before) = before {
            before.over.cancelled().await;
        }
        if self.config.enabled {
            self.keep_alive(&world).await;
        }
        self.over.cancel();
    }

    async fn keep_alive(self: &Arc<Self>, world: &Arc<World>) {
        let mut failures = 0;
        loop {
            let began = Instant::now();
            let ended = tokio::select! {
                ended = self.live(world) => ended,
                () = self.stop.cancelled() => Ended::Stopped,
            };
            if let Some(client) = self.connection.swap(None) {
                client.close("the node closed it");
                // Whatever it holds, a file or a port, is free before it starts again.
                let _ = tokio::time::timeout(FAREWELL, client.gone()).await;
            }
            self.pool.close();
            *self.watched() = Watched::default();
            let reason = match ended {
                Ended::Stopped => {
                    self.enter(ServerState::Stopped, Some("it was taken out of service".into()));
                    return;
                }
                Ended::Restart => {
                    failures = 0;
                    continue;
                }
                // It runs, and has only forgotten us.
                Ended::Forgotten if began.elapsed() > BETWEEN_LISTS => continue,
                Ended::Forgotten => "it keeps forgetting its session".into(),
                Ended::Failed(reason) => {
                    if began.elapsed() > RECOVERED {
                        failures = 0;
                    }
                    reason
                }
            };
            failures += 1;
            let wait = self.wait(failures);
            let circuit = failures >= self.config.restart.max_failures;
            let next = if circuit { "after repeated failures, the next try is" } else { "the next try is" };
            let next = format!("; {next} in {:.1} s", wait.as_secs_f32());
            self.failed(reason, &next);
            if circuit {
                failures = 0;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.restart_wanted() => failures = 0,
                () = self.stop.cancelled() => {}
            }
            if self.stop.is_cancelled() {
                return;
            }
        }
    }

    fn wait(&self, failures: u32) -> Duration {
        let restart = &self.config.restart;
        if failures >= restart.max_failures {
            return restart.pause.0;
        }
        restart.backoff.0.saturating_mul(1 << (failures - 1).min(16)).min(restart.max_backoff.0)
    }

    async fn restart_wanted(&self) {
        loop {
            self.wake.notified().await;
            if self.restart.swap(false, Ordering::SeqCst) {
                return;
            }
        }
    }

    /// From the start of a connection to its end.
    async fn live(self: &Arc<Self>, world: &Arc<World>) -> Ended {
        self.restart.store(false, Ordering::SeqCst);
        self.begin();
        let patience = self.config.limits.start_timeout.0;
        let mut answered = false;
        let starting = async {
            let client = self.open(world, None).await.map_err(|error| self.unopened(&error))?;
            answered = true;
            self.list(world, &client).await.map_err(|error| Reason::from(&error))?;
            Ok::<_, Reason>(client)
        };
        let client = match tokio::time::timeout(patience, starting).await {
            Ok(Ok(client)) => Arc::new(client),
            Ok(Err(reason)) => {
                let lost = world.ways.lost_script(&self.config).await.unwrap_or_default();
                return Ended::Failed(reason.and_inside(&lost).redacted(world));
            }
            Err(_) => {
                let what = if answered { "list its tools" } else { "answer `initialize`" };
                let late = format!("it did not {what} within {} s", patience.as_secs_f32());
                return Ended::Failed(late.into());
            }
        };
        self.connection.store(Some(Arc::clone(&client)));
        self.healthy();
        world.offers_changed();
        let listening = client.facts().map(|facts| Interests {
            tools: facts.can("tools", Some("listChanged")),
            prompts: facts.can("prompts", Some("listChanged")),
            resources: facts.can("resources", Some("listChanged")),
            updates_of: BTreeSet::new(),
        });
        let _listening = listening.map(|interests| client.listen(&interests));
        self.tend(world, &client).await
    }

    async fn tend(self: &Arc<Self>, world: &Arc<World>, client: &Client) -> Ended {
        let check = self.config.health_check;
        let every = Duration::from_secs(u64::from(check.interval_seconds));
        let patience = Duration::from_secs(u64::from(check.timeout_seconds));
        let mut next_check = Instant::now() + every;
        let mut next_sweep = Instant::now() + SWEEP;
        let mut failed = 0;
        loop {
            tokio::select! {
                error = client.end() => {
                    return match error {
                        Error::SessionLost => Ended::Forgotten,
                        error => Ended::Failed(Reason::from(&error).redacted(world)),
                    };
                }
                () = self.wake.notified() => {
                    if self.restart.swap(false, Ordering::SeqCst) {
                        return Ended::Restart;
                    }
                    if !self.relist.swap(false, Ordering::SeqCst) {
                        continue;
                    }
                    if let Ok(Err(error)) = tokio::time::timeout(patience, self.list(world, client)).await {
                        self.logs.add(&format!("[its list can't be read: {error}]"));
                    }
                    self.healthy_if_running();
                    world.offers_changed();
                    tokio::time::sleep(BETWEEN_LISTS).await;
                }
                () = tokio::time::sleep_until(next_check) => {
                    next_check = Instant::now() + every;
                    let asked = async {
                        match check.method {
                            HealthMethod::ToolsList => self.list(world, client).await,
                            HealthMethod::Ping => client.ping(patience).await,
                        }
                    };
                    let answer = tokio::time::timeout(patience, asked).await.unwrap_or(Err(Error::Silent(patience)));
                    match answer {
                        Ok(()) => {
                            failed = 0;
                            self.healthy();
                            world.offers_changed();
                        }
                        Err(error) => {
                            failed += 1;
                            let reason = Reason::from(&error).redacted(world).after("its check failed: ");
                            if failed >= MOST_FAILED_CHECKS {
                                return Ended::Failed(reason);
                            }
                            self.enter(ServerState::Degraded, Some(reason));
                        }
                    }
                }
                () = tokio::time::sleep_until(next_sweep) => {
                    next_sweep = Instant::now() + SWEEP;
                    self.pool.sweep();
                }
            }
        }
    }

    pub(super) async fn open(
        self: &Arc<Self>,
        world: &Arc<World>,
        principal: Option<&Principal>,
    ) -> Result<Client, NoWay> {
        // Where every caller is somebody else, the node looks after the server as itself.
        let own = (self.config.identity == Identity::PerPrincipal).then_some(&world.own);
        let principal = principal.or(own);
        let ears: Arc<dyn Handler> = Arc::new(Ears {
            server: Arc::downgrade(self),
            world: Arc::downgrade(world),
            whose: principal.cloned(),
        });
        world.ways.open(&self.config, principal, &ears).await
    }

    /// Why there is no connection, and what a person can do about it.
    fn unopened(&self, error: &NoWay) -> Reason {
        let shows_nothing = self.config.oauth.is_none() && self.config.credentials.is_empty();
        match error {
            NoWay::Mcp(Error::Unauthorised { status: 401 }) if shows_nothing => {
                let name = &self.config.name;
                format!("{error}: `aegis upstream sign-in {name}`, or give it a credential").into()
            }
            NoWay::Mcp(Error::Silent(patience)) => {
                format!("it did not answer `initialize` within {} s", patience.as_secs_f32()).into()
            }
            error => Reason::of(error),
        }
    }
}

enum Ended {
    Failed(Reason),
    /// The server no longer knows the session.
    Forgotten,
    Restart,
    Stopped,
}

/// Hears what a server says on its own account.
struct Ears {
    server: std::sync::Weak<Server>,
    world: std::sync::Weak<World>,
    /// Of a connection that is not shared.
    whose: Option<Principal>,
}

impl Handler for Ears {
    fn noticed(&self, method: &str, params: Option<&RawValue>) {
        let (Some(server), Some(world)) = (self.server.upgrade(), self.world.upgrade()) else { return };
        if method == "notifications/tools/list_changed" {
            return server.list_again();
        }
        let (name, whose) = (&server.config.name, self.whose.as_ref());
        if let Some(notice) = Notice::read(name, whose, method, params, &world.redactor()) {
            world.notices.tell(notice);
        }
    }

    fn stderr(&self, line: &str) {
        let (Some(server), Some(world)) = (self.server.upgrade(), self.world.upgrade()) else { return };
        let line = world.redacted(line);
        tracing::debug!(server = %server.config.name, "{line}");
        server.logs.add(&line);
        // Of the others it is not the state that is told.
        if self.whose.as_ref().is_none_or(|whose| *whose == world.own) {
            server.wrote(&line);
        }
    }

    fn stray(&self, text: &str) {
        let (Some(server), Some(world)) = (self.server.upgrade(), self.world.upgrade()) else { return };
        if self.whose.as_ref().is_none_or(|whose| *whose == world.own) {
            server.strayed(|| words(&world.redacted(text)));
        }
    }
}
