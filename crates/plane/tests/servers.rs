//! What operators decide about MCP servers: which definitions they stand by, and what their secrets are.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    Caller, Door, Event, Secret, Tier, Timestamp,
    config::{
        AuditConfig, McpServer, SecretRef,
        security_context::OPERATOR_CONTEXT,
        upstream::{
            ClientAuthentication,
            DefinitionTrust::{Approve, FirstUse},
            Grant, OauthConfig,
        },
    },
    event::EventName,
    progress::Listener,
    record::Entry,
    upstream::{
        BoxFuture, Definition, Lacks, LogLine, NoUpstreams, Pins, ServerStatus, ServerTool, SharedResource,
        SignInBegun, SignInWish, SignedIn, Standing, TestReport, UpstreamError, Upstreams,
    },
};
use aegis_plane::{
    Bus, Secrets, Servers,
    servers::{Journal, ServerError, ServerLayers},
};
use aegis_stores::{
    AuditLog, DataDir, Registry,
    audit::{Filter, Kind, LogReader},
    registry::{NewSecret, PinState},
};
use serde_json::json;
use tokio::sync::Notify;

struct Stage {
    servers: Arc<Servers>,
    secrets: Secrets,
    registry: Registry,
    audit: AuditLog,
    data: DataDir,
}

async fn stage(home: &std::path::Path) -> Stage {
    stage_with(home, Arc::new(NoUpstreams)).await
}

async fn stage_with(home: &std::path::Path, live: Arc<dyn Upstreams>) -> Stage {
    let data = DataDir::open(home).unwrap();
    let registry = Registry::open(&data).unwrap();
    let audit = AuditLog::open(&data, &AuditConfig::default()).unwrap();
    let own = vec![McpServer { executable: Some("x".into()), ..McpServer::named("s") }];
    let layers = ServerLayers::load(&registry, None, own).await.unwrap();
    let servers = Servers::new(layers, live, registry.clone(), "local".into(), audit.clone());
    let servers = Arc::new(servers);
    let secrets = Secrets::new(registry.clone(), audit.clone(), Arc::clone(&servers));
    Stage { servers, secrets, registry, audit, data }
}

/// Somebody signs in, and the tokens come when they are let.
#[derive(Default)]
struct SlowSignIn {
    asked: Notify,
    let_go: Notify,
    kept: Arc<AtomicBool>,
    /// Where the definitions of a server are written down once more while it is taken out of service.
    pins: OnceLock<Registry>,
}

impl Upstreams for SlowSignIn {
    fn list(&self) -> Vec<ServerStatus> {
        Vec::new()
    }

    fn tools(&self, _: &str) -> Vec<ServerTool> {
        Vec::new()
    }

    fn logs(&self, _: &str, _: usize) -> Option<Vec<LogLine>> {
        None
    }

    fn restart<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), UpstreamError>> {
        Box::pin(async { Ok(()) })
    }

    fn started<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn test<'a>(&'a self, server: &'a McpServer) -> BoxFuture<'a, TestReport> {
        NoUpstreams.test(server)
    }

    fn replace<'a>(&'a self, servers: Vec<McpServer>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(pins) = self.pins.get().filter(|_| servers.iter().all(|server| server.name != "r")) {
                pins.see("r", FirstUse, &[definition("late")]).await.unwrap();
            }
        })
    }

    fn lacks<'a>(&'a self, _: &'a McpServer) -> BoxFuture<'a, Lacks> {
        Box::pin(async { Lacks::default() })
    }

    fn shared_resources(&self) -> BoxFuture<'_, Vec<SharedResource>> {
        Box::pin(async { Vec::new() })
    }

    fn begin_sign_in<'a>(
        &'a self,
        server: &'a McpServer,
        wish: &'a SignInWish,
        as_configured: bool,
    ) -> BoxFuture<'a, Result<SignInBegun, UpstreamError>> {
        NoUpstreams.begin_sign_in(server, wish, as_configured)
    }

    fn finish_sign_in<'a>(
        &'a self,
        _: &'a McpServer,
        _: &'a Secret,
    ) -> BoxFuture<'a, Result<SignedIn<'a>, UpstreamError>> {
        Box::pin(async {
            self.asked.notify_one();
            self.let_go.notified().await;
            let kept = Arc::clone(&self.kept);
            let keep = Box::pin(async move {
                kept.store(true, Ordering::SeqCst);
                Ok(())
            });
            Ok(SignedIn { oauth: signed_in("r").oauth.unwrap(), keep })
        })
    }

    fn pins_changed<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

