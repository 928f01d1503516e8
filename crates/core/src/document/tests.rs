use std::{collections::BTreeMap, sync::LazyLock};

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::*;
use crate::quantity::{Size, Span};

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Sample {
    /// What it is called. And more.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    name: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    colour: Option<Colour>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 20))]
    count: Option<u32>,
    #[serde(default)]
    wait: Option<Span>,
    #[serde(default)]
    size: Option<Size>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    rule: Option<Rule>,
    #[serde(default)]
    open: Option<Open>,
    #[serde(default)]
    anything: Option<Value>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    /// Like blood.
    Red,
    Green,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Step {
    Run { command: String, within: Span },
    Ask(Question),
    Stop,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Question {
    prompt: String,
    #[serde(default)]
    choices: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Rule {
    All(bool),
    List(Vec<String>),
    Map(BTreeMap<String, Vec<String>>),
}

/// Leaves room for keys it does not know.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Open {
    #[serde(default)]
    instruction: String,
}

fn mistakes(text: &str) -> Vec<String> {
    match parse::<Sample>(text) {
        Ok(parsed) => panic!("{text:?} was taken: {:?}", parsed.value),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    }
}

fn only_mistake(text: &str) -> String {
    let mut all = mistakes(text);
    assert_eq!(all.len(), 1, "{text:?}: {all:#?}");
    all.remove(0)
}

#[test]
fn a_document_that_fits() {
    let parsed =
        parse::<Sample>("name: a-b\nversion: \"3.12\"\nwait: 1h30m\nrule: {git: [status]}\n").unwrap();
    assert_eq!(parsed.value.version.as_deref(), Some("3.12"));
    assert_eq!(parsed.value.wait, Some(Span::seconds(5400)));
    assert!(parsed.warnings.is_empty());
    assert!(parsed.is_written("/rule/git/0"));
    assert!(!parsed.is_written("/count"));
    let remark = parsed.diagnostic("/rule/git/0", "no".into());
    assert_eq!((remark.line, remark.column), (4, 14));
}

#[test]
fn each_mistake_says_what_to_write() {
    for (text, message) in [
        ("nme: a", "line 1, column 1: /nme: unknown key `nme`; did you mean `name`, which is missing?"),
        ("count: 3", "line 1, column 1: `name` is missing: What it is called"),
        ("name: a\ncuont: 3", "line 2, column 1: /cuont: unknown key `cuont`; did you mean `count`?"),
        (
            "name: a\nversion: 3.10",
            "line 2, column 10: /version: wants text, found the number `3.10`; put it in quotes: \"3.10\"",
        ),
        (
            "name: yes\nenv: {DEBUG: true}",
            "line 2, column 14: /env/DEBUG: wants text, found `true`; put it in quotes: \"true\"",
        ),
        (
            "name: a\ncolour: gren",
            "line 2, column 9: /colour: `gren` is not known here; write `green` or `red`; did you mean `green`?",
        ),
        ("name: a\ncolour: [red]", "line 2, column 9: /colour: wants `green` or `red`, found a list"),
        ("name: a\ncount: 25", "line 2, column 8: /count: `25` is too large; 20 at most"),
        (
            "name: a\ncount: \"5\"",
            "line 2, column 8: /count: wants a whole number, found text; take the quotes off",
        ),
        (
            "name: a\nwait: soon",
            "line 2, column 7: /wait: `soon` is no duration: write 30s, 5m, 1h30m or a number of seconds",
        ),
        (
            "name: a\nsize: 5 GB",
            "line 2, column 7: /size: `5 GB` is no size: write 512Mi, 1Gi or a number of bytes",
        ),
        (
            "name: A_b",
            "line 1, column 7: /name: `A_b`: use 1 to 63 lower-case letters, digits and hyphens, with a letter or \
             digit at both ends",
        ),
        ("name: a\ntags: x", "line 2, column 7: /tags: wants a list, found text; write it as a list, in [ ]"),
        ("name: a\nsteps: {}", "line 2, column 8: /steps: wants a list, found a mapping"),
        (
            "name: a\nsteps:\n  - {type: run, command: x, within: 5 parsecs}",
            "line 3, column 37: /steps/0/within: `5 parsecs` is no duration: write 30s, 5m, 1h30m or a number of seconds",
        ),
        (
            "name: a\nsteps:\n  - {type: rnu, command: x}",
            "line 3, column 12: /steps/0/type: `rnu` is not known here; write `run`, `ask` or `stop`; did you mean `run`?",
        ),
        (
            "name: a\nsteps:\n  - {command: x}",
            "line 3, column 5: /steps/0: `type` is missing: write `run`, `ask` or `stop`",
        ),
        (
            "name: a\nsteps:\n  - {type: run, command: x}",
            "line 3, column 5: /steps/0: `within` is missing: a duration such as 30s, 5m, 1h30m, or a number of seconds",
        ),
        (
            "name: a\nsteps:\n  - {type: stop, command: x}",
            "line 3, column 18: /steps/0/command: unknown key `command`",
        ),
        (
            "name: a\nrule: 3",
            "line 2, column 7: /rule: wants true or false or a list or a mapping, found the number `3`",
        ),
        (
            "name: a\nrule: [1]",
            "line 2, column 8: /rule/0: wants text, found the number `1`; put it in quotes: \"1\"",
        ),
        (
            "name: a\nrule: {git: status}",
            "line 2, column 13: /rule/git: wants a list, found text; write it as a list, in [ ]",
        ),
        ("- a", "line 1, column 1: wants a mapping, found a list"),
        ("just words", "line 1, column 1: wants a mapping, found text"),
    ] {
        assert_eq!(only_mistake(text), message, "{text}");
    }
}

#[test]
fn all_mistakes_at_once_in_reading_order() {
    assert_eq!(
        mistakes("name: A\ncount: 0\nsteps:\n  - {type: ask, promt: x}\n  - {type: stop}\nname: b\n1: x\n"),
        [
            "line 1, column 7: /name: `A`: use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit \
             at both ends",
            "line 2, column 8: /count: `0` is too small; 1 at least",
            "line 4, column 17: /steps/0/promt: unknown key `promt`; did you mean `prompt`, which is missing?",
            "line 6, column 1: /name: the key `name` is written twice; it stands in line 1 already",
            "line 7, column 1: keys are text: write \"1\" in quotes",
        ]
    );
}

#[test]
fn keys_that_nothing_reads_are_warned_of_where_there_is_room_for_them() {
    let parsed =
        parse::<Sample>("name: a\nopen: {instrucion: x}\nsteps: [{type: ask, prompt: x, choises: []}]")
            .unwrap();
    let warnings: Vec<String> = parsed.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "line 2, column 8: /open/instrucion: unknown key `instrucion`; did you mean `instruction`?",
            "line 3, column 32: /steps/0/choises: unknown key `choises`; did you mean `choices`?",
        ]
    );
}

