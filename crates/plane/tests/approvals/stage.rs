//! A plane on real files, with one tool that writes down what it did, and people who ask and decide.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use aegis_core::{
    Call, Caller, Door, Failure, Label, Tier, TrustClass, Violation, ViolationKind,
    config::{ApprovalsConfig, AuditConfig, LimitsConfig, NodeConfig, SecurityContext},
    id::{ApprovalId, SessionId},
    record::{CallRecord, Entry},
    tool::{ApprovalRule, Mutability, Route},
};
use aegis_gates::{
    PolicyGate,
    policy::{LabelBook, Rules},
};
use aegis_plane::{
    Bus, Done, Parts, Plane,
    approvals::{Approval, ApprovalState, Decision, NoPreviews, Sessions},
};
use aegis_routes::{Answer, Catalog, Facts, Run, Tool, tools::assistant::approval_request::ApprovalRequest};
use aegis_stores::{
    AuditLog, DataDir, Registry,
    audit::{Filter, LogReader},
    registry::NewToken,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// What the tool did, in order.
pub(crate) type Deeds = Arc<Mutex<Vec<String>>>;

struct Actor {
    name: &'static str,
    mutability: Mutability,
    approval: ApprovalRule,
    deeds: Deeds,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    act: String,
    #[serde(default)]
    #[allow(dead_code, reason = "only its default matters")]
    times: Option<u32>,
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
            approval: self.approval.clone(),
            route: Route::Builtin,
            targets: Vec::new(),
            label: Label::new(TrustClass::ExternalUntrusted, "test"),
            examples: Vec::new(),
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        if input.act == "links" {
            let text = if run.permit.limits().no_links { "not followed" } else { "followed" };
            return Ok(Output { text: text.into() }.into());
        }
        self.deeds.lock().unwrap().push(input.act.clone());
        if input.act == "panic" {
            panic!("as told");
        }
        if input.act == "fail" {
            return Err(Failure::new(aegis_core::FailureKind::NotFound, "there is none"));
        }
        Ok(Output { text: input.act }.into())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ended(Mutex<HashSet<SessionId>>);

impl Ended {
    pub(crate) fn end(&self, session: &SessionId) {
        self.0.lock().unwrap().insert(session.clone());
    }
}

impl Sessions for Ended {
    fn is_live(&self, session: &SessionId) -> bool {
        !self.0.lock().unwrap().contains(session)
    }
}

pub(crate) struct Stage {
    pub(crate) plane: Arc<Plane>,
    pub(crate) registry: Registry,
    pub(crate) deeds: Deeds,
    pub(crate) sessions: Arc<Ended>,
    pub(crate) dir: Arc<TempDir>,
    config: ApprovalsConfig,
    pub(crate) asker: Caller,
}

pub(crate) fn contexts() -> Vec<SecurityContext> {
    let of = |value: Value| serde_json::from_value(value).unwrap();
    let mut contexts = NodeConfig::default().contexts();
    contexts.extend([
        of(json!({"name": "asks", "capabilities": [
            {"tool_pattern": "test.*", "approval": "required"},
            {"tool_pattern": "tool.*"},
        ]})),
        of(json!({"name": "reviewers", "capabilities": [{"tool_pattern": "aegis.approvals"}]})),
        of(json!({"name": "anything", "capabilities": [{"tool_pattern": "*"}]})),
    ]);
    contexts
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(ApprovalsConfig::default()).await
    }

    pub(crate) async fn with(config: ApprovalsConfig) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::on(dir, config, Deeds::default(), None).await
    }

    async fn on(dir: Arc<TempDir>, config: ApprovalsConfig, deeds: Deeds, asker: Option<Caller>) -> Self {
        let data = DataDir::open(dir.path().join("data")).unwrap();
        let registry = Registry::open(&data).unwrap();
        let actor =
            |name, mutability, approval| Actor { name, mutability, approval, deeds: Arc::clone(&deeds) };
        let catalog = Catalog::default()
            .with(actor("test.look", Mutability::ReadOnly, ApprovalRule::NotRequired))
            .with(actor("test.change", Mutability::Mutating, ApprovalRule::NotRequired))
            .with(ApprovalRequest);
        let sessions = Arc::new(Ended::default());
        let plane = Plane::new(Parts {
            catalog: Arc::new(catalog),
            policy: Arc::new(PolicyGate::new(&contexts(), Rules::none(), LabelBook::forgetful())),
            audit: AuditLog::open(&data, &AuditConfig::default()).unwrap(),
            bus: Bus::default(),
            limits: LimitsConfig::default(),
            audit_config: AuditConfig::default(),
            registry: registry.clone(),
            approvals: config.clone(),
            sessions: Arc::<Ended>::clone(&sessions),
            spans: Arc::new(aegis_core::trace::NoSpans),
            previews: Arc::new(NoPreviews),
        });
        plane.settle_interrupted().await.unwrap();
        plane.resume_approved().await.unwrap();
        let asker = match asker {
            Some(asker) => asker,
            None => caller(&registry, "ann", "asks").await,
        };
        Self { plane, registry, deeds, sessions, dir, config, asker }
    }

    /// The node stops in order and starts again on the same data.
    pub(crate) async fn restarted(self) -> Self {
        self.restarted_after(|_| {}).await
    }

    /// The same, with something done to the data while no node runs.
    pub(crate) async fn restarted_after(self, meanwhile: impl FnOnce(&PathBuf)) -> Self {
        let Self { plane, registry, deeds, dir, config, asker, .. } = self;
        plane.drain().await;
        plane.close().await;
        drop(plane);
        drop(registry);
        meanwhile(&dir.path().join("data"));
        Self::on(dir, config, deeds, Some(asker)).await
    }

    /// Who asks.
    pub(crate) fn asker(&self) -> Caller {
        self.asker.clone()
    }

    pub(crate) async fn caller(&self, user: &str, context: &str) -> Caller {
        caller(&self.registry, user, context).await
    }

    pub(crate) async fn call_as(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Value,
    ) -> Result<Done, Violation> {
        let arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
        let call = Call::new(tool, arguments);
        self.plane.call(caller.clone(), call, CancellationToken::new()).await.result
    }

    pub(crate) async fn call(&self, act: &str) -> Result<Done, Violation> {
        self.call_as(&self.asker, "test.change", json!({ "act": act })).await
    }

    /// Asks, and expects to wait.
    pub(crate) async fn ask(&self, act: &str) -> Approval {
        let done = self.call(act).await.unwrap();
        *done.pending.unwrap_or_else(|| panic!("it did not wait: {}", done.json))
    }

    pub(crate) async fn approve(&self, id: &ApprovalId) -> Result<Approval, Violation> {
        self.plane.approvals().decide(id, Decision::Approve, &operator()).await
    }

    pub(crate) async fn reject(&self, id: &ApprovalId) -> Result<Approval, Violation> {
        let decision = Decision::Reject { reason: "use the staging copy".into() };
        self.plane.approvals().decide(id, decision, &operator()).await
    }

    /// Where it stands once nothing more happens.
    pub(crate) async fn settled(&self, id: &ApprovalId) -> Approval {
        let approval = self.plane.approvals().wait(id, Duration::from_secs(30)).await.unwrap();
        assert!(approval.is_settled(), "{:?}", approval.state);
        approval
    }

    pub(crate) async fn state(&self, id: &ApprovalId) -> ApprovalState {
        self.plane.approvals().show(id).await.unwrap().unwrap().state
    }

    pub(crate) fn deeds(&self) -> Vec<String> {
        self.deeds.lock().unwrap().clone()
    }

    /// Everything in the audit log, oldest first.
    pub(crate) async fn entries(&self) -> Vec<Entry> {
        self.plane.audit().seal().await.unwrap();
        let reader = LogReader::open(self.plane.audit().path()).unwrap();
        let mut found: Vec<Entry> = reader
            .tail(&Filter::default(), 10_000)
            .unwrap()
            .into_iter()
            .map(|stored| stored.entry.unwrap())
            .collect();
        found.reverse();
        found
    }

    pub(crate) async fn calls(&self) -> Vec<CallRecord> {
        let entries = self.entries().await.into_iter();
        entries.filter_map(|entry| if let Entry::Call(call) = entry { Some(*call) } else { None }).collect()
    }

    /// The actions of node records, in order.
    pub(crate) async fn notes(&self) -> Vec<String> {
        let entries = self.entries().await.into_iter();
        entries
            .filter_map(|entry| if let Entry::Node(node) = entry { Some(node.action) } else { None })
            .collect()
    }
}

/// A caller with a token of its own.
pub(crate) async fn caller(registry: &Registry, user: &str, context: &str) -> Caller {
    let new = NewToken {
        tenant: "local".into(),
        user: user.into(),
        tier: Tier::User,
        context: context.into(),
        expires: None,
        note: None,
    };
    let (token, _) = registry.create(new).await.unwrap();
    Caller {
        tenant: token.tenant,
        user: token.user,
        tier: token.tier,
        context: token.context,
        credential: token.id,
        door: Door::Rest,
        session: None,
        pinned: None,
    }
}

pub(crate) fn operator() -> Caller {
    Caller {
        tenant: "local".into(),
        user: "operator".into(),
        tier: Tier::Operator,
        context: "aegis-system-operator".into(),
        credential: "local".into(),
        door: Door::Cli,
        session: None,
        pinned: None,
    }
}

pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T, Violation>) -> ViolationKind {
    result.unwrap_err().kind
}
