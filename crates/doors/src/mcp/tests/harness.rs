//! A real plane with a few tools of its own, for the tests of this door.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    ApprovalState, Caller, Door, Failure, FailureKind, Label, Secret, Tier, TrustClass,
    config::{
        ApprovalsConfig, AuditConfig, LimitsConfig, NetworkConfig, NfsConfig, SealConfig, StorageConfig,
        security_context::{OPERATOR_CONTEXT, SecurityContext},
    },
    tool::{ApprovalRule, Mutability, Route},
    trace::NoSpans,
    upstream::NoUpstreams,
};
use aegis_gates::{
    IdentityGate, PolicyGate,
    identity::seal::SealGate,
    policy::{LabelBook, Rules},
};
use aegis_nfs::gateway::Gateway;
use aegis_plane::{
    Bus, Contexts, Parts, Plane, Secrets, Servers,
    approvals::{Decision, NoPreviews, NoSessions},
    contexts::Layers,
    servers::ServerLayers,
};
use aegis_routes::{Answer, Catalog, Facts, Run, Tool, files::Files, upstream::NoOffers};
use aegis_stores::{AuditLog, DataDir, Registry, registry::NewToken};
use axum::Router;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::super::progress::Pace;
use crate::Doors;

/// Short enough that a test which waits for progress is quick.
const HASTE: Pace = Pace {
    first: Duration::from_millis(20),
    every: Duration::from_millis(20),
    quiet: Duration::from_secs(15),
    decision: Duration::from_millis(150),
};

pub(crate) struct Harness {
    pub(crate) doors: Arc<Doors>,
    /// A user of the context `tests`, which has `test.*`.
    pub(crate) token: Secret,
    /// Another user of the same context.
    pub(crate) other: Secret,
    /// A user whose every call needs an approver.
    pub(crate) careful: Secret,
    /// Waits that were cut short.
    pub(crate) cancelled: Arc<AtomicUsize>,
    _data: TempDir,
}

