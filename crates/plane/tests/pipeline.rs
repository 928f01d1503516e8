//! Calls that end badly: each is answered, and each leaves its one record.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Call, Caller, Door, Failure, Label, Tier, TrustClass, ViolationKind,
    call::{Proof, digest},
    config::{ApprovalsConfig, AuditConfig, LimitsConfig, NodeConfig},
    quantity::{Size, Span},
    record::{CallRecord, CallResult, Entry},
    tool::{ApprovalRule, Mutability, Route},
};
use aegis_gates::{
    PolicyGate,
    policy::{LabelBook, Rules},
};
use aegis_plane::{
    Bus, Parts, Plane,
    approvals::{NoPreviews, NoSessions},
};
use aegis_routes::{Answer, Catalog, Facts, Run, Tool};
use aegis_stores::{
    AuditLog, DataDir, Registry,
    audit::{Filter, Kind, LogReader},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// A tool's name that could be a key as well.
const LIKE_A_KEY: &str = "npm_registry2.search_packages";

/// Does what its argument says.
struct Actor {
    name: &'static str,
    mutability: Mutability,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    act: String,
}

#[derive(Serialize, JsonSchema)]
struct Output {
    text: String,
}

impl Tool for Actor {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: self.name.into(),
            aliases: Vec::new(),
            title: "Act".into(),
            category: "test".into(),
            description: "Does what it is told.".into(),
            tags: Vec::new(),
            tier: Tier::User,
            skip_judge: true,
            mutability: self.mutability,
            idempotent: false,
            approval: ApprovalRule::NotRequired,
            route: Route::Builtin,
            targets: Vec::new(),
            label: Label::new(TrustClass::ExternalUntrusted, "test"),
            examples: Vec::new(),
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let text = match input.act.as_str() {
            "panic" => panic!("as told"),
            "talk" => "x".repeat(10_000),
            "hang" => std::future::pending().await,
            "dawdle" => {
                run.cancel.cancelled().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                "late".to_owned()
            }
            other => other.to_owned(),
        };
        Ok(Output { text }.into())
    }
}

struct Stage {
    plane: Arc<Plane>,
    data: DataDir,
    _dir: TempDir,
}

fn stage(limits: LimitsConfig) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let data = DataDir::open(dir.path().join("data")).unwrap();
    let catalog = Catalog::default()
        .with(Actor { name: "test.look", mutability: Mutability::ReadOnly })
        .with(Actor { name: "test.claim", mutability: Mutability::SaidReadOnly })
        .with(Actor { name: "test.change", mutability: Mutability::Mutating })
        .with(Actor { name: LIKE_A_KEY, mutability: Mutability::ReadOnly });
    let plane = Plane::new(Parts {
        catalog: Arc::new(catalog),
        policy: Arc::new(PolicyGate::new(
            &NodeConfig::default().contexts(),
            Rules::none(),
            LabelBook::forgetful(),
        )),
        audit: AuditLog::open(&data, &AuditConfig::default()).unwrap(),
        bus: Bus::default(),
        limits,
        audit_config: AuditConfig::default(),
        registry: Registry::open(&data).unwrap(),
        approvals: ApprovalsConfig::default(),
        sessions: Arc::new(NoSessions),
        spans: Arc::new(aegis_core::trace::NoSpans),
        previews: Arc::new(NoPreviews),
    });
    Stage { plane, data, _dir: dir }
}

fn brief() -> LimitsConfig {
    LimitsConfig {
        call_timeout: Span(Duration::from_millis(200)),
        max_response: Size(5_000),
        ..LimitsConfig::default()
    }
}

impl Stage {
    fn caller() -> Caller {
        Caller {
            tenant: "local".into(),
            user: "ann".into(),
            tier: Tier::Operator,
            context: "aegis-system-operator".into(),
            credential: "test".into(),
            door: Door::Rest,
            session: None,
            pinned: None,
        }
    }

