//! Tools that come after the policies, and change while the node runs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use aegis_core::{
    Label, ToolSpec, ViolationKind,
    caller::Tier,
    config::{LabelRules, ToolPattern},
    label::TrustClass,
    tool::{ApprovalRule, Mutability, Route, UPSTREAM_TAG},
};
use aegis_gates::{
    ArgumentsGate,
    policy::{Rules, Schema, Source},
};
use serde_json::{Map, Value, json};

fn tool(name: &str, input: Value) -> Arc<ToolSpec> {
    Arc::new(ToolSpec {
        name: name.to_owned().into(),
        aliases: Vec::new(),
        title: name.to_owned().into(),
        category: "fix".into(),
        description: "".into(),
        tags: vec![UPSTREAM_TAG.into()],
        tier: Tier::User,
        skip_judge: false,
        mutability: Mutability::ReadOnly,
        idempotent: false,
        approval: ApprovalRule::NotRequired,
        route: Route::Upstream,
        targets: Vec::new(),
        label: Label::new(TrustClass::ExternalUntrusted, "mcp:fix"),
        provenance: "".into(),
        input_schema: input,
        output_schema: Value::Null,
        structured_schema: Value::Null,
        examples: Vec::new(),
    })
}

fn text() -> Value {
    json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
}

fn compile(tools: &[Arc<ToolSpec>], expected: &[&str], policy: &str) -> Result<Rules, String> {
    let expected = expected.iter().map(|prefix| ToolPattern::Prefix((*prefix).to_owned())).collect();
    let schema = Schema::of(tools).expecting(expected);
    Rules::compile(&[Source::new("p.cedar", policy)], &schema, LabelRules::Off)
        .map_err(|error| error.to_string())
}

#[test]
fn a_rule_about_a_tool_that_is_to_come_waits_for_it() {
    let rule = r#"forbid (principal, action == Action::"fix.later", resource) when { context.arguments.text == "x" };"#;
    let here = [tool("fix.echo", text())];
    let waiting = compile(&here, &["fix."], rule).unwrap();
    assert_eq!((waiting.list().len(), waiting.warnings().len()), (0, 1));
    // A name that nobody claims is a slip of the pen, as ever.
    assert!(compile(&here, &[], rule).is_err());
    assert!(compile(&here, &["other."], rule).is_err());
    let there = [tool("fix.echo", text()), tool("fix.later", text())];
    assert_eq!(compile(&there, &["fix."], rule).unwrap().about("fix.later").len(), 1);
}

#[test]
fn what_a_rule_says_of_tools_that_are_there_holds_at_once() {
    let rule = r#"forbid (principal, action in [Action::"fix.later", Action::"fix.echo"], resource);"#;
    let rules = compile(&[tool("fix.echo", text())], &["fix."], rule).unwrap();
    assert_eq!(rules.about("fix.echo").len(), 1);
}

#[test]
fn a_changed_schema_is_the_one_that_counts() {
    let gate = ArgumentsGate::new([]);
    let check = |tool: &ToolSpec, arguments: &Value| {
        let mut arguments: Map<String, Value> = arguments.as_object().unwrap().clone();
        let checked = gate.check(tool, &mut arguments).map_err(|violation| violation.kind);
        (checked, Value::Object(arguments))
    };
    let before = tool("fix.echo", text());
    assert_eq!(check(&before, &json!({"text": "a"})).0, Ok(()));
    assert_eq!(check(&before, &json!({"text": 1})).0, Err(ViolationKind::InvalidArguments));
    let number = json!({"type": "object", "properties": {"text": {"type": "integer", "default": 3}, "n": {"type": ["null", "string"]}}});
    let after = tool("fix.echo", number);
    assert_eq!(check(&after, &json!({"text": 1})).0, Ok(()));
    // Nothing is filled in, and a null stays one: the server gets what was sent.
    assert_eq!(check(&after, &json!({"n": null})), (Ok(()), json!({"n": null})));
    assert_eq!(check(&before, &json!({"text": 1})).0, Err(ViolationKind::InvalidArguments));
}

#[test]
fn patterns_from_outside_take_no_longer_than_their_text() {
    let slow = json!({"type": "object", "properties": {"text": {"type": "string", "pattern": "^(a+)+$"}}});
    let mut arguments = json!({"text": format!("{}b", "a".repeat(5000))}).as_object().unwrap().clone();
    let refused = ArgumentsGate::new([]).check(&tool("fix.slow", slow), &mut arguments).unwrap_err();
    assert_eq!(refused.kind, ViolationKind::InvalidArguments);
}

#[test]
fn a_key_among_the_names_of_arguments_is_not_told_by_half() {
    let mut schema = text();
    schema["additionalProperties"] = false.into();
    let closed = tool("fix.closed", schema);
    let mut arguments = Map::from_iter([("text".to_owned(), json!("x"))]);
    arguments.insert(format!("{} ghp_0123456789abcdefghij", "x".repeat(110)), 1.into());
    let refused = ArgumentsGate::new([]).check(&closed, &mut arguments).unwrap_err();
    assert!(refused.message.contains("xx [redact") && refused.message.contains('…'), "{}", refused.message);
    assert!(!refused.message.contains("ghp_"), "{}", refused.message);
}
