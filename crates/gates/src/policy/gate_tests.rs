use aegis_core::{
    Door, Tier, Verdict,
    approval::Asker,
    config::{LabelRules, NodeConfig},
    tool::{ApprovalRule, Mutability, Route, Target},
    verdict::ShadowEffect,
};
use aegis_stores::DataDir;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::ArgumentsGate;

/// A tool of this name; paths, URLs and the like as its targets say.
pub(in crate::policy) fn tool(name: &'static str, mutability: Mutability, route: Route) -> Arc<ToolSpec> {
    let category = name.split('.').next().unwrap_or_default();
    let (properties, targets) = match route {
        Route::Upstream => (
            json!({"url": {"type": "string"}, "size": {"type": "integer", "default": 10}}),
            vec![Target::Url { argument: "url".into() }],
        ),
        _ => (
            json!({"path": {"type": "string"}, "content": {"type": "string"}, "depth": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}}}),
            vec![Target::Path { argument: "path".into() }],
        ),
    };
    Arc::new(ToolSpec {
        name: name.into(),
        aliases: Vec::new(),
        title: name.into(),
        category: category.into(),
        description: "for tests".into(),
        tags: Vec::new(),
        tier: Tier::User,
        skip_judge: false,
        mutability,
        idempotent: true,
        approval: ApprovalRule::NotRequired,
        route,
        targets,
        label: Label::new(TrustClass::ExternalUntrusted, "test"),
        provenance: "".into(),
        input_schema: json!({"type": "object", "properties": properties, "additionalProperties": false}),
        output_schema: json!({}),
        structured_schema: json!({}),
        examples: Vec::new(),
    })
}

pub(in crate::policy) fn tools() -> Vec<Arc<ToolSpec>> {
    vec![
        tool("fs.read", Mutability::ReadOnly, Route::Files),
        tool("fs.write", Mutability::Mutating, Route::Files),
        tool("fs.delete", Mutability::Destructive, Route::Files),
        tool("web.fetch", Mutability::ReadOnly, Route::Upstream),
    ]
}

pub(in crate::policy) fn caller(context: &str) -> Caller {
    Caller {
        tenant: "local".into(),
        user: "ann".into(),
        tier: Tier::User,
        context: context.into(),
        credential: "tok_1".into(),
        door: Door::Rest,
        session: None,
        pinned: None,
    }
}

pub(in crate::policy) fn context(text: Value) -> SecurityContext {
    serde_json::from_value(text).unwrap()
}

fn everything(name: &str) -> SecurityContext {
    context(json!({"name": name, "capabilities": [{"tool_pattern": "*"}]}))
}

pub(in crate::policy) fn compile(text: &str, label_rules: LabelRules) -> Result<Rules, RulesError> {
    Rules::compile(&[Source::new("test.cedar", text)], &Schema::of(&tools()), label_rules)
}

/// A gate that grants everything, with these policies.
fn gate(policies: &str) -> PolicyGate {
    let rules = compile(policies, LabelRules::Off).unwrap();
    PolicyGate::new(&[everything("workspace")], rules, LabelBook::forgetful())
}

pub(in crate::policy) fn arguments(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("{other}"),
    }
}

pub(in crate::policy) fn decide(gate: &PolicyGate, name: &str, given: Value) -> Decision {
    let tools = tools();
    let tool = tools.iter().find(|tool| tool.name == name).unwrap();
    let mut given = arguments(given);
    ArgumentsGate::new([tool.as_ref()]).check(tool, &mut given).unwrap();
    gate.decide(&caller("workspace"), tool, &given)
}

pub(in crate::policy) fn denied(decision: &Decision) -> Option<&Violation> {
    match &decision.verdict.verdict {
        Verdict::Deny(violation) => Some(violation),
        Verdict::Pass { .. } => None,
    }
}

fn sees(gate: &PolicyGate, name: &str) -> bool {
    tools().iter().any(|tool| tool.name == name && gate.sees(&caller("workspace"), tool))
}