    fn start(
        &self,
        tool: &str,
        act: &str,
        cancel: &CancellationToken,
    ) -> impl Future<Output = Result<String, ViolationKind>> + use<> {
        let mut arguments = Map::new();
        arguments.insert("act".into(), act.into());
        let (plane, call, cancel) = (Arc::clone(&self.plane), Call::new(tool, arguments), cancel.clone());
        async move {
            let reply = plane.call(Self::caller(), call, cancel).await;
            reply.result.map(|done| done.json).map_err(|violation| violation.kind)
        }
    }

    async fn call(&self, tool: &str, act: &str) -> Result<String, ViolationKind> {
        self.start(tool, act, &CancellationToken::new()).await
    }

    /// The records of all calls, oldest first.
    async fn records(self) -> Vec<CallRecord> {
        let call = |entry| match entry {
            Entry::Call(record) => Some(*record),
            _ => None,
        };
        self.entries(Kind::Call).await.into_iter().filter_map(call).collect()
    }

    /// Oldest first.
    async fn entries(self, kind: Kind) -> Vec<Entry> {
        self.plane.drain().await;
        self.plane.close().await;
        let reader = LogReader::open(&self.data.audit_database()).unwrap();
        let filter = Filter { kind: Some(kind), ..Filter::default() };
        let found = reader.tail(&filter, 1000).unwrap();
        found.into_iter().rev().map(|stored| stored.entry.unwrap()).collect()
    }
}