fn operator() -> Caller {
    Caller {
        tenant: "local".into(),
        user: "op".into(),
        tier: Tier::Operator,
        context: OPERATOR_CONTEXT.into(),
        credential: "tok_op".into(),
        door: Door::Rest,
        session: None,
        pinned: None,
    }
}

fn definition(text: &str) -> Definition {
    Definition::of(json!({"name": "a", "description": text}).as_object().unwrap())
}

impl Stage {
    async fn see(&self, text: &str) -> Standing {
        self.registry.see("s", Approve, &[definition(text)]).await.unwrap().remove(0)
    }

    /// What became of it; `None` when nothing was there to decide. `digest` is that of a definition with this text.
    async fn decide(&self, accept: bool, digest: Option<&str>) -> Option<Vec<PinState>> {
        let tools = vec![("a".to_owned(), digest.map(|text| definition(text).digest))];
        match self.servers.decide("s", tools, accept, &operator()).await {
            Ok(decided) => Some(decided.iter().map(|pin| pin.state).collect()),
            Err(ServerError::NothingProposed(_)) => None,
            Err(other) => panic!("{other}"),
        }
    }

    async fn open(&self) -> Vec<(PinState, String)> {
        let proposals = self.servers.proposals("s").await.unwrap();
        proposals.into_iter().map(|one| (one.state, one.digest)).collect()
    }
}

#[tokio::test]
async fn tokens_for_a_server_that_is_gone_are_not_kept() {
    let home = tempfile::tempdir().unwrap();
    let live = Arc::new(SlowSignIn::default());
    let stage = stage_with(home.path(), live.clone()).await;
    let at = |url: &str| McpServer { url: Some(url.to_owned()), ..McpServer::named("r") };
    let back = Secret::new("http://127.0.0.1:1/callback?code=c&state=s".to_owned());
    let operator = operator();
    for replacement in [None, Some(at("https://other.example.org/mcp"))] {
        stage.servers.add(at("https://mcp.example.org/mcp"), &operator).await.unwrap();
        let replaced = async {
            live.asked.notified().await;
            stage.servers.remove("r", &operator).await.unwrap();
            if let Some(other) = replacement {
                stage.servers.add(other, &operator).await.unwrap();
            }
            live.let_go.notify_one();
        };
        let (ended, ()) = tokio::join!(stage.servers.finish_sign_in("r", &back, &operator), replaced);
        assert!(matches!(ended, Err(ServerError::Moved(_))), "{ended:?}");
        assert!(!live.kept.load(Ordering::SeqCst));
    }
    live.let_go.notify_one();
    stage.servers.finish_sign_in("r", &back, &operator).await.unwrap();
    assert!(live.kept.load(Ordering::SeqCst));
}

#[tokio::test]
async fn what_a_server_lists_while_it_is_removed_is_forgotten_with_it() {
    let home = tempfile::tempdir().unwrap();
    let live = Arc::new(SlowSignIn::default());
    let stage = stage_with(home.path(), live.clone()).await;
    let server = McpServer { url: Some("https://mcp.example.org/mcp".to_owned()), ..McpServer::named("r") };
    stage.servers.add(server, &operator()).await.unwrap();
    live.pins.set(stage.registry.clone()).unwrap();
    stage.servers.remove("r", &operator()).await.unwrap();
    assert!(stage.registry.pins("r", true).await.unwrap().is_empty());
}