#[test]
fn a_forbid_denies_and_names_itself_and_others_cost_nothing() {
    let gate = gate(
        "// about secrets\n@id(\"no-secrets\")\n@description(\"keys stay here\")\nforbid (principal, action == Action::\"fs.read\", resource)\n\
         when { context.arguments has path && context.arguments.path like \"/workspace/keys/*\" };",
    );
    for spelling in ["/workspace/keys/a", "keys/a", "/workspace//keys/./a", "./keys//a"] {
        let decision = decide(&gate, "fs.read", json!({"path": spelling}));
        let violation = denied(&decision).unwrap();
        assert_eq!(violation.kind, ViolationKind::PolicyForbids);
        assert_eq!(violation.rule.as_deref(), Some("policies/test.cedar:2 (no-secrets)"));
        assert!(violation.message.contains("no-secrets") && violation.message.contains("keys stay here"));
        assert!(decision.granted.is_none());
    }
    let open = decide(&gate, "fs.read", json!({"path": "notes"}));
    assert!(denied(&open).is_none());
    assert!(open.version.starts_with("workspace@") && open.version.contains("+rules@"), "{}", open.version);
    let other = decide(&gate, "fs.write", json!({"path": "keys/a"}));
    assert!(denied(&other).is_none());
    assert!(!other.version.contains("rules@"));
    assert_eq!(Some(other.version), other.verdict.version);
}

#[test]
fn contexts_grant_and_policies_only_restrict() {
    let rules = compile("permit (principal, action, resource);", LabelRules::Off).unwrap();
    let gate = PolicyGate::new(
        &[context(json!({"name": "workspace", "capabilities": [{"tool_pattern": "fs.read"}]}))],
        rules,
        LabelBook::forgetful(),
    );
    assert!(denied(&decide(&gate, "fs.read", json!({}))).is_none());
    assert_eq!(denied(&decide(&gate, "fs.write", json!({}))).unwrap().kind, ViolationKind::ToolNotAllowed);
}

#[test]
fn a_permit_closes_its_tool_to_what_it_does_not_match() {
    let gate = gate(
        "permit (principal, action == Action::\"fs.write\", resource)\n\
         when { context.arguments has path && context.arguments.path like \"/workspace/out/*\" };",
    );
    assert!(denied(&decide(&gate, "fs.write", json!({"path": "out/a"}))).is_none());
    let closed = decide(&gate, "fs.write", json!({"path": "a"}));
    assert_eq!(denied(&closed).unwrap().kind, ViolationKind::PolicyForbids);
    assert_eq!(denied(&closed).unwrap().rule.as_deref(), Some("policies/test.cedar:1 (test#1)"));
    assert!(denied(&decide(&gate, "fs.read", json!({"path": "a"}))).is_none());
    // Some call of it passes, so it is shown.
    assert!(sees(&gate, "fs.write"));
}

#[test]
fn what_is_closed_whatever_the_arguments_is_not_shown() {
    let gate = gate(
        "forbid (principal, action in Action::\"destructive\", resource);\n\
         permit (principal, action == Action::\"fs.write\", resource) when { principal.tier == \"operator\" };",
    );
    assert!(!sees(&gate, "fs.delete"));
    assert!(!sees(&gate, "fs.write"));
    assert!(sees(&gate, "fs.read"));
    assert!(denied(&decide(&gate, "fs.delete", json!({}))).is_some());
}

#[test]
fn an_approval_asks_and_a_plain_forbid_wins_over_it() {
    let gate = gate(
        "@id(\"ask\") @approval(\"look at the path\")\nforbid (principal, action in Action::\"mutating\", resource);\n\
         forbid (principal, action == Action::\"fs.delete\", resource);",
    );
    let asked = decide(&gate, "fs.write", json!({"path": "a"}));
    assert!(denied(&asked).is_none() && asked.granted.is_some());
    let ask = Ask {
        by: Asker::Policy,
        rule: "policies/test.cedar:1 (ask)".into(),
        reason: Some("look at the path".into()),
    };
    assert_eq!(asked.asks, [ask]);
    let refused = decide(&gate, "fs.delete", json!({"path": "a"}));
    assert!(denied(&refused).is_some() && refused.asks.is_empty());
    assert!(sees(&gate, "fs.write"));
}