impl Harness {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut NetworkConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        let registry = Registry::open(&data).unwrap();
        let seal = SealGate::open(&data, registry.clone(), &SealConfig::default()).await.unwrap();
        let token = |user: &str, context: &str| NewToken {
            tenant: "acme".into(),
            user: user.into(),
            tier: Tier::User,
            context: context.into(),
            expires: None,
            note: None,
        };
        let (_, alice) = registry.create(token("alice", "tests")).await.unwrap();
        let (_, bob) = registry.create(token("bob", "tests")).await.unwrap();
        let (_, carol) = registry.create(token("carol", "careful")).await.unwrap();
        let context: SecurityContext = serde_json::from_value(json!({
            "name": "tests",
            "capabilities": [{"tool_pattern": "test.*"}],
            "deny_list": ["test.hidden"],
        }))
        .unwrap();
        let careful: SecurityContext = serde_json::from_value(json!({
            "name": "careful",
            "capabilities": [{"tool_pattern": "test.*", "approval": "required"}],
        }))
        .unwrap();
        let cancelled = Arc::new(AtomicUsize::new(0));
        let catalog = Catalog::default()
            .with(Echo { name: "test.echo" })
            .with(Shout)
            .with(Wait { cancelled: Arc::clone(&cancelled) })
            .with(Break)
            .with(Echo { name: "test.hidden" })
            .with(Echo { name: "other.echo" });
        let audit = AuditLog::open(&data, &AuditConfig::default()).unwrap();
        let contexts = vec![context, careful];
        let policy = Arc::new(PolicyGate::new(&contexts, Rules::none(), LabelBook::forgetful()));
        let layers = Layers::load(&registry, None, contexts).await.unwrap();
        let plane = Plane::new(Parts {
            catalog: Arc::new(catalog),
            policy: Arc::clone(&policy),
            audit: audit.clone(),
            bus: Bus::default(),
            limits: LimitsConfig::default(),
            audit_config: AuditConfig::default(),
            registry: registry.clone(),
            approvals: ApprovalsConfig::default(),
            sessions: Arc::new(NoSessions),
            previews: Arc::new(NoPreviews),
            spans: Arc::new(NoSpans),
        });
        let mut network = NetworkConfig::default();
        change(&mut network);
        let servers = ServerLayers::load(&registry, None, Vec::new()).await.unwrap();
        let servers =
            Servers::new(servers, Arc::new(NoUpstreams), registry.clone(), "local".into(), audit.clone());
        let servers = Arc::new(servers);
        let files = Files::new(directory.path().join("volumes"), &StorageConfig::default()).unwrap();
        let volumes = Gateway::open(&plane, &Arc::new(files), &NfsConfig::default(), &data).unwrap();
        let doors = Arc::new(Doors {
            volumes,
            plane,
            secrets: Secrets::new(registry.clone(), audit.clone(), Arc::clone(&servers)),
            servers,
            offers: Arc::new(NoOffers::default()),
            contexts: Contexts::new(layers, policy, registry.clone(), audit),
            identity: IdentityGate::new(registry.clone(), seal),
            registry,
            network,
            name: "testing".into(),
            version: "0.0.0",
            stopping: CancellationToken::new(),
        });
        Self { doors, token: alice, other: bob, careful: carol, cancelled, _data: directory }
    }

    pub(crate) fn router(&self) -> Router {
        super::super::routes_at(&self.doors, HASTE)
    }

    /// The caller of a pipe.
    pub(crate) fn caller(&self) -> Caller {
        Caller {
            tenant: "acme".into(),
            user: "alice".into(),
            tier: Tier::User,
            context: "tests".into(),
            credential: "local".into(),
            door: Door::McpStdio,
            session: None,
            pinned: None,
        }
    }

    /// The person who decides.
    pub(crate) fn approver(&self) -> Caller {
        Caller {
            user: "boss".into(),
            tier: Tier::Operator,
            context: OPERATOR_CONTEXT.into(),
            credential: "boss".into(),
            door: Door::Rest,
            ..self.caller()
        }
    }

    pub(crate) async fn approve(&self, id: &Value) {
        let id = id.as_str().unwrap().into();
        self.doors.plane.approvals().decide(&id, Decision::Approve, &self.approver()).await.unwrap();
    }

    pub(crate) async fn state(&self, id: &Value) -> ApprovalState {
        let id = id.as_str().unwrap().into();
        self.doors.plane.approvals().show(&id).await.unwrap().unwrap().state
    }

    /// Waits until as many waits were cut short.
    pub(crate) async fn until_cancelled(&self, count: usize) {
        while self.cancelled.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Waits until that many calls are in work.
    pub(crate) async fn until_in_flight(&self, count: u64) {
        while self.doors.plane.meters().in_flight() != count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A request of the stateless era.
pub(crate) fn modern(id: &Value, method: &str, mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(crate) fn legacy(id: &Value, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn facts(name: &'static str, mutability: Mutability) -> Facts {
    Facts {
        name: name.into(),
        aliases: Vec::new(),
        title: name.into(),
        category: "test".into(),
        description: "For tests".into(),
        tags: Vec::new(),
        tier: Tier::User,
        skip_judge: true,
        mutability,
        idempotent: true,
        approval: ApprovalRule::NotRequired,
        route: Route::Builtin,
        targets: Vec::new(),
        label: Label::new(TrustClass::ExternalUntrusted, "filesystem"),
        examples: Vec::new(),
    }
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Said {
    text: String,
}

/// Gives back what it gets.
struct Echo {
    name: &'static str,
}

impl Tool for Echo {
    type Input = Said;
    type Output = Said;

    fn facts(&self) -> Facts {
        facts(self.name, Mutability::ReadOnly)
    }

    async fn run(&self, _run: &Run<'_>, input: Said) -> Result<Answer<Said>, Failure> {
        Ok(Answer::from(input, "/workspace/a"))
    }
}

/// Answers with a string.
struct Shout;

impl Tool for Shout {
    type Input = Said;
    type Output = Said;

    fn facts(&self) -> Facts {
        facts("test.shout", Mutability::ReadOnly)
    }

    async fn run(&self, _run: &Run<'_>, input: Said) -> Result<Answer<Said>, Failure> {
        Ok(Said { text: input.text.to_uppercase() }.into())
    }

    fn text(output: &Said) -> Option<String> {
        Some(output.text.clone())
    }

    const ANSWERS_TEXT: bool = true;
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Span {
    millis: u64,
}

/// Takes its time, and counts how often it was not given it.
struct Wait {
    cancelled: Arc<AtomicUsize>,
}

struct Counted<'a>(Option<&'a AtomicUsize>);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Tool for Wait {
    type Input = Span;
    type Output = Span;

    fn facts(&self) -> Facts {
        facts("test.wait", Mutability::ReadOnly)
    }

    async fn run(&self, _run: &Run<'_>, input: Span) -> Result<Answer<Span>, Failure> {
        let mut counted = Counted(Some(&self.cancelled));
        tokio::time::sleep(Duration::from_millis(input.millis)).await;
        counted.0 = None;
        Ok(input.into())
    }
}

/// Never works.
struct Break;

impl Tool for Break {
    type Input = Said;
    type Output = Said;

    fn facts(&self) -> Facts {
        facts("test.break", Mutability::Mutating)
    }

    async fn run(&self, _run: &Run<'_>, input: Said) -> Result<Answer<Said>, Failure> {
        Err(Failure::new(FailureKind::NotFound, format!("there is no `{}`", input.text)))
    }
}