#[test]
fn texts_that_are_no_document() {
    let long = "a".repeat(MAX_TEXT_BYTES + 1);
    let deep = format!("name: {}", "[".repeat(200));
    let wide = format!("name: a\nanything: [{}]", "1,".repeat(MAX_NODES));
    let key = format!("{}: 1", "k".repeat(300));
    for (text, part) in [
        ("", "line 1, column 1: the document is empty"),
        ("# nothing\n", "line 1, column 1: the document is empty"),
        ("---\n", "line 1, column 1: the document is empty"),
        ("name: a\n---\nname: b\n", "line 2, column 1: a second document begins here"),
        ("name: \"a", "this is no YAML"),
        ("name: [a", "line 1, column 9: /name: this is no YAML"),
        ("name: a\n\tcount: 1", "indent with spaces"),
        ("name: a\0", "line 1, column 8: a NUL character can't stand in YAML"),
        ("name: a\ncount: \u{1b}", "line 2, column 8: the control character U+001B"),
        (&long, "bytes; 1048576 is the limit"),
        (&deep, "nested more than 64 levels deep"),
        (&wide, "with its aliases expanded the document is too large"),
        (&key, "a key of 300 bytes; 256 is the limit"),
        ("name: *nowhere", "this is no YAML"),
        ("name: a\nanything: &a [*a]", "the alias stands inside what it stands for"),
        ("name: a\nanything: .inf", "`.inf` is not a number that can be used"),
        ("name: !mine a", "is not known; leave it out"),
        ("name: a\nanything: !!int x", "does not fit its value"),
        ("? [a, b]\n: c", "keys are text, not lists or mappings"),
        ("base: &b {name: a}\n<<: *b", "merge keys (`<<`) are not understood"),
        (": a", "a key is missing"),
        ("true: a", "keys are text: write \"true\" in quotes"),
    ] {
        let all = mistakes(text);
        assert!(all.iter().any(|message| message.contains(part)), "{part}: {all:?}");
        assert!(all.iter().all(|message| message.starts_with("line ") && message.len() < 400), "{all:?}");
    }
}