fn failed_as(record: &CallRecord) -> String {
    match &record.result {
        CallResult::Failed { kind, .. } => kind.clone(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn a_panic_is_an_outcome() {
    let stage = stage(LimitsConfig::default());
    for tool in ["test.look", "test.change"] {
        assert_eq!(stage.call(tool, "panic").await, Err(ViolationKind::InternalError));
    }
    assert_eq!(stage.call("test.look", "fine").await, Ok(json!({"text": "fine"}).to_string()));
    assert!(stage.plane.audit().unfinished_intents().is_empty());
    let kinds: Vec<String> = stage.records().await.iter().map(failed_as).collect();
    assert_eq!(kinds[..2], ["InternalError", "InternalError"]);
    assert_eq!(kinds.len(), 3);
}

#[tokio::test]
async fn a_change_and_what_is_only_said_to_be_none_are_written_down_first() {
    let stage = stage(LimitsConfig::default());
    for tool in ["test.look", "test.claim", "test.change"] {
        stage.call(tool, "fine").await.unwrap();
    }
    let intents = stage.entries(Kind::Intent).await;
    let tools: Vec<&str> = intents
        .iter()
        .filter_map(|entry| match entry {
            Entry::Intent(intent) => Some(intent.tool.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(tools, ["test.claim", "test.change"]);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_withheld_and_recorded_as_such() {
    let stage = stage(brief());
    assert_eq!(stage.call("test.change", "talk").await, Err(ViolationKind::OutputSizeLimitExceeded));
    let metrics = stage.plane.meters().render();
    assert!(metrics.contains("aegis_refusals_total{violation=\"OutputSizeLimitExceeded\"} 1"), "{metrics}");
    let records = stage.records().await;
    assert_eq!(failed_as(&records[0]), "OutputSizeLimitExceeded");
    assert!(records[0].label.is_some(), "it ran, so it has a label");
}

#[tokio::test]
async fn time_runs_out() {
    let stage = stage(brief());
    assert_eq!(stage.call("test.look", "hang").await, Err(ViolationKind::DeadlineExceeded));
    // A change is answered at the deadline, asked to stop, waited for, and recorded as it really ended.
    assert_eq!(stage.call("test.change", "dawdle").await, Err(ViolationKind::DeadlineExceeded));
    let records = stage.records().await;
    assert_eq!(failed_as(&records[0]), "DeadlineExceeded");
    assert!(matches!(records[1].result, CallResult::Done { .. }), "{:?}", records[1].result);
}

#[tokio::test]
async fn a_caller_that_leaves_is_recorded() {
    let stage = stage(LimitsConfig::default());
    let cancel = CancellationToken::new();
    let call = tokio::spawn(stage.start("test.look", "hang", &cancel));
    while stage.plane.meters().in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    cancel.cancel();
    assert!(call.await.unwrap().is_err());
    assert_eq!(stage.records().await.len(), 1);
}

#[tokio::test]
async fn more_calls_than_the_node_takes() {
    let stage = stage(LimitsConfig { max_concurrent_calls: 1, ..LimitsConfig::default() });
    let cancel = CancellationToken::new();
    let first = tokio::spawn(stage.start("test.look", "hang", &cancel));
    while stage.plane.meters().in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(stage.call("test.look", "fine").await, Err(ViolationKind::Overloaded));
    cancel.cancel();
    assert!(first.await.unwrap().is_err());
    assert!(stage.call("test.look", "fine").await.is_ok());
    let records = stage.records().await;
    let overloaded = records.iter().find_map(|record| match &record.result {
        CallResult::Refused { kind, rule, .. } => Some((kind.as_str(), rule.as_deref())),
        _ => None,
    });
    assert_eq!(overloaded, Some(("Overloaded", Some("spec.limits.max_concurrent_calls"))));
}

#[tokio::test]
async fn the_name_of_a_tool_is_told_if_there_is_one_and_masked_if_it_may_be_anything() {
    let stage = stage(LimitsConfig::default());
    let mut heard = stage.plane.bus().subscribe();
    let key = "npm_0123456789abcdefghij";
    let long = format!("{} {key}", "x".repeat(115));
    assert!(stage.call(LIKE_A_KEY, "fine").await.is_ok());
    let empty = Call::new(LIKE_A_KEY, Map::new());
    let refused = stage.plane.call(Stage::caller(), empty, CancellationToken::new()).await.result;
    assert_eq!(refused.map(drop).unwrap_err().kind, ViolationKind::InvalidArguments);
    for unknown in [key, &long] {
        assert_eq!(stage.call(unknown, "fine").await, Err(ViolationKind::ToolNotFound));
    }

    let mut told = Vec::new();
    while let Ok(event) = heard.try_recv() {
        told.extend(event.tool.clone());
    }
    told.dedup();
    let cut = format!("{} [redacted]", "x".repeat(115));
    assert_eq!(told, [LIKE_A_KEY, "[redacted]", &cut]);
    let records = stage.records().await;
    let tools: Vec<&str> = records.iter().map(|record| record.tool.as_str()).collect();
    assert_eq!(tools, [LIKE_A_KEY, LIKE_A_KEY, "[redacted]", &cut]);
    assert!(!serde_json::to_string(&records).unwrap().contains("npm_0"), "{records:?}");
}

/// Of a short secret the digest would be as good as the secret: all there are can be tried.
#[tokio::test]
async fn digests_of_what_is_hidden_are_keyed() {
    let hidden = "unlock --password 4711";
    let of = |act: &str| digest(&Map::from_iter([("act".to_owned(), act.into())]));
    let called = async || {
        let stage = stage(LimitsConfig::default());
        for act in ["plain", hidden, hidden, "unlock --password 4712"] {
            let arguments = Map::from_iter([("act".to_owned(), act.into())]);
            let proof = Proof { message_sha256: of(act), signature: "signed".into() };
            let call = Call::new("test.change", arguments).signed(proof);
            stage.plane.call(Stage::caller(), call, CancellationToken::new()).await.result.unwrap();
        }
        let keyed = stage.plane.audit().keyed(&of(hidden));
        (stage, keyed)
    };
    let (stage, keyed) = called().await;
    let records = stage.records().await;
    assert_eq!(records[0].arguments_sha256, of("plain"), "nothing of it is hidden");
    assert_eq!(records[0].proof.as_ref().unwrap().message_sha256, of("plain"));
    for record in &records[1..3] {
        assert_eq!(record.arguments["act"], "unlock --password [redacted]");
        assert_eq!(record.arguments_sha256, keyed);
        assert_eq!(record.proof.as_ref().unwrap().message_sha256, keyed);
    }
    assert_ne!(records[2].arguments_sha256, records[3].arguments_sha256);

    let (stage, keyed) = called().await;
    let digests: Vec<String> = stage
        .entries(Kind::Intent)
        .await
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Intent(intent) => Some(intent.arguments_sha256),
            _ => None,
        })
        .collect();
    assert_eq!((digests.len(), &digests[0], &digests[1]), (4, &of("plain"), &keyed));
}
