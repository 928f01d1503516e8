//! The flow of an unmodified client, in the body styles of Python and of TypeScript, and what four published clients
//! make of our answers.

use aegis_seal_client::Key;
use serde_json::{Value, json};

use crate::{
    agent::{Agent, JSON, enrol},
    common::{Answer, TestNode},
};

#[derive(Debug, Clone, Copy)]
enum Style {
    /// `requests`: a space after `,` and `:`, everything beyond ASCII escaped.
    Python,
    /// `JSON.stringify`: compact, raw UTF-8.
    TypeScript,
}

/// One JSON text, members as listed.
enum Text<'a> {
    Object(Vec<(&'a str, Text<'a>)>),
    String(&'a str),
}

impl Style {
    fn write(self, text: &Text<'_>) -> String {
        match (self, text) {
            (_, Text::String(string)) => self.quote(string),
            (_, Text::Object(members)) => {
                let (comma, colon) = match self {
                    Self::Python => (", ", ": "),
                    Self::TypeScript => (",", ":"),
                };
                let members: Vec<String> = members
                    .iter()
                    .map(|(name, value)| format!("{}{colon}{}", self.quote(name), self.write(value)))
                    .collect();
                format!("{{{}}}", members.join(comma))
            }
        }
    }

    fn quote(self, string: &str) -> String {
        let plain = Value::from(string).to_string();
        match self {
            Self::TypeScript => plain,
            Self::Python => plain
                .chars()
                .map(|character| {
                    if character.is_ascii() {
                        return character.to_string();
                    }
                    let mut units = [0; 2];
                    let escaped =
                        character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}"));
                    escaped.collect()
                })
                .collect(),
        }
    }

    /// The length of the random part of a request's id.
    fn id(self, number: usize) -> String {
        match self {
            Self::Python => format!("req-{number:016x}"),
            Self::TypeScript => format!("req-{number:08x}"),
        }
    }

    fn attest(self, node: &TestNode, key: &Key, workload: &str, context: &str) -> Answer {
        let public = key.public();
        let body = self.write(&Text::Object(vec![
            ("public_key", Text::String(&public)),
            ("workload_id", Text::String(workload)),
            ("security_context", Text::String(context)),
        ]));
        node.raw("POST", "/v1/seal/attest", None, JSON, body.as_bytes())
    }

    /// As this language's clients write it: members in the order in which they were set, the payload not sorted.
    fn invoke(self, agent: &Agent<'_>, number: usize, tool: &str, arguments: &[(&str, &str)]) -> Answer {
        let id = self.id(number);
        let sorted: Value =
            arguments.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        let payload = json!({
            "jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": tool, "arguments": sorted},
        });
        let signed: Value = serde_json::from_slice(&agent.envelope(&payload)).unwrap();
        let member = |name: &str| signed[name].as_str().unwrap();
        let arguments = arguments.iter().map(|(name, value)| (*name, Text::String(value))).collect();
        let body = self.write(&Text::Object(vec![
            ("protocol", Text::String("seal/v1")),
            ("security_token", Text::String(member("security_token"))),
            ("signature", Text::String(member("signature"))),
            (
                "payload",
                Text::Object(vec![
                    ("jsonrpc", Text::String("2.0")),
                    ("id", Text::String(&id)),
                    ("method", Text::String("tools/call")),
                    (
                        "params",
                        Text::Object(vec![
                            ("name", Text::String(tool)),
                            ("arguments", Text::Object(arguments)),
                        ]),
                    ),
                ]),
            ),
            ("timestamp", Text::String(member("timestamp"))),
        ]));
        agent.send(body.as_bytes())
    }
}

/// What both Python clients hand to their caller, or raise.
fn python(answer: &Answer) -> Result<Value, String> {
    let Ok(body) = serde_json::from_str::<Value>(&answer.body) else { return Err("HTTP error".into()) };
    if body["status"] == "error" {
        return Err(format!(
            "SEAL Gateway Rejected: {}",
            body["error"]["message"].as_str().unwrap_or_default()
        ));
    }
    let payload = body.get("payload").cloned().unwrap_or_else(|| json!({}));
    if let Some(error) = payload.get("error") {
        return Err(format!("MCP Tool Error: {error}"));
    }
    Ok(payload.get("result").cloned().unwrap_or_else(|| json!({})))
}

/// What the TypeScript clients do.
fn typescript(answer: &Answer) -> Result<Value, String> {
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    if !(200..300).contains(&answer.status) {
        return Err(match body["error"]["message"].as_str() {
            Some(message) => format!("SEAL Gateway Rejected: {message}"),
            None => format!("SEAL Gateway error: HTTP {}", answer.status),
        });
    }
    if body["payload"].get("error").is_some() {
        return Err("MCP Tool Error".into());
    }
    match &body["payload"]["result"] {
        Value::Null => Ok(json!({})),
        // `result || {}`.
        falsy if *falsy == json!(0) || *falsy == json!("") || *falsy == json!(false) => Ok(json!({})),
        result => Ok(result.clone()),
    }
}

