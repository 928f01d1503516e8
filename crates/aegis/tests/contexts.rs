//! What operators do with security contexts, on real nodes.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    process::Output,
    time::{Duration, Instant, SystemTime},
};

use aegis_seal_client::Key;
use common::{Answer, TestNode, text, write_config};
use serde_json::{Value, json};

/// Long enough for any machine; a test that holds returns at once.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

fn context_file(node: &TestNode, name: &str, text: &str) -> String {
    let file = node.dir.path().join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn entries_about_nothing_are_told_when_they_are_applied() {
    let node = TestNode::start();
    let file = context_file(
        &node,
        "slips.yaml",
        "name: slips\ncapabilities:\n  - {tool_pattern: fs.raed}\ndeny_list: [\"fss.*\"]\n",
    );
    let applied = node.cli(&["context", "apply", &file]);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    let told = text(&applied.stderr);
    let grants = "warning: slips, /capabilities/0/tool_pattern: there is no tool `fs.raed`, so this grants nothing; did you mean `fs.read`?";
    let closes = "warning: slips, /deny_list/0: there is no tool `fss.*`, so this closes nothing; did you mean `fs.*`?";
    assert!(told.contains(grants) && told.contains(closes), "{told}");
    // In force all the same: the tools of MCP servers come and go.
    let again = json_of(&node.cli(&["context", "apply", &file, "--json"]));
    assert_eq!(again["changed"], false, "{again}");
    assert_eq!(again["warnings"][1]["pointer"], "/deny_list/0", "{again}");
}

#[test]
fn contexts_are_applied_shown_compared_and_taken_back() {
    let node =
        TestNode::with_config("  security_contexts: [{name: ours, capabilities: [{tool_pattern: fs.list}]}]");
    let file =
        context_file(&node, "editors.yaml", "name: editors\ncapabilities:\n  - {tool_pattern: fs.read}\n");
    let applied = node.cli(&["context", "apply", &file, "--json"]);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    let first = json_of(&applied)["new"].as_str().unwrap().to_owned();
    assert!(first.starts_with("editors@"), "{first}");
    let token = node.make_token("editors");
    node.call("fs.write", json!({"path": "a", "content": "x"}));
    assert_eq!(node.call_as(&token, "fs.read", json!({"path": "a"})).status, 200);
    let write = || node.call_as(&token, "fs.write", json!({"path": "b", "content": "x"}));
    assert_eq!(write().violation(), "ToolNotAllowed");

    // A caller sees the new version with its next call.
    context_file(
        &node,
        "editors.yaml",
        "name: editors\ncapabilities:\n  - {tool_pattern: fs.read}\n  - {tool_pattern: fs.write}\n",
    );
    let applied = node.cli(&["context", "apply", &file, "--json", "--drop"]);
    let second = json_of(&applied)["new"].as_str().unwrap().to_owned();
    assert_eq!(json_of(&applied)["old"], first.as_str());
    assert_eq!(write().status, 200);
    let again = json_of(&node.cli(&["context", "apply", &file, "--json"]));
    assert_eq!(again["changed"], false, "{again}");

    let listed = json_of(&node.cli(&["context", "list", "--json"]));
    let source = |name: &str| {
        let found = listed["contexts"].as_array().unwrap().iter().find(|context| context["name"] == name);
        found.unwrap()["source"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        (source("editors"), source("ours"), source("workspace")),
        ("applied".into(), "file".into(), "shipped".into())
    );
    let shown = text(&node.cli(&["context", "show", "editors"]).stdout);
    assert!(shown.contains(&second) && shown.contains("fs.write"), "{shown}");
    let shown = text(&node.cli(&["context", "show", "editors", "--version", &first]).stdout);
    assert!(shown.contains(&first) && !shown.contains("fs.write"), "{shown}");
    let diff = text(&node.cli(&["context", "diff", "editors"]).stdout);
    assert!(diff.contains(&format!("--- {first}\n+++ {second}")) && diff.contains("+"), "{diff}");
    assert!(diff.lines().any(|line| line.starts_with('+') && line.contains("fs.write")), "{diff}");

    // What was applied outlives a restart and a changed file.
    let (_, dir) = node.stop();
    let node = TestNode::on(dir);
    assert_eq!(node.call_as(&token, "fs.write", json!({"path": "c", "content": "x"})).status, 200);
    write_config(
        node.dir.path(),
        "  security_contexts: [{name: ours, capabilities: [{tool_pattern: fs.glob}]}]",
    );
    until("the file is taken in", || {
        text(&node.cli(&["context", "show", "ours"]).stdout).contains("fs.glob")
    });
    assert_eq!(node.call_as(&token, "fs.write", json!({"path": "d", "content": "x"})).status, 200);

    let deleted = node.cli(&["context", "delete", "editors"]);
    assert!(text(&deleted.stdout).contains("no longer in force"), "{}", text(&deleted.stdout));
    assert_eq!(node.call_as(&token, "fs.read", json!({"path": "a"})).violation(), "ToolNotAllowed");
    let actions: Vec<(Value, Value, Value)> = node
        .records()
        .iter()
        .map(|record| &record["entry"])
        .filter(|entry| entry["action"].as_str().is_some_and(|action| action.starts_with("context-")))
        .map(|entry| {
            (entry["action"].clone(), entry["detail"]["old"].clone(), entry["detail"]["new"].clone())
        })
        .collect();
    assert_eq!(
        actions,
        [
            (json!("context-applied"), Value::Null, json!(first)),
            (json!("context-applied"), json!(first), json!(second)),
            (json!("context-sessions-dropped"), Value::Null, json!(second)),
            (json!("context-deleted"), json!(second), Value::Null),
        ]
    );
}

#[test]
fn contexts_that_may_not_be_changed_are_not() {
    let node = TestNode::with_config("  security_contexts:\n    - name: ours\n      capabilities: []");
    let put = |name: &str, context: Value| {
        node.request("PUT", &format!("/v1/contexts/{name}"), Some(&node.token), Some(&context))
    };
    let file = put("ours", json!({"name": "ours"}));
    assert_eq!(file.status, 409, "{}", file.body);
    assert!(file.body.contains("config.yaml:6"), "the file and the line: {}", file.body);
    let own = put("aegis-system-operator", json!({"name": "aegis-system-operator"}));
    assert_eq!(own.status, 400, "{}", own.body);
    assert_eq!(put("one", json!({"name": "two"})).status, 400);
    let wrong = put("one", json!({"name": "one", "deny_list": ["fs*"], "capabilitys": []}));
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("capabilitys") && wrong.body.contains("capabilities"), "{}", wrong.body);
    assert_eq!(put("one", json!([{"name": "one"}, {"name": "two"}])).status, 400);
    let request =
        |method: &str, path: &str, token: &str| node.request(method, path, Some(token), None).status;
    assert_eq!(request("DELETE", "/v1/contexts/workspace", &node.token), 409);
    assert_eq!(request("DELETE", "/v1/contexts/nowhere", &node.token), 404);
    assert_eq!(request("GET", "/v1/contexts/nowhere", &node.token), 404);
    assert_eq!(request("GET", "/v1/contexts/workspace?version=workspace@000000000000", &node.token), 404);
    // Only operators look, and only operators change.
    let user = node.make_token("workspace");
    for (method, path) in [
        ("GET", "/v1/contexts"),
        ("GET", "/v1/contexts/workspace"),
        ("GET", "/v1/contexts/workspace/versions"),
        ("DELETE", "/v1/contexts/workspace"),
        ("POST", "/v1/contexts/workspace/drop-sessions"),
        ("GET", "/v1/policies"),
        ("POST", "/v1/policies/explain"),
    ] {
        assert_eq!(
            node.request(method, path, Some(&user), None).violation(),
            "OperatorOnly",
            "{method} {path}"
        );
    }
    let file = context_file(&node, "bad.yaml", "name: bad\ncapabilities:\n  - {tool_patern: fs.read}\n");
    let refused = node.cli(&["context", "apply", &file]);
    assert_eq!(refused.status.code(), Some(1));
    let shown = text(&refused.stderr);
    assert!(
        shown.contains("bad.yaml:3:") && shown.contains('^') && shown.contains("tool_pattern"),
        "{shown}"
    );
}

/// A session over signed envelopes.
struct Session<'a> {
    node: &'a TestNode,
    key: Key,
    token: String,
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

impl<'a> Session<'a> {
    fn open(node: &'a TestNode, workload: &str, context: &str) -> Self {
        let key = Key::fresh().unwrap();
        let body = key.attestation(workload, context);
        let attested = node.raw("POST", "/v1/seal/attest", None, JSON, &body);
        assert_eq!(attested.status, 200, "{}", attested.body);
        let token = attested.json()["security_token"].as_str().unwrap().to_owned();
        Self { node, key, token }
    }

    fn write(&self, path: &str) -> Answer {
        let arguments = json!({"path": path, "content": "x"});
        let payload = aegis_seal_client::call("fs.write", arguments.as_object().unwrap()).unwrap();
        let envelope = self.key.envelope(&self.token, &payload, SystemTime::now());
        self.node.raw("POST", "/v1/seal/invoke", None, JSON, &envelope)
    }
}

#[test]
fn a_signed_session_keeps_its_version_until_it_is_told_to_drop_it() {
    let node = TestNode::start();
    let apply = |tools: &str, more: &[&str]| {
        let file = context_file(
            &node,
            "agents.yaml",
            &format!("name: agents\ncapabilities: [{{tool_pattern: {tools}}}]\n"),
        );
        let applied = node.cli(&[&["context", "apply", &file], more].concat());
        assert!(applied.status.success(), "{}", text(&applied.stderr));
    };
    apply("fs.write", &[]);
    let enrolled = node.cli(&["seal", "enroll", "--context", "agents"]);
    let workload = text(&enrolled.stdout).trim().to_owned();
    let old = Session::open(&node, &workload, "agents");
    assert_eq!(old.write("a").status, 200);

    apply("fs.read", &[]);
    let new = Session::open(&node, &workload, "agents");
    assert_eq!(old.write("b").status, 200, "it keeps what it attested under");
    assert_eq!(new.write("c").status, 403, "and a new one goes by what is in force");

    let dropped = node.cli(&["context", "drop-sessions", "agents"]);
    assert!(dropped.status.success(), "{}", text(&dropped.stderr));
    let told = old.write("d");
    assert_eq!(told.status, 403, "{}", told.body);
    assert!(told.body.contains("attest again") || told.body.contains("no longer kept"), "{}", told.body);
    apply("fs.write", &["--drop"]);
    assert_eq!(Session::open(&node, &workload, "agents").write("e").status, 200);
}
