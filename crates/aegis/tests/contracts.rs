//! The catalog against the contracts in `corpus/contracts.jsonl`, and real answers against their schemas.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use std::{collections::BTreeMap, sync::Arc};

use aegis::node::{ActiveConfig, catalog};
use aegis_core::{ToolSpec, config::NodeConfig};
use common::{TestNode, web_server};
use serde_json::{Value, json};

/// The tools that this version must have.
const IMPLEMENTED: usize = 34;

/// An agent for the assistant tools: whoever asks for what a person must approve can't be that person.
const AGENT: &str = "  security_contexts:
    - name: assistant
      capabilities:
        - {tool_pattern: \"tool.*\", command_allowlist: [\"*\", bash, node, python3]}";

fn contracts() -> BTreeMap<String, Value> {
    include_str!("../../../corpus/contracts.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|contract| (contract["name"].as_str().unwrap().to_owned(), contract))
        .collect()
}

fn specs() -> Vec<Arc<ToolSpec>> {
    let dir = tempfile::tempdir().unwrap();
    let config = Arc::new(ActiveConfig::new(None, NodeConfig::default()));
    let catalog = catalog(&config, dir.path(), Arc::new(|| true)).unwrap();
    catalog.specs()
}

#[test]
fn contracts_hold_and_are_counted() {
    let contracts = contracts();
    assert_eq!(contracts.len(), 90);
    let mut mistakes = Vec::new();
    let mut implemented = 0;
    for spec in specs() {
        for name in spec.names() {
            match contracts.get(name) {
                Some(contract) => {
                    implemented += 1;
                    mistakes.extend(differences(&spec, contract).into_iter().map(|m| format!("{name}: {m}")));
                }
                None => mistakes.push(format!("{name}: there is no such contract")),
            }
        }
    }
    println!("{implemented} of {} contracts implemented", contracts.len());
    assert!(mistakes.is_empty(), "{mistakes:#?}");
    assert_eq!(implemented, IMPLEMENTED);
}

#[test]
fn the_count_of_the_catalog_is_by_name() {
    // 58 built-in tools and the mode switch; two more are claimed in places and named nowhere.
    let aegis = contracts().into_values().filter(|contract| contract.get("skip_judge").is_some()).count();
    assert_eq!(aegis, 59);
}

fn differences(spec: &ToolSpec, contract: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, ours: Value, theirs: Value| {
        if ours != theirs {
            found.push(format!("{what}: ours {ours}, contract {theirs}"));
        }
    };
    compare("tier", json!(spec.tier), contract["tier"].clone());
    if let Some(skip_judge) = contract.get("skip_judge") {
        // The mode switch never was in reach of a judge.
        if !skip_judge.is_null() {
            compare("skip_judge", json!(spec.skip_judge), skip_judge.clone());
        }
        compare("category", json!(spec.category), contract["category"].clone());
    }
    if let Some(mutability) = contract.get("mutability") {
        compare("mutates", json!(spec.mutability.mutates()), json!(mutability != "read_only"));
        compare("approval", json!(spec.approval), contract["approval"].clone());
    }
    if contract["provenance"]["in_output"] == true {
        compare("source", json!(spec.label.source), contract["provenance"]["source"].clone());
        compare("trust", json!(spec.label.trust), contract["provenance"]["trust_classification"].clone());
    }
    let schema = &spec.input_schema;
    compare(
        "additional arguments",
        schema.get("additionalProperties").cloned().unwrap_or(json!(true)),
        contract["additional_arguments"].clone(),
    );
    let parameters = contract["parameters"].as_array().unwrap();
    let names = |list: Vec<&str>| {
        let mut list = list;
        list.sort_unstable();
        json!(list)
    };
    let ours = schema["properties"].as_object().unwrap();
    compare(
        "arguments",
        names(ours.keys().map(String::as_str).collect()),
        names(parameters.iter().filter_map(|p| p["name"].as_str()).collect()),
    );
    let required = |flag: &Value| flag == &json!(true);
    compare(
        "required",
        names(schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()),
        names(
            parameters
                .iter()
                .filter(|p| required(&p["required"]))
                .filter_map(|p| p["name"].as_str())
                .collect(),
        ),
    );
    for parameter in parameters {
        let name = parameter["name"].as_str().unwrap();
        let ours = &schema["properties"][name];
        for (member, keyword) in [
            ("type", "type"),
            ("default", "default"),
            ("min", "minimum"),
            ("max", "maximum"),
            ("min_length", "minLength"),
            ("enum", "enum"),
            ("clamp", "x-clamp"),
        ] {
            // An unknown key is answered in band with the keys there are, so the schema must let it through.
            if (spec.name.as_ref(), name, member) == ("aegis.schema.get", "key", "enum") {
                continue;
            }
            // Counts can't be negative here, so our minimum of 0 says no more than the contract's silence.
            let silent = |value: &Value| value.is_null() || (member == "min" && value == &json!(0));
            let (ours, theirs) = (&ours[keyword], &parameter[member]);
            if silent(ours) && silent(theirs) {
                continue;
            }
            compare(&format!("{name}.{member}"), ours.clone(), theirs.clone());
        }
    }
    found
}

/// Arguments that make each tool succeed and, where it can, fail.
fn cases(web: &str) -> Vec<(&'static str, Value, Option<Value>)> {
    let page = format!("http://{web}/page");
    let missing = format!("http://{web}/missing");
    vec![
        (
            "fs.write",
            json!({"path": "a/b.txt", "content": "one\ntwo\n"}),
            Some(json!({"path": "a", "content": ""})),
        ),
        ("fs.read", json!({"path": "a/b.txt"}), Some(json!({"path": "none"}))),
        ("fs.list", json!({"path": "/workspace"}), Some(json!({"path": "none"}))),
        ("fs.create_dir", json!({"path": "d/e"}), Some(json!({"path": "a/b.txt"}))),
        ("fs.create.dir", json!({"path": "d/f"}), Some(json!({"path": "a/b.txt"}))),
        (
            "fs.edit",
            json!({"path": "a/b.txt", "target_content": "one", "replacement_content": "1"}),
            Some(json!({"path": "a/b.txt", "target_content": "three", "replacement_content": ""})),
        ),
        (
            "fs.multi_edit",
            json!({"path": "a/b.txt", "edits": [{"target_content": "two", "replacement_content": "2"}]}),
            Some(
                json!({"path": "a/b.txt", "edits": [{"target_content": "three", "replacement_content": ""}]}),
            ),
        ),
        (
            "fs.grep",
            json!({"pattern": "2", "path": "/workspace"}),
            Some(json!({"pattern": "(", "path": "/workspace"})),
        ),
        (
            "fs.glob",
            json!({"pattern": "*.txt", "path": "/workspace"}),
            Some(json!({"pattern": "[", "path": "/workspace"})),
        ),
        ("tool.local-file-read", json!({"path": "a/b.txt"}), Some(json!({"path": "none"}))),
        ("fs.delete", json!({"path": "d", "recursive": true}), Some(json!({"path": "none"}))),
        ("web.fetch", json!({"url": page}), Some(json!({"url": missing}))),
        ("tool.http-fetch", json!({"url": page}), None),
        ("web.search", json!({"query": "rust"}), None),
        ("tool.web-search", json!({"query": "rust"}), None),
        ("aegis.tools.list", json!({}), None),
        ("aegis.tools.search", json!({"query": "glob"}), None),
        ("aegis.schema.get", json!({"key": "agent/manifest/v1"}), Some(json!({"key": "nope"}))),
        ("aegis.schema.validate", json!({"kind": "agent", "manifest_yaml": "kind: Agent"}), None),
        ("aegis.system.info", json!({}), None),
        ("aegis.system.config", json!({}), None),
        ("aegis.runtime.list", json!({"language": "python"}), None),
        (
            "tool.approval-request",
            json!({"summary": "Delete the cache"}),
            Some(json!({"summary": "Delete the cache", "intentId": "intent:none"})),
        ),
        (
            "cmd.run",
            json!({"command": "ls", "args": ["-a"]}),
            Some(json!({"command": "there-is-no-such-program"})),
        ),
        (
            "tool.shell-command",
            json!({"command": "ls -a"}),
            Some(json!({"command": "there-is-no-such-program", "args": ["-a"]})),
        ),
        (
            "tool.exec",
            json!({"command": "pwd", "workingDir": "a"}),
            Some(json!({"command": "pwd", "workingDir": "not/there"})),
        ),
        ("tool.bash", json!({"script": "echo $((2 + 3))"}), None),
        ("tool.code-execution", json!({"language": "shell", "code": "echo 3"}), None),
        ("tool.process", json!({}), Some(json!({"operation": "inspect", "pid": 1}))),
        (
            "tool.fs-write-file",
            json!({"path": "w.txt", "content": "one\n"}),
            Some(json!({"path": "a", "content": ""})),
        ),
        (
            "tool.fs-append-file",
            json!({"path": "w.txt", "content": "two\n"}),
            Some(json!({"path": "a", "content": "x"})),
        ),
        (
            "tool.fs-apply-patch",
            json!({"path": "w.txt", "patch": "--- a/w.txt\n+++ b/w.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n"}),
            Some(json!({"path": "w.txt", "patch": "--- a/w.txt\n+++ b/w.txt\n@@ -1,1 +1,1 @@\n-none\n+1\n"})),
        ),
        (
            "tool.fs-rename-file",
            json!({"fromPath": "w.txt", "toPath": "x.txt"}),
            Some(json!({"fromPath": "none", "toPath": "y.txt"})),
        ),
        ("zaru.switch_mode", json!({"target_mode": "agentic", "reason": "An agent is needed."}), None),
    ]
}

#[test]
fn real_answers_match_the_output_schemas() {
    let web = web_server(|path| match path {
        "/page" => (200, "text/html", "<html><body><h1>Hello</h1><p>Some text.</p></body></html>".into()),
        path if path.starts_with("/search") => (
            200,
            "application/json",
            json!({"results": [{"title": "Rust", "url": "https://example.org/", "content": "A language"}]})
                .to_string(),
        ),
        _ => (404, "text/plain", "nothing here".into()),
    });
    let node = TestNode::with_config(&format!(
        "  egress: {{allow_private: [127.0.0.1]}}\n  web_search: {{engine: searxng, endpoint: \"http://{web}/search\"}}\n{AGENT}"
    ));
    let agent = node.make_token("assistant");
    let contracts = contracts();
    let cases = cases(&web);
    assert_eq!(cases.len(), IMPLEMENTED);
    for (tool, good, bad) in cases {
        let contract = &contracts[tool];
        let answer = settled(&node, &agent, tool, good);
        assert_eq!(answer["is_error"], false, "{tool}: {answer}");
        fits(tool, &contract["output"], &answer["result"]);
        assert!(answer["label"]["trust"].is_string(), "{tool} has no label");
        if let Some(bad) = bad {
            let answer = settled(&node, &agent, tool, bad);
            assert_eq!(answer["is_error"], true, "{tool}: {answer}");
            // Assistant tools have no failure shape of their own.
            let plain = json!({"type": "object", "required": ["tool", "error", "error_kind"]});
            fits(tool, contract.get("failure").unwrap_or(&plain), &answer["result"]);
            let kind = answer["result"]["error_kind"].as_str().unwrap_or_default().to_owned();
            assert!(aegis::explain::page(&kind).is_some(), "{tool}: no page for {kind}");
        }
    }
}

/// The answer of a call; where a person must agree first, the operator does.
fn settled(node: &TestNode, agent: &str, tool: &str, arguments: Value) -> Value {
    let token = if tool.starts_with("tool.") { agent } else { &node.token };
    let answer = node.call_as(token, tool, arguments);
    if answer.status != 202 {
        assert!(matches!(answer.status, 200 | 422), "{tool}: {}", answer.body);
        return answer.json();
    }
    let id = answer.json()["approval"]["id"].as_str().unwrap().to_owned();
    let decided =
        node.request("POST", &format!("/v1/approvals/{id}/approve"), Some(&node.token), Some(&json!({})));
    assert_eq!(decided.status, 200, "{tool}: {}", decided.body);
    let ended = node.request("GET", &format!("/v1/approvals/{id}?wait=60s"), Some(agent), None).json();
    let outcome = &ended["outcome"];
    assert!(outcome["value"].is_object(), "{tool}: {ended}");
    json!({"is_error": !outcome["failure"].is_null(), "result": outcome["value"], "label": outcome["label"]})
}

fn fits(tool: &str, schema: &Value, value: &Value) {
    let validator = jsonschema::validator_for(schema).unwrap();
    let mistakes: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(mistakes.is_empty(), "{tool}: {mistakes:?} in {value}");
}