#[test]
fn aliases_can_be_used_but_not_multiplied() {
    let parsed = parse::<Sample>("name: &n a\nversion: *n\ntags: [*n, *n]").unwrap();
    assert_eq!(parsed.value.tags, ["a", "a"]);

    let mut laughs = "name: a\nanything:\n  l0: &l0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]\n".to_owned();
    for level in 1..10 {
        laughs.push_str(&format!(
            "  l{level}: &l{level} [{}]\n",
            vec![format!("*l{}", level - 1); 10].join(", ")
        ));
    }
    assert!(only_mistake(&laughs).contains("with its aliases expanded the document is too large"));

    let long = format!("name: a\nanything: [&t {}, {}]", "x".repeat(1 << 19), vec!["*t"; 1000].join(", "));
    assert!(only_mistake(&long).contains("with its aliases expanded the document is too large"));
}

#[test]
fn many_mistakes_are_counted_not_listed() {
    let text = format!("name: a\ntags: [{}]", "1, ".repeat(1000));
    let all = mistakes(&text);
    assert_eq!(all.len(), MAX_DIAGNOSTICS + 1);
    assert!(all[MAX_DIAGNOSTICS].contains("more; mend these first"), "{}", all[MAX_DIAGNOSTICS]);
}

#[test]
fn what_was_taken_out_moves_no_pointer() {
    let left = Left::from([("/a".into(), vec![1, 3]), ("/a/3/b~1c".into(), vec![0, 2])]);
    for (now, stands) in [
        ("", ""),
        ("/a", "/a"),
        ("/a/0", "/a/1"),
        ("/a/1/b~1c/1", "/a/3/b~1c/2"),
        ("/a/0/b~1c/1", "/a/1/b~1c/1"),
        ("/b/1", "/b/1"),
    ] {
        assert_eq!(place_in_document(now, &left), stands);
    }
}

#[test]
fn a_message_stays_in_its_line() {
    let all = mistakes("name: a\n\"x\\ny\\u202e\": 1\ncolour: \"re\\nd\"");
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|message| !message.contains(['\n', '\u{202e}'])), "{all:?}");
}

#[test]
fn rendered_with_the_line_and_a_caret() {
    let text = "name: a\nsteps:\n  - {type: stop, comand: x}\n\tx: 1\n";
    let diagnostic =
        |line, column| Diagnostic { pointer: "/steps/0".into(), line, column, message: "no".into() };
    assert_eq!(
        render(&[diagnostic(3, 18), diagnostic(4, 2)], text, "a.yaml"),
        "a.yaml:3:18: /steps/0: no\n  |\n3 |   - {type: stop, comand: x}\n  |                  ^\n\n\
         a.yaml:4:2: /steps/0: no\n  |\n4 |  x: 1\n  |  ^\n"
    );
    let wide = format!("{}!{}", "x".repeat(300), "y".repeat(300));
    let shown = diagnostic(1, 301).render(&wide, "a.yaml");
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() < 160));
    assert_eq!(lines[2].chars().position(|c| c == '!'), lines[3].chars().position(|c| c == '^'));
    assert_eq!(diagnostic(9, 1).render(text, "a.yaml"), "a.yaml:9:1: /steps/0: no\n");
}

