use std::{
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    document::{self, Diagnostic},
    manifest::agent::{Command, NetworkMode, RuntimeSource, Validator},
    quantity::Span,
    runtimes,
};

const NONE: [String; 0] = [];

fn corpus(directory: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/manifests").join(directory);
    let mut files: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn text_of(name: &str) -> String {
    corpus("valid").into_iter().find(|(path, _)| path.ends_with(name)).unwrap().1
}

fn is_agent(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("agent")
}

/// The manifest as it would be written back, and its warnings.
fn parse(path: &Path, text: &str) -> Result<(Value, Vec<Diagnostic>), Vec<Diagnostic>> {
    if is_agent(path) {
        let checked = agent::parse_for(text, &runtimes::registry(&[]))?;
        Ok((serde_json::to_value(checked.value).unwrap(), checked.warnings))
    } else {
        let checked = workflow::parse(text)?;
        Ok((serde_json::to_value(checked.value).unwrap(), checked.warnings))
    }
}

fn published(path: &Path) -> Value {
    schema(if is_agent(path) { SCHEMA_KEYS[0] } else { SCHEMA_KEYS[1] }).unwrap()
}

fn json_of(text: &str) -> Value {
    document::Shape::from_schema(json!(true)).parse::<Value>(text).unwrap().value
}

/// Compares with the sibling `.txt`; `UPDATE_CORPUS=1` writes it instead.
fn assert_listed(path: &Path, diagnostics: &[Diagnostic]) {
    let listed: String = diagnostics.iter().map(|diagnostic| format!("{diagnostic}\n")).collect();
    let expected = path.with_extension("txt");
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        fs::write(&expected, &listed).unwrap();
    }
    assert_eq!(listed, fs::read_to_string(&expected).unwrap_or_default(), "{}", path.display());
}

#[test]
fn valid_manifests_pass_without_a_word() {
    for (path, text) in corpus("valid") {
        let (_, warnings) = parse(&path, &text).unwrap_or_else(|mistakes| {
            panic!("{}", document::render(&mistakes, &text, &path.to_string_lossy()))
        });
        assert_eq!(warnings, [], "{}", path.display());
    }
}

#[test]
fn warned_manifests_pass_with_the_warnings_listed() {
    for (path, text) in corpus("warned") {
        let (_, warnings) = parse(&path, &text).unwrap_or_else(|mistakes| {
            panic!("{}", document::render(&mistakes, &text, &path.to_string_lossy()))
        });
        assert!(!warnings.is_empty(), "{}", path.display());
        assert_listed(&path, &warnings);
    }
}

#[test]
fn invalid_manifests_fail_with_the_mistakes_listed() {
    for (path, text) in corpus("invalid") {
        assert_listed(&path, &parse(&path, &text).expect_err(&path.to_string_lossy()));
    }
}

#[test]
fn the_published_schemas_judge_alike() {
    for directory in ["valid", "warned"] {
        for (path, text) in corpus(directory) {
            let validator = jsonschema::validator_for(&published(&path)).unwrap();
            let json = json_of(&text);
            let errors: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
            assert_eq!(errors, NONE, "{}", path.display());
        }
    }
}

#[test]
fn the_published_schemas_are_schemas_with_words() {
    for (key, title) in SCHEMA_KEYS.into_iter().zip(["AgentManifest", "WorkflowManifest"]) {
        let schema = schema(key).unwrap();
        assert!(jsonschema::meta::is_valid(&schema), "{key}");
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert_eq!(schema["title"], title);
        assert_eq!(schema["type"], "object");
        let mut silent = Vec::new();
        undescribed(&schema, &schema, "", &mut silent);
        assert_eq!(silent, NONE, "{key}: members without a description");
    }
    assert_eq!(schema("agent/manifest/v2"), None);
}

/// Members that say nothing of themselves, neither here nor in the definition they refer to. Tags are left out:
/// what `kind: Agent` means stands with the variant.
fn undescribed(root: &Value, schema: &Value, at: &str, silent: &mut Vec<String>) {
    if let Some(members) = schema.get("properties").and_then(Value::as_object) {
        for (name, member) in members {
            let target = member
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|reference| root.pointer(reference.trim_start_matches('#')));
            let described =
                [Some(member), target].iter().flatten().any(|schema| schema.get("description").is_some());
            let tag = member.get("const").is_some() || (name == "condition" && member.get("enum").is_some());
            if !described && !tag {
                silent.push(format!("{at}/{name}"));
            }
        }
    }
    match schema {
        Value::Object(object) => {
            for (keyword, value) in object {
                undescribed(root, value, &format!("{at}/{keyword}"), silent);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                undescribed(root, item, &format!("{at}/{index}"), silent);
            }
        }
        _ => {}
    }
}

