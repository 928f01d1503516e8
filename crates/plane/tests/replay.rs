//! Many recorded calls decided again: each counted once, by the right rule.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::time::Duration;

use aegis_core::{
    Caller, Door, Failure, Gate, GateVerdict, Label, Tier, Timestamp, TrustClass, Violation, ViolationKind,
    call,
    config::{AuditConfig, LabelRules, SecurityContext, security_context},
    id::{ApprovalId, CallId},
    record::{CallRecord, CallResult, Entry},
    redact,
    tool::{ApprovalRule, Mutability, Route},
};
use aegis_gates::{
    PolicyGate,
    policy::{LabelBook, Rules, Schema, Source},
};
use aegis_plane::replay::{Replay, Report};
use aegis_routes::{Answer, Catalog, Facts, Run, Tool};
use aegis_stores::{AuditLog, DataDir, audit::LogReader};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Takes a text; is never run.
struct Speak {
    name: &'static str,
    mutability: Mutability,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Input {
    #[allow(dead_code, reason = "it is only decided about")]
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Output {
    text: String,
}

impl Tool for Speak {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: self.name.into(),
            aliases: Vec::new(),
            title: "Speak".into(),
            category: "test".into(),
            description: "Is never run.".into(),
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

    async fn run(&self, _: &Run<'_>, _: Input) -> Result<Answer<Output>, Failure> {
        panic!("a replay runs nothing")
    }
}

fn catalog() -> Catalog {
    Catalog::default()
        .with(Speak { name: "test.read", mutability: Mutability::ReadOnly })
        .with(Speak { name: "test.write", mutability: Mutability::Mutating })
}

fn contexts(text: &str) -> Vec<SecurityContext> {
    security_context::parse(text).unwrap()
}

/// What was decided then.
#[derive(Clone, Copy)]
enum Past {
    Allowed,
    Denied,
    Asked,
    Slow,
}

fn record(number: u64, user: &str, tool: &str, text: &str, past: Past) -> Entry {
    let arguments = json!({"text": text}).as_object().cloned().unwrap();
    let mut verdicts: Vec<GateVerdict> =
        [Gate::Identity, Gate::Catalog, Gate::Arguments].into_iter().map(GateVerdict::pass).collect();
    let mut deny = |kind| verdicts.push(GateVerdict::deny(Gate::Policy, Violation::new(kind, "no")));
    match past {
        Past::Denied => deny(ViolationKind::PolicyForbids),
        Past::Slow => deny(ViolationKind::RateLimitExceeded),
        Past::Allowed | Past::Asked => {
            verdicts.push(GateVerdict::pass(Gate::Policy));
            verdicts.push(GateVerdict::pass(Gate::Approval));
        }
    }
    let refused = || CallResult::Refused { kind: "x".into(), message: "no".into(), rule: None };
    let ran = matches!(past, Past::Allowed | Past::Asked);
    Entry::Call(Box::new(CallRecord {
        time: Timestamp::from_millis(1_767_225_600_000).plus(Duration::from_secs(number)),
        call: CallId::fresh(),
        caller: Caller {
            tenant: "local".into(),
            user: user.into(),
            tier: Tier::User,
            context: "tests".into(),
            credential: format!("tok_{user}").as_str().into(),
            door: Door::Rest,
            session: Some(format!("session-{user}").as_str().into()),
            pinned: Some("tests@older".into()),
        },
        tool: tool.into(),
        asked_as: None,
        arguments_sha256: call::digest(&arguments),
        arguments: redact::arguments(&arguments),
        verdicts,
        result: if ran { CallResult::Done { bytes: 1 } } else { refused() },
        label: (ran && tool == "test.read").then(|| Label::new(TrustClass::ExternalUntrusted, "test")),
        proof: None,
        approval: matches!(past, Past::Asked).then(|| ApprovalId::new(format!("approval:{number}"))),
        micros: 10,
    }))
}

async fn replay(records: Vec<Entry>, policies: &str, rules: LabelRules, since: Option<Timestamp>) -> Report {
    let home = tempfile::tempdir().unwrap();
    let log = AuditLog::open(&DataDir::open(home.path()).unwrap(), &AuditConfig::default()).unwrap();
    for record in &records {
        log.record(record).await.unwrap();
    }
    log.close().await.unwrap();
    let policies = policies.to_owned();
    tokio::task::spawn_blocking(move || {
        let catalog = catalog();
        let schema = Schema::of(&catalog.specs());
        let rules = Rules::compile(&[Source::new("a.cedar", policies)], &schema, rules).unwrap();
        let contexts = contexts("{name: tests, capabilities: [{tool_pattern: test.*}]}");
        let gate = PolicyGate::new(&contexts, rules, LabelBook::forgetful());
        let log = LogReader::open(&home.path().join("audit.db")).unwrap();
        Replay::new(&catalog, &gate, Duration::from_secs(3600)).run(&log, since).unwrap()
    })
    .await
    .unwrap()
}

const RULES: &str = r#"
@id("no-b") forbid (principal, action, resource) when { context.arguments.text == "b" };
@id("ask-c") @approval forbid (principal, action, resource) when { context.arguments.text == "c" };
@id("try-d") @shadow forbid (principal, action, resource) when { context.arguments.text == "d" };
"#;

#[tokio::test]
async fn every_call_is_counted_once_by_the_rule_that_makes_the_difference() {
    let texts = ["a", "b", "c", "d"];
    let pasts = [Past::Allowed, Past::Denied, Past::Asked, Past::Slow];
    let mut records = Vec::new();
    for number in 0..1_600_u64 {
        let user = format!("user-{}", number % 7);
        let (text, past) = (texts[number as usize % 4], pasts[(number / 4) as usize % 4]);
        records.push(record(number, &user, "test.read", text, past));
    }
    records.push(record(1_600, "ann", "test.gone", "a", Past::Allowed));
    let report = replay(records, RULES, LabelRules::Off, None).await;
    assert_eq!(report.calls, 1_200);
    assert_eq!((report.not_by_rules, report.unknown_tools), (400, 1));
    // Of each text a hundred were allowed, denied, asked: a and d now pass, b is denied, c asks.
    assert_eq!(report.newly_denied.calls, 200, "b, that was allowed or asked");
    assert_eq!(report.newly_asking.calls, 200, "c, that was allowed or denied");
    assert_eq!(report.newly_allowed.calls, 400, "a and d, that were denied or asked");
    assert_eq!(report.unchanged, 400);
    assert_eq!(report.would_have.calls, 300);
    let rules: Vec<&String> = report.newly_denied.rules.keys().collect();
    assert!(rules.len() == 1 && rules[0].contains("no-b"), "{rules:?}");
    let by_rule = report.newly_denied.rules.values().next().unwrap();
    assert_eq!((by_rule.callers.len(), by_rule.callers.values().sum::<u64>()), (7, 200));
    assert!(by_rule.examples.is_sorted_by_key(|example| example.seq));
    assert_eq!(by_rule.examples[0].seq, 2);
}

#[tokio::test]
async fn labels_come_from_the_records_before_even_those_before_since() {
    let mut records = vec![
        record(0, "ann", "test.write", "a", Past::Allowed),
        record(1, "ann", "test.read", "a", Past::Allowed),
        record(2, "bob", "test.read", "a", Past::Denied),
        record(3, "ann", "test.write", "a", Past::Allowed),
        record(4, "bob", "test.write", "a", Past::Allowed),
    ];
    let report = replay(records.clone(), "", LabelRules::Enforce, None).await;
    assert_eq!((report.newly_asking.calls, report.newly_allowed.calls, report.unchanged), (1, 1, 3));
    let since = Timestamp::from_millis(1_767_225_603_000);
    let report = replay(records.clone(), "", LabelRules::Enforce, Some(since)).await;
    assert_eq!((report.calls, report.newly_asking.calls), (2, 1));
    let report = replay(records.split_off(3), "", LabelRules::Enforce, None).await;
    assert!(report.is_unchanged());
}

#[tokio::test]
async fn what_was_not_recorded_is_not_guessed() {
    let long = "b".repeat(1000);
    let records = vec![
        record(0, "ann", "test.read", &long, Past::Allowed),
        record(1, "ann", "test.read", "b", Past::Allowed),
        record(2, "ann", "test.read", &long, Past::Denied),
    ];
    let report = replay(records.clone(), RULES, LabelRules::Off, None).await;
    assert_eq!((report.undecidable.calls, report.newly_denied.calls), (2, 1));
    assert!(!report.is_unchanged());
    let by_name = "forbid (principal, action == Action::\"test.read\", resource);";
    let report = replay(records, &format!("{RULES}{by_name}"), LabelRules::Off, None).await;
    assert_eq!((report.undecidable.calls, report.newly_denied.calls, report.unchanged), (0, 2, 1));
}