#[test]
fn written_yaml_is_readable() {
    let value = json!({"name": "a", "version": "3.12", "big": 18_446_744_073_709_551_615_u64, "none": null,
        "text": "first\nsecond\n", "list": ["yes", {"a": "b: c"}], "empty": {}, "half": 0.5});
    assert_eq!(
        to_yaml(&value),
        "name: a\nversion: \"3.12\"\nbig: 18446744073709551615\nnone: null\ntext: |\n  first\n  second\n\
         list:\n  - \"yes\"\n  - a: \"b: c\"\nempty: {}\nhalf: 0.5\n"
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let text =
        || prop_oneof!["[a-z0-9:#*&!?|>%@`\"'{}\\[\\], .\\\\-]{0,12}", "[\\PC\n\t]{0,12}", any::<String>()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

static SAMPLE: LazyLock<Shape> = LazyLock::new(Shape::of::<Sample>);

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = SAMPLE.parse::<Sample>(&text);
    }

    /// Text out of the pieces YAML is made of gets further into the parser than arbitrary text.
    #[test]
    fn no_mixture_of_yaml_makes_it_panic(pieces in prop::collection::vec(prop::sample::select(vec![
        "name", "steps", "type", "run", ":", ": ", "- ", "? ", "\n", "\n  ", "\n    ", "[", "]", "{", "}", ",", "&a ", "*a",
        "!!str ", "!x ", "|\n", ">-\n", "\"", "'", "#", "\t", "---\n", "...\n", "%YAML 1.2\n", "1", "0x", "~", "é", "\u{feff}",
        "\r", "\u{85}", "\\", "<<",
    ]), 0..40)) {
        let text = pieces.concat();
        if let Err(mistakes) = SAMPLE.parse::<Sample>(&text) {
            prop_assert!(!mistakes.is_empty());
            for mistake in mistakes {
                prop_assert!(mistake.line >= 1 && mistake.column >= 1);
                prop_assert!(!mistake.to_string().contains('\n'));
                let _ = mistake.render(&text, "x");
            }
        }
    }

    #[test]
    fn what_is_written_reads_back_the_same(value in any_json()) {
        let text = to_yaml(&json!({"name": "a", "anything": value}));
        let parsed = SAMPLE.parse::<Sample>(&text).map_err(|mistakes| TestCaseError::fail(format!("{mistakes:?}\n{text}")))?;
        prop_assert_eq!(parsed.json().get("anything").cloned(), Some(value), "{}", text);
    }
}

/// Members that fit the sample and some that do not, in any mixture.
fn near_sample() -> impl Strategy<Value = Value> {
    let value = prop::sample::select(vec![
        json!("a"),
        json!("A b"),
        json!("x".repeat(64)),
        json!("red"),
        json!("5 m"),
        json!("10 MiB"),
        json!("5µs"),
        json!(0),
        json!(7),
        json!(7.0),
        json!(20.5),
        json!(99),
        json!(u64::MAX),
        json!(null),
        json!(true),
        json!([]),
        json!(["a", "b"]),
        json!([1]),
        json!({}),
        json!({"a": "b"}),
        json!({"a": 1}),
        json!([{"type": "run", "command": "x", "within": "5s"}]),
        json!([{"type": "run", "command": "x"}]),
        json!([{"type": "ask", "prompt": "?"}]),
        json!([{"type": "stop"}]),
        json!([{"type": "go"}]),
        json!({"type": "stop", "more": 1}),
        json!("\u{a0}5s"),
        json!("5 s\n"),
    ]);
    let key = prop::sample::select(vec![
        "name", "version", "colour", "count", "wait", "size", "tags", "env", "steps", "rule", "open",
        "anything", "nmae",
    ]);
    prop::collection::vec((key, value), 0..6).prop_map(|members| {
        let mut document = json!({"name": "a"});
        for (key, value) in members {
            document[key] = value;
        }
        document
    })
}

proptest! {
    #[test]
    fn a_glance_never_contradicts_the_validator(document in near_sample()) {
        let schema = SAMPLE.schema();
        let verdict = jsonschema::validator_for(schema).unwrap().is_valid(&document);
        if let Some(glance) = glance::fits(schema, &document) {
            prop_assert_eq!(glance, verdict, "{}", document);
        }
    }
}

#[test]
fn a_glance_ends_where_a_schema_leads_in_circles() {
    let circle = json!({"$ref": "#/$defs/one", "$defs": {"one": {"allOf": [{"$ref": "#/$defs/one"}]}}});
    assert_eq!(glance::fits(&circle, &json!({})), None);
}

#[test]
fn a_glance_is_enough_for_an_ordinary_configuration() {
    let text = "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {name: node-1}\nspec:\n  network: {listen: 127.0.0.1:1}\n  \
                limits: {max_concurrent_calls: 9}\n  audit: {reads: durable}\n  storage:\n    volumes:\n      - {name: src, \
                host_path: /srv, mount_path: /workspace, access_mode: read-only}\n  mcp_servers:\n    - {name: notes, \
                executable: notes, capabilities: [notes.add]}\n";
    let json = tree::read(text).unwrap().0.to_json();
    assert_eq!(glance::fits(&schema_of::<crate::config::NodeConfig>(), &json), Some(true));
    let contexts = tree::read(include_str!("../config/shipped_contexts.yaml")).unwrap().0.to_json();
    let schema = schema_of::<Vec<crate::config::security_context::SecurityContext>>();
    assert_eq!(glance::fits(&schema, &contexts), Some(true));
}