#[test]
fn no_field_is_lost() {
    for (path, text) in corpus("valid") {
        let (value, _) = parse(&path, &text).unwrap();
        let again = document::to_yaml(&value);
        let (back, _) = parse(&path, &again).unwrap_or_else(|mistakes| panic!("{mistakes:#?}\n{again}"));
        assert_eq!(back, value, "{}", path.display());
        if path.to_string_lossy().ends_with("every-field.yaml") {
            assert_within(&json_of(&text), &value, "");
        }
    }
}

fn assert_within(written: &Value, kept: &Value, at: &str) {
    match (written, kept) {
        (Value::Object(written), Value::Object(kept)) => {
            for (key, value) in written {
                let here = format!("{at}/{key}");
                assert_within(value, kept.get(key).unwrap_or_else(|| panic!("{here} is lost")), &here);
            }
        }
        (Value::Array(written), Value::Array(kept)) => {
            assert_eq!(written.len(), kept.len(), "{at}");
            for (index, (written, kept)) in written.iter().zip(kept).enumerate() {
                assert_within(written, kept, &format!("{at}/{index}"));
            }
        }
        _ => assert_eq!(written, kept, "{at}"),
    }
}

#[test]
fn an_unknown_key_is_heard_of_wherever_it_stands() {
    for name in ["agent-every-field.yaml", "workflow-every-field.yaml", "workflow-nightly-report.yaml"] {
        let path = Path::new(name);
        let json = json_of(&text_of(name));
        let mut mappings = Vec::new();
        collect_mappings(&json, String::new(), &mut mappings);
        for at in mappings {
            // Maps whose keys are the author's own.
            let own = [
                "labels",
                "annotations",
                "input_data",
                "nested",
                "env",
                "context",
                "headers",
                "subcommand_allowlist",
                "input_schema",
                "output_schema",
                "output_template",
                "properties",
                "schema",
                "arguments",
                "states",
            ];
            let free = at.split('/').any(|segment| own.contains(&segment))
                && !at.starts_with("/spec/states/")
                || at.split('/').next_back().is_some_and(|last| own.contains(&last))
                || at.contains("/config")
                || at.contains("/arguments/");
            if free && at != "/spec/context/0" {
                continue;
            }
            let mut changed = json.clone();
            changed.pointer_mut(&at).and_then(Value::as_object_mut).unwrap().insert("zzzz".into(), json!(1));
            let heard = parse(path, &document::to_yaml(&changed));
            let expected = format!("{at}/zzzz");
            let (diagnostics, refused) = match heard {
                Ok((_, warnings)) => (warnings, false),
                Err(mistakes) => (mistakes, true),
            };
            assert!(diagnostics.iter().any(|d| d.pointer == expected), "{name} {at}: {diagnostics:?}");
            assert_eq!(refused, at.starts_with("/spec/states/"), "{name} {at}");
        }
    }
}

fn collect_mappings(value: &Value, at: String, mappings: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                collect_mappings(member, format!("{at}/{key}"), mappings);
            }
            mappings.push(at);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_mappings(item, format!("{at}/{index}"), mappings);
            }
        }
        _ => {}
    }
}

#[test]
fn a_runtime_the_node_lacks() {
    let text = text_of("agent-minimal.yaml");
    let rows = runtimes::registry(&[]);
    let said = |from: &str, to: &str| {
        let text = text.replace(from, to);
        match agent::parse_for(&text, &rows) {
            Ok(checked) => checked.warnings,
            Err(mistakes) => mistakes,
        }
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
    };
    assert_eq!(
        said("3.12", "3.13"),
        [
            "line 5, column 40: /spec/runtime/version: python `3.13` is no runtime of this node; it has 3.9, 3.10, 3.11, 3.12"
        ]
    );
    assert_eq!(
        said("python", "pyhton"),
        [
            "line 5, column 23: /spec/runtime/language: `pyhton` is no runtime of this node; it has go, javascript, python, \
          rust, typescript; did you mean `python`?"
        ]
    );
    assert_eq!(said("3.12", "3.9"), ["line 5, column 40: /spec/runtime/version: python 3.9 is deprecated"]);
    assert!(agent::parse(&text.replace("3.12", "3.13")).is_ok());
}

