use aegis_core::{
    Door, Label, Tier,
    tool::{Mutability, Route},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tool(approval: ApprovalRule) -> ToolSpec {
    ToolSpec {
        name: "test.act".into(),
        aliases: Vec::new(),
        title: "Act".into(),
        category: "test".into(),
        description: "Acts.".into(),
        tags: Vec::new(),
        tier: Tier::User,
        skip_judge: true,
        mutability: Mutability::Mutating,
        idempotent: false,
        approval,
        route: Route::Builtin,
        targets: Vec::new(),
        label: Label::node(),
        provenance: "".into(),
        input_schema: json!({"properties": {"path": {"type": "string"}, "count": {"type": "integer"}}}),
        output_schema: json!({}),
        structured_schema: json!({}),
        examples: Vec::new(),
    }
}

fn caller(user: &str) -> Caller {
    Caller {
        tenant: "local".into(),
        user: user.into(),
        tier: Tier::User,
        context: "workspace".into(),
        credential: "tok".into(),
        door: Door::Rest,
        session: None,
        pinned: None,
    }
}

#[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn askers(rule: ApprovalRule, capability: Option<CapabilityApproval>, arguments: Value) -> Vec<Asker> {
    let asks =
        reasons(&tool(rule), &object(arguments), capability, "contexts[x].capabilities[0]", Vec::new());
    asks.into_iter().map(|ask| ask.by).collect()
}

#[test]
fn who_asks() {
    use CapabilityApproval::{NotRequired, Required};
    let some = || ApprovalRule::RequiredFor { argument: "path".into(), values: vec!["delete".into()] };
    for (rule, capability, arguments, expected) in [
        (ApprovalRule::NotRequired, None, json!({}), vec![]),
        (ApprovalRule::MayRequire, None, json!({}), vec![]),
        (ApprovalRule::NotRequired, Some(Required), json!({}), vec![Asker::Context]),
        (ApprovalRule::Required, None, json!({}), vec![Asker::Tool]),
        // A capability lifts what the tool calls a default, and nothing else.
        (ApprovalRule::Required, Some(NotRequired), json!({}), vec![Asker::Tool]),
        (ApprovalRule::RequiredByDefault, None, json!({}), vec![Asker::Tool]),
        (ApprovalRule::RequiredByDefault, Some(NotRequired), json!({}), vec![]),
        (ApprovalRule::RequiredByDefault, Some(Required), json!({}), vec![Asker::Tool, Asker::Context]),
        (some(), None, json!({"path": "delete"}), vec![Asker::Tool]),
        (some(), Some(NotRequired), json!({"path": "delete"}), vec![Asker::Tool]),
        (some(), None, json!({"path": "list"}), vec![]),
    ] {
        assert_eq!(askers(rule.clone(), capability, arguments), expected, "{rule:?} {capability:?}");
    }
}

fn row(arguments: Value, covers_labels: bool) -> Standing {
    Standing {
        id: "standing:1".into(),
        tenant: "local".into(),
        user: "ann".into(),
        tool: "test.act".into(),
        arguments: object(arguments),
        only_named: false,
        covers_labels,
        until: Timestamp::from_millis(1000),
        note: None,
        created: Timestamp::from_millis(0),
        created_by: caller("boss"),
        revoked: None,
        revoked_by: None,
    }
}

#[test]
fn a_settled_question_is_not_asked_again() {
    let ask = |by| vec![Ask { by, rule: "r".into(), reason: None }];
    let answer = |rows: Vec<Standing>, user: &str, by, at: u64| {
        let gate = ApprovalGate::default();
        gate.replace(rows);
        let arguments = object(json!({"path": "a/b"}));
        let tool = tool(ApprovalRule::Required);
        gate.decide(&caller(user), &tool, &arguments, ask(by), Timestamp::from_millis(at))
    };
    let settled = Answer::Settled("standing:1".into());
    let any = || row(json!({}), false);
    assert_eq!(answer(vec![any()], "ann", Asker::Tool, 999), settled);
    assert_eq!(answer(vec![any()], "ann", Asker::Tool, 1000), Answer::Ask(ask(Asker::Tool)), "it is over");
    assert_eq!(answer(vec![any()], "bob", Asker::Tool, 0), Answer::Ask(ask(Asker::Tool)), "another user");
    assert_eq!(answer(vec![any()], "ann", Asker::Labels, 0), Answer::Ask(ask(Asker::Labels)));
    assert_eq!(answer(vec![row(json!({}), true)], "ann", Asker::Labels, 0), settled);
    let revoked = Standing { revoked: Some(Timestamp::from_millis(1)), ..any() };
    assert_eq!(answer(vec![revoked], "ann", Asker::Tool, 2), Answer::Ask(ask(Asker::Tool)));
    let elsewhere = row(json!({"path": {"prefix": "x/"}}), false);
    assert_eq!(answer(vec![elsewhere], "ann", Asker::Tool, 2), Answer::Ask(ask(Asker::Tool)));
}