#[tokio::test]
async fn accepting_again_does_not_bring_back_what_was_rejected_before() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path()).await;
    let digest = |text: &str| definition(text).digest;
    assert_eq!(stage.see("v1").await, Standing::New);
    assert_eq!(stage.decide(false, None).await, Some(vec![PinState::Rejected]));
    assert_eq!(stage.open().await, [(PinState::Rejected, digest("v1"))]);
    assert_eq!(stage.see("v2").await, Standing::New);
    assert_eq!(stage.open().await, [(PinState::Proposed, digest("v2"))]);
    assert_eq!(stage.decide(true, None).await, Some(vec![PinState::Accepted]));

    assert_eq!(stage.open().await, []);
    assert_eq!(stage.decide(true, None).await, None);
    assert_eq!((stage.see("v2").await, stage.see("v1").await), (Standing::Accepted, Standing::Rejected));
    // By its digest it is meant, and nothing else is.
    assert_eq!(stage.decide(true, Some("v1")).await, Some(vec![PinState::Accepted]));
    assert_eq!((stage.see("v1").await, stage.see("v2").await), (Standing::Accepted, Standing::Changed));
}

#[tokio::test]
async fn what_was_rejected_last_is_accepted_by_its_tools_name() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path()).await;
    stage.registry.see("s", FirstUse, &[definition("v1")]).await.unwrap();
    // Times are told in milliseconds.
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(stage.see("v2").await, Standing::Changed);
    assert_eq!(stage.decide(false, None).await, Some(vec![PinState::Rejected]));
    assert_eq!(stage.open().await, [(PinState::Rejected, definition("v2").digest)]);
    assert!(stage.servers.decide("s", Vec::new(), true, &operator()).await.is_err(), "nothing waits");
    assert_eq!(stage.decide(true, None).await, Some(vec![PinState::Accepted]));
    assert_eq!(stage.see("v2").await, Standing::Accepted);
}

#[tokio::test]
async fn a_secret_that_no_longer_opens_is_mended_by_a_new_value() {
    let home = tempfile::tempdir().unwrap();
    let new = |value: &str, expires: Option<Timestamp>| NewSecret {
        tenant: "local".into(),
        name: "k/v".into(),
        value: Secret::new(value),
        expires,
        created_by: "op".into(),
    };
    let stage = stage(home.path()).await;
    stage.secrets.set(new("first", None), &operator()).await.unwrap();
    assert!(!stage.secrets.rotate(new("first", None), &operator()).await.unwrap().changed);
    let database = rusqlite::Connection::open(home.path().join("registry.db")).unwrap();
    database.execute("UPDATE secrets SET sealed = zeroblob(length(sealed))", ()).unwrap();
    assert!(stage.registry.secret(&"local".into(), "k/v").await.is_err(), "somebody changed it");
    let soon = Timestamp::now().plus(Duration::from_secs(3600));
    assert!(stage.secrets.rotate(new("second", Some(soon)), &operator()).await.unwrap().changed);

    // A new value alone leaves it as good for as long as it was.
    let renewed = stage.secrets.renew(new("third", None), &operator()).await.unwrap();
    assert_eq!((renewed.changed, renewed.secret.expires), (true, Some(soon)));
    assert!(!stage.secrets.renew(new("third", None), &operator()).await.unwrap().changed);
    let rotated = stage.secrets.rotate(new("third", None), &operator()).await.unwrap();
    assert_eq!((rotated.changed, rotated.secret.expires), (true, None));
}

#[tokio::test]
async fn connections_are_on_record_before_the_log_is_closed() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path()).await;
    let journal = Journal::new(stage.audit.clone(), Bus::default());
    for port in 0..50 {
        journal.event(Event::new(EventName::EgressConnected).with("server", "s").with("port", port));
    }
    journal.close().await;
    stage.audit.close().await.unwrap();
    let reader = LogReader::open(&stage.data.audit_database()).unwrap();
    let filter = Filter { kind: Some(Kind::Node), ..Filter::default() };
    assert_eq!(reader.tail(&filter, 1000).unwrap().len(), 50);
}

fn signed_in(name: &str) -> McpServer {
    let stored = |purpose: &str| Some(SecretRef::Stored(format!("{name}/{purpose}")));
    McpServer {
        url: Some("https://notes.example/mcp".into()),
        oauth: Some(OauthConfig {
            grant: Grant::AuthorizationCode,
            token_url: "https://notes.example/token".into(),
            client_id: "c".into(),
            client_secret: stored("client-secret"),
            client_authentication: ClientAuthentication::Basic,
            scopes: Vec::new(),
            audience: None,
            resource: None,
            subject: None,
            sign_in: stored("sign-in"),
            registered: true,
            actor_token: None,
        }),
        ..McpServer::named(name)
    }
}