#[test]
fn a_shadow_is_recorded_and_changes_nothing() {
    let gate = gate(
        "@shadow forbid (principal, action == Action::\"fs.read\", resource);\n\
         @shadow @approval(\"x\") forbid (principal, action == Action::\"fs.read\", resource);\n\
         @shadow permit (principal, action == Action::\"fs.write\", resource) when { context.arguments has path };",
    );
    let read = decide(&gate, "fs.read", json!({"path": "a"}));
    assert!(denied(&read).is_none() && read.asks.is_empty());
    let effects: Vec<ShadowEffect> = read.verdict.would_have.iter().map(|shadow| shadow.effect).collect();
    assert_eq!(effects, [ShadowEffect::Deny, ShadowEffect::AskApproval]);
    assert!(decide(&gate, "fs.write", json!({"path": "a"})).verdict.would_have.is_empty());
    let closed = decide(&gate, "fs.write", json!({}));
    assert!(denied(&closed).is_none());
    assert_eq!(closed.verdict.would_have.len(), 1);
    assert!(sees(&gate, "fs.read"));
}

#[test]
fn a_policy_that_cannot_be_evaluated_denies() {
    let gate = gate(
        "forbid (principal, action == Action::\"fs.read\", resource)\n\
         when { context.arguments has depth && context.arguments.depth * 9223372036854775807 > 5 };",
    );
    assert!(denied(&decide(&gate, "fs.read", json!({"depth": 1}))).is_some());
    let broken = decide(&gate, "fs.read", json!({"depth": 2}));
    assert!(denied(&broken).unwrap().message.contains("can't be evaluated"), "{broken:?}");
    assert!(denied(&decide(&gate, "fs.read", json!({}))).is_none());
    let unfit = decide(&gate, "fs.read", json!({"depth": u64::MAX}));
    assert!(denied(&unfit).unwrap().message.contains("`depth`"), "{unfit:?}");
}

#[test]
fn policies_see_caller_targets_and_time() {
    let gate = gate(
        "forbid (principal == Caller::\"local/ann\", action == Action::\"web.fetch\", resource)\n\
         when { context.hosts.contains(\"example.org\") && principal.context == \"workspace\" && principal.tier_rank < 1 };\n\
         forbid (principal, action == Action::\"fs.read\", resource) when { context.time.epoch < 1000 };",
    );
    assert!(denied(&decide(&gate, "web.fetch", json!({"url": "https://EXAMPLE.org./x"}))).is_some());
    assert!(denied(&decide(&gate, "web.fetch", json!({"url": "https://example.com/x"}))).is_none());
    assert!(denied(&decide(&gate, "fs.read", json!({}))).is_none());
    let labels = Arc::default();
    let early = Circumstances { labels: &labels, now: Timestamp::from_millis(500), hidden: &[] };
    let then = gate.decide_under(&caller("workspace"), &tools()[0], &Map::new(), &early);
    assert!(denied(&then).is_some());
}

#[tokio::test]
async fn the_shipped_rules_ask_once_untrusted_content_was_read() {
    let label = Label::new(TrustClass::ExternalUntrusted, "remote-http").from("https://example.org/");
    for (mode, asks, shadows) in
        [(LabelRules::Off, 0, 0), (LabelRules::Shadow, 0, 1), (LabelRules::Enforce, 1, 0)]
    {
        let gate =
            PolicyGate::new(&[everything("workspace")], compile("", mode).unwrap(), LabelBook::forgetful());
        for name in ["fs.write", "web.fetch"] {
            let before = decide(&gate, name, json!({}));
            assert!(before.asks.is_empty() && before.verdict.would_have.is_empty());
        }
        gate.observe(&caller("workspace"), &label).await.unwrap();
        for name in ["fs.write", "fs.delete", "web.fetch"] {
            let after = decide(&gate, name, json!({}));
            assert_eq!(
                (after.asks.len(), after.verdict.would_have.len()),
                (asks, shadows),
                "{mode:?} {name}"
            );
            assert!(denied(&after).is_none());
            assert_eq!(after.labels, [TrustClass::ExternalUntrusted]);
            assert!(after.asks.iter().all(|ask| ask.by == Asker::Labels));
        }
        let read = decide(&gate, "fs.read", json!({}));
        assert!(read.asks.is_empty() && !read.version.contains("rules@"));
        assert_eq!(gate.read_by(&caller("workspace")), std::slice::from_ref(&label));
    }
}

