use std::fs;

use aegis_core::{Timestamp, label::Label, label::TrustClass, tool::Mutability};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::policy::{
    targets::Targets,
    tests::{caller, compile, tools},
};

fn rejected(text: &str) -> String {
    match compile(text, LabelRules::Off) {
        Ok(_) => panic!("taken: {text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn mistakes_are_told_with_their_line_and_a_caret() {
    let parse = rejected("permit (principal, action, resource)\nwhen { context.time.hour < };\n");
    assert!(parse.starts_with("policies/test.cedar:2:28: "), "{parse}");
    assert!(parse.contains("2 | when { context.time.hour < };\n  |                            ^"), "{parse}");

    let attribute = rejected(
        "forbid (principal, action == Action::\"fs.read\", resource)\nwhen { context.arguments.paht == \"x\" };",
    );
    assert!(attribute.starts_with("policies/test.cedar:2:8: "), "{attribute}");
    assert!(attribute.contains("paht") && !attribute.contains("policy0"), "{attribute}");

    let action = rejected("\n\nforbid (principal, action == Action::\"fs.raed\", resource);");
    assert!(action.contains(":3:30: unrecognized action"), "{action}");

    let kind =
        rejected("forbid (principal, action == Action::\"fs.read\", resource) when { principal.tier == 3 };");
    assert!(kind.starts_with("policies/test.cedar:1:"), "{kind}");

    let optional = rejected(
        "forbid (principal, action == Action::\"fs.read\", resource) when { context.arguments.path == \"x\" };",
    );
    assert!(optional.contains("has"), "{optional}");
}

#[test]
fn annotations_and_ids_are_checked() {
    assert!(rejected("@shadw permit (principal, action, resource);").contains("did you mean `shadow`"));
    assert!(
        rejected("@approval(\"x\") permit (principal, action, resource);").contains("only before a forbid")
    );
    let twice = rejected(
        "@id(\"a\") forbid (principal, action, resource);\n// again\n@id(\"a\") forbid (principal, action, resource);",
    );
    assert!(twice.contains("policies/test.cedar:3:1") && twice.contains("test.cedar:1 (a)"), "{twice}");
    assert!(rejected("permit (principal == ?principal, action, resource);").contains("template"));
    let rules = compile(
        "// forbid (principal, action, resource);\nforbid (principal, action, resource);\n@id(\"b\")\n\
         @description(\"why\") forbid (principal, action == Action::\"fs.read\", resource);",
        LabelRules::Off,
    )
    .unwrap();
    let places: Vec<String> = rules.list().iter().map(|rule| rule.place()).collect();
    assert_eq!(places, ["policies/test.cedar:2 (test#1)", "policies/test.cedar:3 (b)"]);
    assert_eq!(rules.list()[1].tools, ["fs.read"]);
    assert_eq!(rules.about("fs.read").len(), 2);
    assert_eq!(rules.about("fs.write").len(), 1);
}

#[test]
fn all_mistakes_of_all_files_are_told_at_once() {
    let sources = [
        Source::new("a.cedar", "permit (principal, action, resource) when { 1 };"),
        Source::new("b.cedar", "forbid (principal, action == Action::\"nothing\", resource);"),
    ];
    let error = Rules::compile(&sources, &Schema::of(&tools()), LabelRules::Off).unwrap_err();
    let files: Vec<&str> = error.problems().iter().map(|problem| problem.file.as_str()).collect();
    assert!(files.contains(&"policies/a.cedar") && files.contains(&"policies/b.cedar"), "{error}");
}

#[test]
fn examples_are_checked_and_a_failed_one_names_its_line() {
    let policy = "forbid (principal, action == Action::\"fs.delete\", resource) when { principal.context == \"workspace\" };\n";
    let rules = compile(
        &format!("// deny: fs.delete {{\"path\": \"x\"}} as workspace\n// allow: fs.delete {{\"path\": \"x\"}} as ops\n{policy}"),
        LabelRules::Off,
    )
    .unwrap();
    assert_eq!(rules.examples().len(), 2);
    assert_eq!(rules.examples()[0].verdict, ExampleVerdict::Deny);
    assert_eq!(rules.examples()[0].by, "policies/test.cedar:3 (test#1)");

    let wrong = rejected(&format!("{policy}\n  // allow: fs.delete {{\"path\": \"x\"}} as workspace\n"));
    assert!(
        wrong.starts_with("policies/test.cedar:3:3: the example does not hold: expected allow"),
        "{wrong}"
    );
    assert!(rejected("// deny: fs.raed {}\n").contains("did you mean `fs.read`"));
    assert!(rejected("// deny: fs.read {\"paht\": 1}\n").contains("unknown field 'paht'"));

    let beside = [Source::new("a.cedar", policy), Source::new("a.examples", "# one\nask: fs.delete\n")];
    let error = Rules::compile(&beside, &Schema::of(&tools()), LabelRules::Off).unwrap_err();
    assert_eq!((error.problems()[0].file.as_str(), error.problems()[0].line), ("policies/a.examples", 2));
}

#[test]
fn rules_and_examples_about_a_server_that_is_not_there_wait() {
    let text = "// deny: notes.add {\"text\": \"x\"}\n@id(\"no-notes\") forbid (principal, action == Action::\"notes.add\", resource);\n";
    let rules = compile(text, LabelRules::Off).unwrap();
    let warnings: Vec<String> = rules.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].contains("`no-notes` waits") && warnings[1].contains("waits for `notes.add`"),
        "{warnings:?}"
    );
}