#[test]
fn patterns_match_what_they_say() {
    let matches = |pattern: Value, arguments: Value| {
        let tool = tool(ApprovalRule::Required);
        ArgumentPattern::parse(&object(pattern)).unwrap().matches(&tool, &object(arguments))
    };
    assert!(matches(json!({}), json!({"path": "anything"})));
    assert!(matches(json!({"path": "a"}), json!({"path": "a", "count": 3})));
    assert!(!matches(json!({"path": "a"}), json!({"count": 3})), "an argument that is named must be there");
    assert!(!matches(json!({"count": 1}), json!({"count": "1"})));
    assert!(matches(json!({"path": {"equals": {"x": 1}}}), json!({"path": {"x": 1}})));
    assert!(matches(json!({"path": {"prefix": "notes/"}}), json!({"path": "notes/a/b"})));
    assert!(!matches(json!({"path": {"prefix": "notes/"}}), json!({"path": "notes2/a"})));
    let glob = |glob: &str, path: &str| matches(json!({"path": {"glob": glob}}), json!({"path": path}));
    assert!(glob("notes/*.md", "notes/a.md"));
    assert!(!glob("notes/*.md", "notes/sub/a.md"));
    assert!(glob("notes/**", "notes/sub/a.md"));
    assert!(glob("a?c", "abc") && !glob("a?c", "a/c") && !glob("a?c", "ac"));
    assert!(glob("**", "") && glob("*", "") && glob("", ""));
    assert!(!glob("", "x"));
}

#[test]
fn paths_are_places_however_they_are_written() {
    let mut tool = tool(ApprovalRule::Required);
    tool.targets = vec![Target::Path { argument: "path".into() }];
    let matches = |pattern: Value, path: &str| {
        let pattern = ArgumentPattern::parse(&object(json!({"path": pattern}))).unwrap();
        pattern.matches(&tool, &object(json!({"path": path})))
    };
    for prefix in ["/workspace/docs", "/workspace/docs/", "docs"] {
        let under = |path: &str| matches(json!({"prefix": prefix}), path);
        assert!(under("docs/a") && under("/workspace/docs/a/b") && under("./docs//a"), "{prefix}");
        assert!(!under("docs2/a") && !under("docs/../a") && !under("a"), "{prefix}");
    }
    for glob in ["/workspace/docs/*", "docs/*"] {
        let like = |path: &str| matches(json!({"glob": glob}), path);
        assert!(like("docs/a") && like("/workspace/./docs/a"), "{glob}");
        assert!(!like("docs/.") && !like("docs/a/b") && !like("docs"), "{glob}");
    }
    assert!(!matches(json!({"glob": "/workspace/*/notes"}), "/workspace/./notes"));
    assert!(!matches(json!({"glob": "**"}), &"x".repeat(5000)), "too long to compare");
}

#[test]
fn unclear_patterns_are_refused_when_made() {
    let error = |pattern: Value| ArgumentPattern::parse(&object(pattern)).unwrap_err();
    for unclear in [
        json!({"path": {}}),
        json!({"path": {"like": "x"}}),
        json!({"path": {"prefix": 1}}),
        json!({"path": {"prefix": "a", "glob": "b"}}),
    ] {
        assert_eq!(error(unclear.clone()), BadPattern::Unclear("path".into()), "{unclear}");
    }
    assert_eq!(error(json!({"path": {"prefix": ""}})), BadPattern::EmptyPrefix("path".into()));
    assert_eq!(error(json!({"path": "x".repeat(2000)})), BadPattern::TooLong("path".into()));
    let many: Map<String, Value> = (0..40).map(|n| (n.to_string(), json!(1))).collect();
    assert_eq!(ArgumentPattern::parse(&many).unwrap_err(), BadPattern::TooMany);
    let stranger = ArgumentPattern::parse(&object(json!({"pth": "x"}))).unwrap();
    let message = stranger.check(&tool(ApprovalRule::Required)).unwrap_err().to_string();
    assert!(message.contains("did you mean `path`?"), "{message}");
}

/// The plainest matcher there is; too slow to ship.
fn model(glob: &[char], text: &[char]) -> bool {
    match glob {
        [] => text.is_empty(),
        ['*', '*', rest @ ..] => (0..=text.len()).any(|at| model(rest, &text[at..])),
        ['*', rest @ ..] => {
            (0..=text.len()).take_while(|at| !text[..*at].contains(&'/')).any(|at| model(rest, &text[at..]))
        }
        ['?', rest @ ..] => {
            text.split_first().is_some_and(|(first, text)| *first != '/' && model(rest, text))
        }
        [wanted, rest @ ..] => {
            text.split_first().is_some_and(|(first, text)| first == wanted && model(rest, text))
        }
    }
}

proptest! {
    #[test]
    fn globs_agree_with_the_model(glob in "[a/*?]{0,6}", text in "[ab/]{0,8}") {
        let (glob, text): (Vec<char>, Vec<char>) = (glob.chars().collect(), text.chars().collect());
        prop_assert_eq!(glob_matches(&glob, &text), model(&glob, &text));
    }
}