#[test]
fn the_shipped_rules_hold_against_the_schema() {
    let rules = Rules::compile(
        &[Source::new("label_rules.cedar", LABEL_RULES)],
        &Schema::of(&tools()),
        LabelRules::Off,
    );
    assert!(rules.unwrap().warnings().is_empty());
}

#[test]
fn a_policy_that_denies_everything_denies_everything() {
    let gate = gate("forbid (principal, action, resource);");
    for spec in tools() {
        assert!(!gate.sees(&caller("workspace"), &spec));
        assert!(denied(&decide(&gate, &spec.name, json!({}))).is_some());
    }
    gate.replace_rules(Rules::none());
    assert!(sees(&gate, "fs.read"));
}

#[tokio::test]
async fn whoever_waits_for_policies_is_woken_when_they_are_read_or_refused() {
    let gate = gate("");
    assert!(!gate.knows("no.such"));
    let read = std::cell::Cell::new(false);
    tokio::join!(gate.until_read(|_| read.get()), async {
        read.set(true);
        gate.replace_rules(Rules::none());
    });
    let unreadable = || RulesError::Unreadable {
        directory: "/nowhere".into(),
        source: std::io::Error::from(std::io::ErrorKind::NotFound),
    };
    tokio::join!(gate.until_read(|_| false), async { gate.refuse_rules(unreadable()) });
    // They can't be known before an operator has mended them.
    gate.until_read(|_| false).await;
}

#[test]
fn a_hidden_argument_makes_a_rule_undecidable_not_silent() {
    let gate = gate(
        "forbid (principal, action == Action::\"fs.write\", resource)\n\
         when { context.arguments has content && context.arguments.content like \"*secret*\" };\n\
         permit (principal, action == Action::\"fs.write\", resource) when { context.paths.contains(\"/workspace/a\") };",
    );
    let labels = Arc::default();
    let ask = |hidden: &[&str], given: Value| {
        let circumstances = Circumstances { labels: &labels, now: Timestamp::now(), hidden };
        let decision =
            gate.decide_under(&caller("workspace"), &tools()[1], &arguments(given), &circumstances);
        let blind: Vec<String> = decision.undecidable.iter().map(|rule| rule.id.clone()).collect();
        (denied(&decision).is_some(), blind)
    };
    assert_eq!(ask(&[], json!({"path": "a", "content": "secret"})), (true, vec![]));
    assert_eq!(ask(&["content"], json!({"path": "a", "content": "…"})), (false, vec!["test#1".to_owned()]));
    assert_eq!(ask(&["content"], json!({"path": "b"})), (true, vec!["test#1".to_owned()]));
    assert_eq!(ask(&["path"], json!({"path": "…"})), (false, vec!["test#2".to_owned()]));
}

#[tokio::test]
async fn a_session_keeps_the_version_it_was_opened_under() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let registry = Registry::open(&data).unwrap();
    let open = |contexts: Vec<SecurityContext>| {
        let registry = registry.clone();
        async move {
            PolicyGate::open(&contexts, Rules::none(), LabelBook::forgetful(), registry, Default::default())
                .await
                .unwrap()
        }
    };
    let read_only = context(json!({"name": "workspace", "capabilities": [{"tool_pattern": "fs.read"}]}));
    let gate = open(vec![everything("workspace"), everything("other")]).await;
    let mut pinned = caller("workspace");
    pinned.pinned = Some(version_of(&everything("workspace")));
    let write = |gate: &PolicyGate, caller: &Caller| gate.decide(caller, &tools()[1], &Map::new());
    gate.replace(&[read_only.clone(), everything("other")]).await.unwrap();
    assert!(denied(&write(&gate, &caller("workspace"))).is_some());
    let kept = write(&gate, &pinned);
    assert!(denied(&kept).is_none());
    assert_eq!(Some(kept.version.as_str()), pinned.pinned.as_ref().map(ContextVersion::as_str));

    // The same after a restart with another configuration.
    drop(gate);
    let gate = open(vec![read_only.clone()]).await;
    assert!(denied(&write(&gate, &pinned)).is_none());
    // A version is one of a context, not a way to another.
    let mut crossing = pinned.clone();
    crossing.context = "other".into();
    assert!(denied(&write(&gate, &crossing)).unwrap().hint.as_ref().unwrap().contains("attest again"));
    // Told to drop it, the session must attest again, now and after another restart.
    gate.retire(&"workspace".into()).await.unwrap();
    for gate in [gate, open(vec![read_only.clone()]).await] {
        let dropped = write(&gate, &pinned);
        assert_eq!(denied(&dropped).unwrap().kind, ViolationKind::ToolNotAllowed);
        assert!(denied(&dropped).unwrap().message.contains("no longer kept"));
        let mut current = caller("workspace");
        current.pinned = Some(version_of(&read_only));
        assert!(denied(&gate.decide(&current, &tools()[0], &Map::new())).is_none());
    }
    // What comes back in force can be held on to again.
    let gate = open(vec![everything("workspace")]).await;
    assert!(denied(&write(&gate, &pinned)).is_none());
    assert_eq!(registry.contexts(Some(&"workspace".into()), 10).await.unwrap().len(), 2);
}