#[test]
fn python_and_typescript_clients_work_unmodified() {
    let node = TestNode::start();
    for style in [Style::Python, Style::TypeScript] {
        let workload = enrol(&node, "workspace", &["--uses", "1", "--ttl", "1h"]);
        let key = Key::fresh().unwrap();
        let answer = style.attest(&node, &key, &workload, "workspace");
        assert_eq!(answer.status, 200, "{style:?}: {}", answer.body);
        let body = answer.json();
        assert_eq!(body["status"], "success");
        let expires = body["expires_at"].as_str().unwrap();
        assert!(expires.ends_with('Z') && expires.len() == 24, "{expires}");
        let token = body["security_token"].as_str().unwrap().to_owned();
        let session = body["session_id"].as_str().unwrap().to_owned();
        let agent = Agent { node: &node, key, token, session };

        let content = "čaj \u{1f375}\u{2028}\"\\/\n\u{1}";
        let written = style.invoke(&agent, 0, "fs.write", &[("path", "tea/čaj.txt"), ("content", content)]);
        assert_eq!(written.status, 200, "{style:?}: {}", written.body);
        for number in 1..=100 {
            let answer = style.invoke(&agent, number, "fs.read", &[("path", "tea/čaj.txt")]);
            let body = answer.json();
            assert_eq!(answer.status, 200, "{style:?} {number}: {}", answer.body);
            assert_eq!(body["payload"]["result"]["content"], content);
            assert_eq!(body["payload"]["id"], style.id(number).as_str());
            assert!(body["payload"].get("error").is_none() && body.get("error").is_none(), "{body}");
            assert_eq!((&body["protocol"], &body["status"]), (&json!("seal/v1"), &json!("success")));
        }
    }
}

#[test]
fn every_client_gets_results_and_error_texts() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "read-only");
    node.call("fs.write", json!({"path": "a.txt", "content": "one\ntwo\n"}));
    let both = |answer: &Answer| {
        assert_eq!(python(answer), typescript(answer), "{}", answer.body);
        python(answer)
    };

    // The tool's own object, unwrapped.
    let read = both(&agent.call("fs.read", json!({"path": "a.txt"}))).unwrap();
    assert_eq!(read["content"], "one\ntwo\n");
    // A tool that answers with text gives an object with that text in it.
    let found = both(&agent.call("fs.grep", json!({"pattern": "two", "path": "/workspace"}))).unwrap();
    assert_eq!(found["result"], "a.txt:2:two");
    // A failure of the tool is data: the model can act on it.
    let missing = both(&agent.call("fs.read", json!({"path": "none"}))).unwrap();
    assert_eq!((&missing["isError"], &missing["error_kind"]), (&json!(true), &json!("NOT_FOUND")));
    assert!(missing["error"].as_str().unwrap().contains("does not exist"), "{missing}");
    // A refusal is raised, with its words.
    let denied = both(&agent.call("fs.delete", json!({"path": "a.txt"}))).unwrap_err();
    assert!(denied.starts_with("SEAL Gateway Rejected: ") && denied.contains("fs.delete"), "{denied}");
    let incomplete = both(&agent.call("fs.read", json!({}))).unwrap_err();
    assert!(incomplete.contains("required field 'path' is missing or null"), "{incomplete}");
    // What never reaches the door is raised too.
    let elsewhere = node.raw("POST", "/v1/seal/nowhere", None, JSON, b"{}");
    assert!(both(&elsewhere).is_err(), "{}", elsewhere.body);
    let wrong_host = node.raw("POST", "/v1/seal/invoke", None, &[("origin", "https://evil.example")], b"{}");
    assert!(both(&wrong_host).is_err(), "{}", wrong_host.body);
}

#[test]
fn a_list_shows_what_may_be_called() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "read-only");
    let answer = agent.send(&agent.envelope(&aegis_seal_client::list().unwrap()));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body = answer.json();
    let tools = body["payload"]["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fs.read") && !names.contains(&"fs.write"), "{names:?}");
    assert!(!names.contains(&"zaru.switch_mode"), "{names:?}");
    assert!(tools.iter().all(|tool| tool["inputSchema"]["type"] == "object"));
}

/// The crate that agents in Rust use.
#[tokio::test]
async fn the_rust_client_attests_again_when_its_session_ends() {
    let node = TestNode::with_config("  seal: {token_ttl: 7s}");
    let workload = enrol(&node, "workspace", &[]);
    let client =
        aegis_seal_client::Client::new(&format!("http://{}", node.address), &workload, "workspace").unwrap();
    let object = |value: Value| value.as_object().unwrap().clone();
    let written = object(json!({"path": "a", "content": "x"}));
    let answer = client.call("fs.write", &written).await.unwrap();
    assert!(!answer.is_error() && answer.call.is_some() && answer.label.is_some(), "{answer:?}");
    let first = client.attest().await.unwrap();
    // Five seconds before its end a session counts as over.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    let read = client.call("fs.read", &object(json!({"path": "a"}))).await.unwrap();
    assert_eq!(read.result["content"], "x");
    let sessions = node.request("GET", "/v1/seal/sessions", Some(&node.token), None).json();
    let ids: Vec<&str> = sessions["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|session| session["id"].as_str())
        .collect();
    assert!(ids.len() >= 3 && ids.contains(&first.session.as_deref().unwrap()), "{sessions}");
    assert!(client.tools().await.unwrap().iter().any(|tool| tool["name"] == "fs.read"));

    let refused = client.call("fs.read", &object(json!({"path": ".."}))).await.unwrap_err();
    let aegis_seal_client::Error::Refused(refused) = refused else { panic!("{refused}") };
    assert_eq!((refused.status, refused.code, refused.seal_code), (403, -32000, Some(2002)));
    assert_eq!(refused.violation.as_deref(), Some("PathTraversalAttempt"));
    let guessed =
        aegis_seal_client::Client::new(&format!("http://{}", node.address), "wl_guess", "workspace").unwrap();
    let refused = guessed.call("fs.read", &object(json!({"path": "a"}))).await.unwrap_err();
    let aegis_seal_client::Error::Refused(refused) = refused else { panic!("{refused}") };
    assert_eq!((refused.status, refused.violation.as_deref()), (401, Some("AttestationFailed")));
}
