//! What operators decide about MCP servers: which definitions they stand by, and what their secrets are.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Caller, Door, Event, Secret, Tier, Timestamp,
    config::{
        AuditConfig, McpServer,
        security_context::OPERATOR_CONTEXT,
        upstream::DefinitionTrust::{Approve, FirstUse},
    },
    event::EventName,
    progress::Listener,
    upstream::{Definition, NoUpstreams, Pins, Standing},
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

struct Stage {
    servers: Arc<Servers>,
    secrets: Secrets,
    registry: Registry,
    audit: AuditLog,
    data: DataDir,
}

async fn stage(home: &std::path::Path) -> Stage {
    let data = DataDir::open(home).unwrap();
    let registry = Registry::open(&data).unwrap();
    let audit = AuditLog::open(&data, &AuditConfig::default()).unwrap();
    let own = vec![McpServer { executable: Some("x".into()), ..McpServer::named("s") }];
    let layers = ServerLayers::load(&registry, None, own).await.unwrap();
    let servers = Servers::new(layers, Arc::new(NoUpstreams), registry.clone(), audit.clone());
    let servers = Arc::new(servers);
    let secrets = Secrets::new(registry.clone(), audit.clone(), Arc::clone(&servers));
    Stage { servers, secrets, registry, audit, data }
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