#[test]
fn the_capabilitys_own_wish_for_approval_is_told() {
    let gate = PolicyGate::new(
        &[context(
            json!({"name": "workspace", "capabilities": [{"tool_pattern": "fs.*", "approval": "required"}]}),
        )],
        Rules::none(),
        LabelBook::forgetful(),
    );
    let granted = decide(&gate, "fs.write", json!({})).granted.unwrap();
    assert_eq!(granted.approval, Some(CapabilityApproval::Required));
    assert_eq!(granted.grant.rule, "security_contexts[workspace].capabilities[0]");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// What the deny list names stays denied, however the path or the host is spelled.
    #[test]
    fn a_denied_target_stays_denied(
        noise in prop::collection::vec(prop::sample::select(vec!["/", "//", "/./", "/.//"]), 4),
        upper in prop::collection::vec(any::<bool>(), 11),
        dot in any::<bool>(),
    ) {
        let gate = PolicyGate::new(
            &[context(json!({"name": "workspace", "capabilities": [{"tool_pattern": "*"}],
                "deny_list": ["fs.read:/workspace/keys", "web.fetch:example.org"]}))],
            Rules::none(),
            LabelBook::forgetful(),
        );
        let parts = ["workspace", "keys", "a", "b"];
        let path: String = parts.iter().zip(&noise).map(|(part, noise)| format!("{noise}{part}")).collect();
        let decision = decide(&gate, "fs.read", json!({"path": path}));
        prop_assert_eq!(denied(&decision).unwrap().kind, ViolationKind::ToolExplicitlyDenied);
        let host: String = "example.org"
            .chars()
            .zip(&upper)
            .map(|(c, upper)| if *upper { c.to_ascii_uppercase() } else { c })
            .collect();
        let url = format!("https://sub.{host}{}/x", if dot { "." } else { "" });
        let decision = decide(&gate, "web.fetch", json!({"url": url}));
        prop_assert_eq!(denied(&decision).unwrap().kind, ViolationKind::ToolExplicitlyDenied);
    }
}

#[test]
fn the_shipped_contexts_have_versions_that_tell_them_apart() {
    let contexts = NodeConfig::default().contexts();
    let set = ContextSet::compile(&contexts);
    for context in &contexts {
        let compiled = set.version(&version_of(context)).unwrap();
        assert_eq!(compiled.source.name, context.name);
    }
}

/// A moment is enough while they are being read; nothing but an operator helps when they can't be.
#[test]
fn a_tool_that_the_policies_were_not_read_with_is_closed() {
    let gate = gate("");
    let later = tool("fix.later", Mutability::ReadOnly, Route::Files);
    let there = arguments(json!({"path": "/workspace/a"}));
    let refused = || match gate.decide(&caller("workspace"), &later, &there).verdict.verdict {
        Verdict::Deny(violation) => violation,
        passed => panic!("{passed:?}"),
    };
    let soon = refused();
    assert_eq!((soon.kind, soon.retry_after_seconds), (ViolationKind::UpstreamUnavailable, Some(1)));
    gate.refuse_rules(compile("forbid", LabelRules::Off).unwrap_err());
    let never = refused();
    assert_eq!((never.kind, never.retry_after_seconds), (ViolationKind::UpstreamUnavailable, None));
    assert!(never.hint.unwrap().contains("aegis policy list"));
}