#[test]
fn what_an_agent_comes_to() {
    let spec = |name: &str| agent::parse(&text_of(name)).unwrap().value.spec;

    let minimal = spec("agent-minimal.yaml");
    assert_eq!(minimal.execution.iterations(), 1);
    assert_eq!(minimal.execution.max_iterations, 10);
    assert_eq!(minimal.security.network_mode(), NetworkMode::None);
    assert_eq!(minimal.security.resources.wall_clock(), Span::seconds(1800));
    assert_eq!(minimal.commands(), None);
    assert_eq!(
        minimal.runtime.source(),
        Some(RuntimeSource::Standard { language: "python", version: "3.12" })
    );

    let cleaner = spec("agent-csv-cleaner.yaml");
    assert_eq!(cleaner.execution.iterations(), 4);
    assert_eq!(cleaner.execution.validators().len(), 3);
    assert!(cleaner.commands().unwrap().get("python").unwrap().permits(Some("-m")));

    let judge = spec("agent-judge.yaml").commands().unwrap();
    assert_eq!(judge.get("pytest"), Some(&Command::Any));
    assert!(judge.get("npm").is_some_and(|npm| npm.permits(Some("test")) && !npm.permits(Some("publish"))));

    let builder = spec("agent-dispatchers.yaml").commands().unwrap();
    assert_eq!(builder.get("git"), None);
    assert_eq!(builder.get("make"), Some(&Command::Any));
    assert!(
        builder
            .get("cargo")
            .is_some_and(|cargo| cargo.permits(Some("test")) && !cargo.permits(Some("publish")))
    );

    let reporter = spec("agent-object-validation.yaml");
    assert!(reporter.delivery.is_some() && reporter.execution.delivery.is_none());
    assert!(matches!(
        reporter.execution.validators().as_slice(),
        [
            Validator::ExitCode { expected: 0, .. },
            Validator::Format { .. },
            Validator::JsonSchema { .. },
            Validator::Regex { .. },
            Validator::Script(_),
            Validator::Model(_)
        ]
    ));
}

#[test]
fn what_a_workflow_comes_to() {
    let parsed = |name: &str| workflow::parse(&text_of(name)).unwrap().value;
    let older = parsed("workflow-older-spellings.yaml");
    assert_eq!(older.metadata.version, "1.0.0");
    assert_eq!(older.spec.max_total_transitions, 50);
    assert_eq!(older.spec.storage.shared_volumes.len(), 1);
    let ask = &older.spec.states["ASK"];
    assert_eq!(ask.timeout(), Some(Span::seconds(60)));
    let workflow::Work::Human(human) = &ask.work else { panic!("{ask:?}") };
    assert_eq!(human.default_response(), Some("rejected"));
    assert_eq!(ask.transitions[0].condition, workflow::Condition::InputEqualsYes);
    let work = &older.spec.states["WORK"];
    assert_eq!(work.timeout(), Some(Span::seconds(300)));
    assert_eq!(work.transitions[0].condition, workflow::Condition::Always);
    let workflow::Work::Agent(agent) = &work.work else { panic!("{work:?}") };
    assert!(agent.volumes[0].read_only);
    assert!(older.spec.states["DONE"].is_terminal());
}

static AGENT: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema(SCHEMA_KEYS[0]).unwrap()).unwrap());
static WORKFLOW: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&schema(SCHEMA_KEYS[1]).unwrap()).unwrap());

/// Pulls a document apart in one place.
fn disturb(value: &mut Value, place: usize, with: &Value, count: &mut usize) -> bool {
    if *count == place {
        *value = with.clone();
        return true;
    }
    *count += 1;
    match value {
        Value::Object(members) => members.values_mut().any(|member| disturb(member, place, with, count)),
        Value::Array(items) => items.iter_mut().any(|item| disturb(item, place, with, count)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever stands in whatever place: no panic, and the verdict is the published schema's.
    #[test]
    fn any_value_in_any_place(
        agent in any::<bool>(),
        place in 0_usize..260,
        with in prop::sample::select(vec![
            json!(null), json!(true), json!(-1), json!(1.5), json!(""), json!("x"), json!("5 x"), json!("{{input.a}}"), json!([]),
            json!([1]), json!(["a"]), json!({}), json!({"type": "x"}), json!({"kind": "Human"}), json!({"a": {"b": []}}),
        ]),
    ) {
        let name = if agent { "agent-every-field.yaml" } else { "workflow-every-field.yaml" };
        let path = Path::new(name);
        let mut json = json_of(&text_of(name));
        disturb(&mut json, place, &with, &mut 0);
        let fits = if agent { &AGENT } else { &WORKFLOW }.is_valid(&json);
        match parse(path, &document::to_yaml(&json)) {
            Ok(_) => prop_assert!(fits),
            Err(mistakes) => {
                prop_assert!(!mistakes.is_empty());
                prop_assert!(mistakes.iter().all(|mistake| mistake.line > 0 && !mistake.message.is_empty()));
            }
        }
    }
}
