//! A real plane with a few tools of its own, for the tests of this door.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aegis_core::{
    Caller, Door, Failure, FailureKind, Label, Secret, Tier, TrustClass,
    config::{AuditConfig, LimitsConfig, NetworkConfig, security_context::SecurityContext},
    tool::{ApprovalRule, Mutability, Route},
};
use aegis_gates::{IdentityGate, PolicyGate};
use aegis_plane::{Bus, Parts, Plane};
use aegis_routes::{Answer, Catalog, Facts, Run, Tool};
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
};

pub(crate) struct Harness {
    pub(crate) doors: Arc<Doors>,
    /// A user of the context `tests`, which has `test.*`.
    pub(crate) token: Secret,
    /// Another user of the same context.
    pub(crate) other: Secret,
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
        let token = |user: &str| NewToken {
            tenant: "acme".into(),
            user: user.into(),
            tier: Tier::User,
            context: "tests".into(),
            expires: None,
            note: None,
        };
        let (_, alice) = registry.create(token("alice")).await.unwrap();
        let (_, bob) = registry.create(token("bob")).await.unwrap();
        let context: SecurityContext = serde_json::from_value(json!({
            "name": "tests",
            "capabilities": [{"tool_pattern": "test.*"}],
            "deny_list": ["test.hidden"],
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
        let plane = Plane::new(Parts {
            catalog: Arc::new(catalog),
            policy: Arc::new(PolicyGate::new(&[context])),
            audit: AuditLog::open(&data, &AuditConfig::default()).unwrap(),
            bus: Bus::default(),
            limits: LimitsConfig::default(),
            audit_config: AuditConfig::default(),
        });
        let mut network = NetworkConfig::default();
        change(&mut network);
        let doors = Arc::new(Doors {
            plane,
            identity: IdentityGate::new(registry.clone()),
            registry,
            network,
            name: "testing".into(),
            version: "0.0.0",
            stopping: CancellationToken::new(),
        });
        Self { doors, token: alice, other: bob, cancelled, _data: directory }
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
        }
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
