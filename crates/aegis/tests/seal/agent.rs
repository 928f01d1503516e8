//! A workload with a key and a session, and the ways to put its envelopes on the wire.

use std::time::SystemTime;

use aegis_seal_client::Key;
use serde_json::{Map, Value, json};

use crate::common::{Answer, TestNode, text};

pub(crate) struct Agent<'a> {
    pub(crate) node: &'a TestNode,
    pub(crate) key: Key,
    pub(crate) token: String,
    pub(crate) session: String,
}

/// Enrols a workload for one context with the command line, and gives its id.
pub(crate) fn enrol(node: &TestNode, context: &str, more: &[&str]) -> String {
    let output = node.cli(&[&["seal", "enroll", "--context", context], more].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let workload = text(&output.stdout).trim().to_owned();
    assert!(workload.starts_with("wl_"), "{workload}");
    workload
}

pub(crate) fn attest(node: &TestNode, key: &Key, workload: &str, context: &str) -> Answer {
    node.raw("POST", "/v1/seal/attest", None, JSON, &key.attestation(workload, context))
}

pub(crate) const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

impl<'a> Agent<'a> {
    pub(crate) fn new(node: &'a TestNode, context: &str) -> Self {
        Self::of(node, &enrol(node, context, &[]), context)
    }

    pub(crate) fn of(node: &'a TestNode, workload: &str, context: &str) -> Self {
        let key = Key::fresh().unwrap();
        let answer = attest(node, &key, workload, context);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let body = answer.json();
        let member = |name: &str| body[name].as_str().unwrap().to_owned();
        Self { node, key, token: member("security_token"), session: member("session_id") }
    }

    pub(crate) fn envelope(&self, payload: &Value) -> Vec<u8> {
        self.key.envelope(&self.token, payload, SystemTime::now())
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.send(&self.envelope(&call(tool, &arguments)))
    }

    pub(crate) fn send(&self, body: &[u8]) -> Answer {
        self.node.raw("POST", "/v1/seal/invoke", None, JSON, body)
    }
}

pub(crate) fn call(tool: &str, arguments: &Value) -> Value {
    let arguments: &Map<String, Value> = arguments.as_object().unwrap();
    aegis_seal_client::call(tool, arguments).unwrap()
}

/// A call that every context may make.
pub(crate) fn harmless() -> Value {
    call("aegis.runtime.list", &json!({}))
}

pub(crate) fn seal_code(answer: &Answer) -> u64 {
    answer.json()["error"]["details"]["seal_code"].as_u64().unwrap_or_default()
}

/// Status, JSON-RPC code and violation of a refusal, which must have everything that clients look for.
pub(crate) fn refusal(answer: &Answer) -> (u16, i64, String) {
    let body = answer.json();
    assert_eq!(body["status"], "error", "{body}");
    assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    assert!(body.get("payload").is_none() && body.get("result").is_none(), "{body}");
    let violation = body["error"]["details"]["violation"].as_str().unwrap_or_default().to_owned();
    (answer.status, body["error"]["code"].as_i64().unwrap(), violation)
}
