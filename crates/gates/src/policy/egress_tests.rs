//! Commands that domains are granted to count as sending; others don't.

use aegis_core::{
    config::LabelRules,
    tool::{Mutability, Route, Target},
};
use serde_json::json;

use super::{
    tests::{arguments, caller, context, denied, tool},
    *,
};

fn command() -> Arc<ToolSpec> {
    let plain = tool("cmd.run", Mutability::Destructive, Route::Exec);
    let targets = vec![Target::Command { command: "command".into(), args: "args".into() }];
    let input_schema = json!({"type": "object", "additionalProperties": false, "properties": {
        "command": {"type": "string"}, "args": {"type": "array", "items": {"type": "string"}}}});
    Arc::new(ToolSpec { targets, input_schema, ..ToolSpec::clone(&plain) })
}

/// `online` has domains for its commands, `offline` has none, `nowhere` has an empty list.
fn gate(policies: &str, label_rules: LabelRules) -> PolicyGate {
    let tools = [command(), tool("web.fetch", Mutability::ReadOnly, Route::Upstream)];
    let rules =
        Rules::compile(&[Source::new("test.cedar", policies)], &Schema::of(&tools), label_rules).unwrap();
    let contexts = [("online", json!(["example.org"])), ("offline", json!(null)), ("nowhere", json!([]))];
    let contexts = contexts.map(|(name, domains)| {
        let granted =
            json!({"tool_pattern": "*", "command_allowlist": ["make"], "domain_allowlist": domains});
        context(json!({"name": name, "capabilities": [granted]}))
    });
    PolicyGate::new(&contexts, rules, LabelBook::forgetful())
}

fn run(gate: &PolicyGate, who: &str) -> Decision {
    gate.decide(&caller(who), &command(), &arguments(json!({"command": "make"})))
}

#[test]
fn a_rule_about_sending_is_about_commands_that_reach_something() {
    let forbids = gate("forbid (principal, action in Action::\"sending\", resource);", LabelRules::Off);
    assert_eq!(denied(&run(&forbids, "online")).unwrap().kind, ViolationKind::PolicyForbids);
    assert!(!forbids.sees(&caller("online"), &command()));
    for quiet in ["offline", "nowhere"] {
        assert!(denied(&run(&forbids, quiet)).is_none(), "{quiet}");
        assert!(forbids.sees(&caller(quiet), &command()), "{quiet}");
    }
}

#[test]
fn a_permit_for_sending_closes_no_command_that_sends_nothing() {
    let permits = gate(
        "permit (principal, action in Action::\"sending\", resource) when { principal.user == \"eve\" };",
        LabelRules::Off,
    );
    assert_eq!(denied(&run(&permits, "online")).unwrap().kind, ViolationKind::PolicyForbids);
    assert!(denied(&run(&permits, "offline")).is_none());
}

#[tokio::test]
async fn the_shipped_rules_ask_about_both_when_a_command_can_send() {
    let label = Label::new(TrustClass::ExternalUntrusted, "remote-http");
    for (who, rules) in [
        ("online", &["untrusted-content-then-change", "untrusted-content-then-send"] as &[&str]),
        ("offline", &["untrusted-content-then-change"]),
    ] {
        let gate = gate("", LabelRules::Enforce);
        assert!(run(&gate, who).asks.is_empty(), "{who}");
        gate.observe(&caller(who), &label).await.unwrap();
        let asked = run(&gate, who);
        let asked: Vec<&str> = asked.asks.iter().map(|ask| ask.rule.as_str()).collect();
        let expected: Vec<String> =
            rules.iter().map(|rule| format!("spec.policy.label_rules ({rule})")).collect();
        assert_eq!(asked, expected, "{who}");
    }
}

#[test]
fn examples_can_say_that_a_command_reaches_something() {
    let text = "// deny: cmd.run {\"command\": \"make\"} reaching example.org\n// allow: cmd.run {\"command\": \"make\"}\n\
                forbid (principal, action in Action::\"sending\", resource);";
    assert_eq!(gate(text, LabelRules::Off).rules().examples().len(), 2);
}