impl Stage {
    async fn keep_secret(&self, tenant: &str, name: &str) {
        let secret = NewSecret {
            tenant: tenant.into(),
            name: name.into(),
            value: Secret::new("v"),
            expires: None,
            created_by: "op".into(),
        };
        self.registry.set_secret(secret).await.unwrap();
    }

    async fn has_secret(&self, tenant: &str, name: &str) -> bool {
        self.registry.secret(&tenant.into(), name).await.unwrap().is_some()
    }
}

#[tokio::test]
async fn what_came_with_a_sign_in_goes_with_its_server_whoever_removes_it() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path()).await;
    stage.servers.add(signed_in("notes"), &operator()).await.unwrap();
    for tenant in ["local", "other"] {
        stage.keep_secret(tenant, "notes/sign-in").await;
        stage.keep_secret(tenant, "notes/client-secret").await;
    }
    let guest = Caller { tenant: "other".into(), ..operator() };
    let removed = stage.servers.remove("notes", &guest).await.unwrap();
    assert_eq!(removed.forgotten, ["notes/client-secret", "notes/sign-in"]);
    assert!(removed.left.is_empty(), "{:?}", removed.left);
    for name in ["notes/client-secret", "notes/sign-in"] {
        assert!(!stage.has_secret("local", name).await && stage.has_secret("other", name).await, "{name}");
    }
    stage.audit.close().await.unwrap();
    let reader = LogReader::open(&stage.data.audit_database()).unwrap();
    let found = reader.tail(&Filter { kind: Some(Kind::Node), ..Filter::default() }, 1000).unwrap();
    let deleted = found.into_iter().filter_map(|stored| match stored.entry {
        Ok(Entry::Node(record)) if record.action == "secret-deleted" => Some(record.detail),
        _ => None,
    });
    let named = |name: &str| json!({"server": "notes", "tenant": "local", "name": name});
    let deleted: Vec<_> = deleted.map(serde_json::Value::from).collect();
    assert_eq!(deleted, [named("notes/sign-in"), named("notes/client-secret")]);
}

#[tokio::test]
async fn a_removed_server_names_what_could_not_be_deleted_and_what_is_an_operators() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path()).await;
    let mut server = signed_in("notes");
    if let Some(oauth) = &mut server.oauth {
        oauth.client_secret = Some(SecretRef::Stored("crm/client".into()));
    }
    stage.servers.add(server, &operator()).await.unwrap();
    stage.keep_secret("local", "crm/client").await;
    stage.keep_secret("local", "notes/sign-in").await;
    let database = rusqlite::Connection::open(home.path().join("registry.db")).unwrap();
    let kept = "CREATE TRIGGER kept BEFORE UPDATE ON secrets BEGIN SELECT RAISE(ABORT, 'kept'); END";
    database.execute(kept, ()).unwrap();
    let removed = stage.servers.remove("notes", &operator()).await.unwrap();
    let left: Vec<&str> = removed.left.iter().map(|secret| secret.name.as_str()).collect();
    assert_eq!((left, removed.forgotten.is_empty()), (vec!["crm/client", "notes/sign-in"], true));
    assert!(stage.servers.show("notes").await.is_err());
}

#[tokio::test]
async fn a_server_that_is_switched_is_still_whose_it_was() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path()).await;
    let added = stage.servers.add(signed_in("notes"), &operator()).await.unwrap().server.configured;
    // Times are told in milliseconds.
    tokio::time::sleep(Duration::from_millis(2)).await;
    let other = Caller { user: "ann".into(), ..operator() };
    let switched = stage.servers.switch("notes", false, &other).await.unwrap().server.configured;
    assert!(!switched.server.enabled);
    assert_eq!((switched.added, switched.added_by), (added.added, Some("op".into())));
    let stored = stage.registry.added_servers().await.unwrap();
    assert_eq!((Some(stored[0].added), stored[0].added_by.as_str()), (added.added, "op"));
}
