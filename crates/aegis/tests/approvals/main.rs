//! Approvals as people and agents meet them: a real node, asked and decided over every door.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

#[path = "../common/mod.rs"]
mod common;

mod cli;
mod flood;
mod labels;
mod mcp;
mod rest;

use common::{Answer, TestNode};
use serde_json::{Value, json};

/// A context in which writing needs a person, one whose holders decide for their tenant, and one that may nothing.
const CAREFUL: &str = "  security_contexts:
    - name: careful
      capabilities:
        - {tool_pattern: fs.write, path_allowlist: [/workspace], approval: required}
        - {tool_pattern: fs.delete, path_allowlist: [/workspace], approval: required}
        - {tool_pattern: fs.read, path_allowlist: [/workspace]}
    - name: deciding
      capabilities:
        - {tool_pattern: aegis.approvals}";

/// A node and an agent that needs approval to write.
struct Scene {
    node: TestNode,
    agent: String,
}

impl Scene {
    fn new() -> Self {
        Self::with("")
    }

    fn with(more: &str) -> Self {
        let node = TestNode::with_config(&format!("{CAREFUL}\n{more}"));
        let agent = token(&node, json!({"context": "careful", "user": "ann"}));
        Self { node, agent }
    }

    fn write(&self, path: &str) -> Answer {
        self.node.call_as(&self.agent, "fs.write", json!({"path": path, "content": "hello\n"}))
    }

    /// Parks a write, and gives its request's id.
    fn parked(&self, path: &str) -> String {
        let answer = self.write(path);
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.json()["approval"]["id"].as_str().unwrap().to_owned()
    }

    fn get(&self, token: &str, id: &str) -> Answer {
        self.node.request("GET", &format!("/v1/approvals/{id}"), Some(token), None)
    }

    /// Holds the line until nothing more will happen.
    fn ended(&self, id: &str) -> Value {
        let answer =
            self.node.request("GET", &format!("/v1/approvals/{id}?wait=30s"), Some(&self.agent), None);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn decide(&self, token: &str, id: &str, verb: &str) -> Answer {
        let body = if verb == "reject" { json!({"reason": "not there"}) } else { json!({}) };
        self.node.request("POST", &format!("/v1/approvals/{id}/{verb}"), Some(token), Some(&body))
    }

    fn approve(&self, id: &str) {
        let decided = self.decide(&self.node.token, id, "approve");
        assert_eq!(decided.status, 200, "{}", decided.body);
    }

    fn content(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.node.workspace().join(path)).ok()
    }
}

#[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn token(node: &TestNode, wanted: Value) -> String {
    let made = node.request("POST", "/v1/tokens", Some(&node.token), Some(&wanted));
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["token"].as_str().unwrap().to_owned()
}