#[test]
fn examples_are_about_the_operators_rules_whatever_the_switch_says() {
    let text = "// allow: fs.write {\"path\": \"x\"} having EXTERNAL_UNTRUSTED\n";
    for mode in [LabelRules::Off, LabelRules::Shadow, LabelRules::Enforce] {
        compile(text, mode).unwrap();
    }
}

#[test]
fn a_directory_is_read_in_order_and_what_cannot_be_taken_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let load = || Rules::load(directory.path(), &Schema::of(&tools()), LabelRules::Off);
    assert!(Rules::load(&directory.path().join("none"), &Schema::of(&tools()), LabelRules::Off).is_ok());
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("b.cedar", "@id(\"second\") forbid (principal, action, resource);");
    write("a.cedar", "@id(\"first\") forbid (principal, action, resource);");
    write(".hidden.cedar", "nonsense");
    write("notes.txt", "nonsense");
    let ids: Vec<String> = load().unwrap().list().iter().map(|rule| rule.id.clone()).collect();
    assert_eq!(ids, ["first", "second"]);

    std::os::unix::fs::symlink(directory.path().join("notes.txt"), directory.path().join("c.cedar")).unwrap();
    assert!(load().unwrap_err().to_string().contains("c.cedar: it is no regular file"));
    fs::remove_file(directory.path().join("c.cedar")).unwrap();
    for name in ["d.cedar", "team"] {
        fs::create_dir(directory.path().join(name)).unwrap();
        assert!(load().unwrap_err().to_string().contains("directories are not looked into"));
        fs::remove_dir(directory.path().join(name)).unwrap();
    }
    write("f.CEDAR", "forbid (principal, action, resource);");
    assert!(load().unwrap_err().to_string().contains("small letters"));
    fs::remove_file(directory.path().join("f.CEDAR")).unwrap();
    fs::write(directory.path().join("e.cedar"), [0xff, 0xfe]).unwrap();
    assert!(load().unwrap_err().to_string().contains("UTF-8"));
    write("e.cedar", &" ".repeat((1 << 20) + 1));
    assert!(load().unwrap_err().to_string().contains("larger than 1 MiB"));
    fs::remove_file(directory.path().join("e.cedar")).unwrap();
    assert_eq!(load().unwrap().list().len(), 2);

    let one = directory.path().join("a.cedar");
    assert_eq!(Rules::load(&one, &Schema::of(&tools()), LabelRules::Off).unwrap().list().len(), 1);
}

#[test]
fn the_schema_can_be_read_by_people() {
    let text = Schema::of(&tools()).to_cedarschema().unwrap();
    for part in
        ["entity Caller", "action \"fs.delete\" in [", "\"destructive\"", "path?: String", "Set<String>"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}

#[test]
fn versions_change_with_the_rules_about_the_tool_and_with_no_others() {
    let version = |text: &str, mode| {
        let rules = compile(text, mode).unwrap();
        (rules.version_about("fs.read").map(str::to_owned), rules.version().to_owned())
    };
    let about_read = "@id(\"r\") forbid (principal, action == Action::\"fs.read\", resource);\n";
    let about_write = "@id(\"w\") forbid (principal, action == Action::\"fs.write\", resource);\n";
    let (one, all) = version(about_read, LabelRules::Off);
    let (same, more) = version(&format!("{about_read}{about_write}"), LabelRules::Enforce);
    assert_eq!(one, same);
    assert_ne!(all, more);
    assert_ne!(one, version(&format!("@shadow {about_read}"), LabelRules::Off).0);
    assert_eq!(version(about_write, LabelRules::Shadow).0, None);
    let rules = |mode| compile("", mode).unwrap().version_about("fs.write").map(str::to_owned);
    assert_ne!(rules(LabelRules::Shadow), rules(LabelRules::Enforce));
}

/// A policy as the model knows it.
#[derive(Debug, Clone)]
struct Modelled {
    effect: RuleEffect,
    shadow: bool,
    scope: Scope,
    condition: Condition,
}

#[derive(Debug, Clone)]
enum Scope {
    Any,
    Tool(usize),
    Tools(Vec<usize>),
    Group(&'static str),
}

#[derive(Debug, Clone, Copy)]
enum Condition {
    Always,
    Untrusted,
    Ann,
    UnderKeys,
    Morning,
    AnnAndUntrusted,
}

const GROUPS: [&str; 5] = ["read_only", "mutating", "destructive", "sending", "fs"];

impl Modelled {
    fn text(&self) -> String {
        let names = tools();
        let name = |index: &usize| format!("Action::\"{}\"", names[*index].name);
        let action = match &self.scope {
            Scope::Any => "action".to_owned(),
            Scope::Tool(index) => format!("action == {}", name(index)),
            Scope::Tools(indices) => {
                format!("action in [{}]", indices.iter().map(name).collect::<Vec<_>>().join(", "))
            }
            Scope::Group(group) => format!("action in Action::\"{group}\""),
        };
        let condition = match self.condition {
            Condition::Always => "true",
            Condition::Untrusted => "context.session.labels.contains(\"EXTERNAL_UNTRUSTED\")",
            Condition::Ann => "principal.user == \"ann\"",
            Condition::UnderKeys => {
                "context.arguments has path && context.arguments.path like \"/workspace/keys/*\""
            }
            Condition::Morning => "context.time.hour < 12",
            Condition::AnnAndUntrusted => {
                "principal.user == \"ann\" && context.session.labels.contains(\"EXTERNAL_UNTRUSTED\")"
            }
        };
        let (effect, approval) = match self.effect {
            RuleEffect::Permit => ("permit", ""),
            RuleEffect::Forbid => ("forbid", ""),
            RuleEffect::Ask => ("forbid", "@approval(\"why\") "),
        };
        let shadow = if self.shadow { "@shadow " } else { "" };
        format!("{shadow}{approval}{effect} (principal, {action}, resource) when {{ {condition} }};\n")
    }

    fn speaks_of(&self, tool: usize) -> bool {
        let spec = &tools()[tool];
        match &self.scope {
            Scope::Any => true,
            Scope::Tool(index) => *index == tool,
            Scope::Tools(indices) => indices.contains(&tool),
            Scope::Group("read_only") => !spec.mutability.mutates(),
            Scope::Group("mutating") => spec.mutability.mutates(),
            Scope::Group("destructive") => spec.mutability == Mutability::Destructive,
            Scope::Group("sending") => spec.name == "web.fetch",
            Scope::Group(_) => spec.name.starts_with("fs."),
        }
    }

    fn matches(&self, call: &Call) -> bool {
        self.speaks_of(call.tool)
            && match self.condition {
                Condition::Always => true,
                Condition::Untrusted => call.untrusted,
                Condition::Ann => call.ann,
                Condition::UnderKeys => call.under_keys && call.tool != 3,
                Condition::Morning => call.morning,
                Condition::AnnAndUntrusted => call.ann && call.untrusted,
            }
    }
}

#[derive(Debug, Clone, Copy)]
struct Call {
    tool: usize,
    ann: bool,
    untrusted: bool,
    under_keys: bool,
    morning: bool,
}

fn modelled() -> impl Strategy<Value = Modelled> {
    let scope = prop_oneof![
        Just(Scope::Any),
        (0..4_usize).prop_map(Scope::Tool),
        prop::collection::vec(0..4_usize, 1..3).prop_map(Scope::Tools),
        prop::sample::select(GROUPS.to_vec()).prop_map(Scope::Group),
    ];
    let condition = prop::sample::select(vec![
        Condition::Always,
        Condition::Untrusted,
        Condition::Ann,
        Condition::UnderKeys,
        Condition::Morning,
        Condition::AnnAndUntrusted,
    ]);
    let effect = prop::sample::select(vec![RuleEffect::Permit, RuleEffect::Forbid, RuleEffect::Ask]);
    (effect, prop::bool::weighted(0.2), scope, condition)
        .prop_map(|(effect, shadow, scope, condition)| Modelled { effect, shadow, scope, condition })
}

fn call() -> impl Strategy<Value = Call> {
    (0..4_usize, any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(tool, ann, untrusted, under_keys, morning)| Call { tool, ann, untrusted, under_keys, morning },
    )
}

fn judged(rules: &Rules, call: &Call) -> Option<Ruling> {
    let tool = &tools()[call.tool];
    let mut who = caller("workspace");
    if !call.ann {
        who.user = "bob".into();
    }
    let read =
        if call.untrusted { vec![Label::new(TrustClass::ExternalUntrusted, "test")] } else { Vec::new() };
    let labels = Arc::new(SessionLabels::of(&read));
    let arguments: Map<String, Value> = match (call.tool, call.under_keys) {
        (3, _) => json!({"url": "https://example.org/", "size": 10}),
        (_, true) => json!({"path": "keys//./a"}),
        (_, false) => json!({"path": "notes"}),
    }
    .as_object()
    .cloned()
    .unwrap();
    let now = if call.morning { "2026-01-05T08:00:00Z" } else { "2026-01-05T15:00:00Z" };
    let facts = Facts {
        caller: &who,
        labels: &labels,
        arguments: &arguments,
        targets: &Targets::of(tool, &arguments).unwrap(),
        egress: false,
        now: Timestamp::parse(now).unwrap(),
        hidden: &[],
    };
    rules.judge(tool, &facts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Slices and kept answers say what a plain reading of the whole set says.
    #[test]
    fn slices_and_kept_answers_agree_with_the_whole_set(
        policies in prop::collection::vec(modelled(), 0..8),
        calls in prop::collection::vec(call(), 1..12),
    ) {
        let text: String = policies.iter().map(Modelled::text).collect();
        let rules = compile(&text, LabelRules::Off).unwrap();
        // Twice: the second round finds kept answers.
        for call in calls.iter().chain(&calls) {
            let ruling = judged(&rules, call);
            let of = |effect, shadow| policies.iter().filter(move |one| one.effect == effect && one.shadow == shadow);
            let speaks = policies.iter().any(|one| one.speaks_of(call.tool));
            prop_assert_eq!(ruling.is_some(), speaks);
            let ruling = ruling.unwrap_or_default();
            let forbidden = of(RuleEffect::Forbid, false).any(|one| one.matches(call));
            let closed = of(RuleEffect::Permit, false).any(|one| one.speaks_of(call.tool))
                && !of(RuleEffect::Permit, false).any(|one| one.matches(call));
            prop_assert_eq!(ruling.forbidden.is_some(), forbidden || closed, "{:?} {}", call, text);
            let asks = of(RuleEffect::Ask, false).filter(|one| one.matches(call)).count();
            prop_assert_eq!(ruling.asks.len(), if forbidden || closed { 0 } else { asks });
            let permitted = policies.iter().any(|one| one.effect == RuleEffect::Permit && one.matches(call));
            let would_close = of(RuleEffect::Permit, true).any(|one| one.speaks_of(call.tool)) && !permitted;
            let would = of(RuleEffect::Forbid, true).chain(of(RuleEffect::Ask, true)).filter(|one| one.matches(call)).count();
            prop_assert_eq!(ruling.would_have.len(), would + usize::from(would_close));
            let matched = policies.iter().filter(|one| one.matches(call)).count();
            prop_assert_eq!(ruling.matched.len(), matched);
        }
    }

    /// No text makes the reader panic.
    #[test]
    fn any_text_is_taken_or_told(text in "[ -~\\n]{0,80}", example in "[ -~]{0,60}") {
        let _ = compile(&text, LabelRules::Off);
        let _ = compile(&format!("// deny: {example}\n"), LabelRules::Off);
    }
}

#[test]
fn only_so_many_answers_are_kept() {
    let rules = compile(
        "forbid (principal, action == Action::\"fs.read\", resource) when { principal.user == \"ann\" };",
        LabelRules::Off,
    )
    .unwrap();
    let labels = Arc::default();
    for number in 0..5000 {
        let mut who = caller("workspace");
        who.user = format!("user-{number}").as_str().into();
        assert!(!rules.closes(&tools()[0], false, &who, || Arc::clone(&labels)));
    }
    assert!(rules.closes(&tools()[0], false, &caller("workspace"), || Arc::clone(&labels)));
}
