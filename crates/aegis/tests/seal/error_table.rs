//! The documented table of refusals, row by row over HTTP.

use std::time::{Duration, SystemTime};

use aegis_seal_client::Key;
use serde_json::{Value, json};

use crate::{
    agent::{Agent, call, harmless, refusal, seal_code},
    common::{TestNode, wait_until},
};

#[test]
fn missing_or_null_arguments() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    for (tool, arguments, field) in [
        ("fs.read", json!({}), "path"),
        ("fs.read", json!({"path": null}), "path"),
        ("fs.write", json!({"path": "a"}), "content"),
        ("aegis.schema.validate", json!({"kind": "agent"}), "manifest_yaml"),
        ("web.fetch", json!({}), "url"),
    ] {
        let answer = agent.call(tool, arguments);
        assert_eq!(refusal(&answer), (422, -32602, "InvalidArguments".into()), "{tool}");
        let body = answer.json();
        let message =
            format!("Invalid tool arguments: required field '{field}' is missing or null for tool '{tool}'");
        assert_eq!(body["error"]["message"], message.as_str());
        assert!(body["error"]["data"].is_null() && body["error"].get("data").is_some(), "{body}");
        assert_eq!(body["jsonrpc"], "2.0");
        assert!(body["id"].as_str().unwrap().starts_with("req-"), "{body}");
    }
    // Nothing at all is an empty object.
    let mut payload = harmless();
    payload["params"].as_object_mut().unwrap().remove("arguments");
    assert_eq!(agent.send(&agent.envelope(&payload)).status, 200);
}

#[test]
fn malformed_envelopes_and_missing_tool_names() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    let good: Value = serde_json::from_slice(&agent.envelope(&harmless())).unwrap();
    let mut bodies: Vec<(String, Vec<u8>)> = Vec::new();
    for text in ["", "{", "null", "[]", "\"envelope\"", "{}", "\u{feff}{}", "{\"protocol\":\"seal/v1\"}"] {
        bodies.push((text.into(), text.as_bytes().to_vec()));
    }
    bodies.push(("not UTF-8".into(), b"{\"protocol\":\"\xff\"}".to_vec()));
    for member in ["protocol", "security_token", "signature", "payload", "timestamp"] {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(member);
        bodies.push((format!("without {member}"), without.to_string().into_bytes()));
        for wrong in [json!(null), json!([]), json!(true)] {
            let mut mistyped = good.clone();
            mistyped[member] = wrong.clone();
            bodies.push((format!("{member} {wrong}"), mistyped.to_string().into_bytes()));
        }
    }
    for (member, wrong) in [
        ("protocol", "seal/v2"),
        ("protocol", "smcp/v1"),
        ("timestamp", "yesterday"),
        ("timestamp", "2026-02-17T14:32:01"),
        ("timestamp", "2026-02-17 14:32:01Z"),
    ] {
        let mut changed = good.clone();
        changed[member] = wrong.into();
        bodies.push((format!("{member} {wrong}"), changed.to_string().into_bytes()));
    }
    // These are signed; what is signed is no call.
    for payload in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {}}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "", "arguments": {}}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 7, "arguments": {}}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fs.read", "arguments": []}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "fs.read", "params": {"path": "a"}}),
        json!({"jsonrpc": "1.0", "id": 1, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 1}),
    ] {
        bodies.push((payload.to_string(), agent.envelope(&payload)));
    }
    for (what, body) in bodies {
        let answer = agent.send(&body);
        assert_eq!(refusal(&answer), (400, -32600, "MalformedEnvelope".into()), "{what}: {}", answer.body);
        assert_eq!(seal_code(&answer), 1000, "{what}");
    }
}

#[test]
fn expired_sessions_and_bad_signatures() {
    let node = TestNode::with_config("  seal: {token_ttl: 2s}");
    let agent = Agent::new(&node, "workspace");
    let refused = |body: &[u8], violation: &str, code: u64, what: &str| {
        let answer = agent.send(body);
        assert_eq!(refusal(&answer), (401, -32000, violation.into()), "{what}: {}", answer.body);
        assert_eq!(seal_code(&answer), code, "{what}");
    };
    let good: Value = serde_json::from_slice(&agent.envelope(&harmless())).unwrap();
    let forged = "SignatureVerificationFailed";
    let mut tampered = good.clone();
    tampered["payload"]["params"]["name"] = "fs.delete".into();
    refused(tampered.to_string().as_bytes(), forged, 1001, "another tool");
    let mut later = good.clone();
    later["timestamp"] = json!("2099-01-01T00:00:00.000Z");
    assert_eq!(agent.send(later.to_string().as_bytes()).status, 401, "another time");
    for signature in ["", "AAAA", "!", good["signature"].as_str().unwrap().trim_end_matches('=')] {
        let mut changed = good.clone();
        changed["signature"] = signature.into();
        refused(changed.to_string().as_bytes(), forged, 1001, signature);
    }
    let other = Key::fresh().unwrap().envelope(&agent.token, &harmless(), SystemTime::now());
    refused(&other, forged, 1001, "another key");
    for (what, at) in [
        ("stale", SystemTime::now() - Duration::from_secs(120)),
        ("from the future", SystemTime::now() + Duration::from_secs(120)),
    ] {
        let answer = agent.send(&agent.key.envelope(&agent.token, &harmless(), at));
        assert_eq!(answer.status, 401, "{what}: {}", answer.body);
        assert_eq!(seal_code(&answer), 1003, "{what}");
    }
    let stranger = agent.key.envelope("eyJhbGciOiJub25lIn0.e30.", &harmless(), SystemTime::now());
    assert_eq!(agent.send(&stranger).status, 401);
    // None of this has ended the session; its own time does.
    wait_until(|| agent.call("aegis.runtime.list", json!({})).status != 200);
    refused(&agent.envelope(&harmless()), "SessionExpired", 1003, "expired");
}

#[test]
fn policy_violations_and_inactive_sessions() {
    let node = TestNode::with_config(
        "  security_contexts:\n    - name: tight\n      capabilities:\n        - {tool_pattern: fs.read, path_allowlist: [/workspace/open]}\n        \
         - {tool_pattern: fs.write, path_allowlist: [/workspace]}\n        - {tool_pattern: web.fetch, domain_allowlist: [example.org]}\n        \
         - {tool_pattern: aegis.runtime.list, rate_limit: {calls: 1, per_seconds: 3600}}\n      deny_list: [fs.write]",
    );
    let agent = Agent::new(&node, "tight");
    agent.call("aegis.runtime.list", json!({}));
    for (tool, arguments, violation, code) in [
        ("fs.list", json!({"path": "/workspace"}), "ToolNotAllowed", 2000),
        ("no.such.tool", json!({}), "ToolNotFound", 2000),
        ("aegis.system.info", json!({}), "ToolNotAllowed", 2000),
        ("fs.write", json!({"path": "a", "content": ""}), "ToolExplicitlyDenied", 2001),
        ("fs.read", json!({"path": "closed/a"}), "PathOutsideBoundary", 2002),
        ("fs.read", json!({"path": "open/../closed"}), "PathTraversalAttempt", 2002),
        ("web.fetch", json!({"url": "https://example.com/"}), "DomainNotAllowed", 2004),
        ("aegis.runtime.list", json!({}), "RateLimitExceeded", 2005),
    ] {
        let answer = agent.call(tool, arguments);
        assert_eq!(refusal(&answer), (403, -32000, violation.into()), "{tool}: {}", answer.body);
        assert_eq!(seal_code(&answer), code, "{tool}");
        assert_eq!(
            answer.header("retry-after").is_some(),
            violation == "RateLimitExceeded",
            "{}",
            answer.head
        );
    }
    let ended = node.cli(&["seal", "end", &agent.session, "--reason", "a test"]);
    assert!(ended.status.success());
    let answer = agent.send(&agent.envelope(&call("fs.read", &json!({"path": "open/a"}))));
    assert_eq!(refusal(&answer), (403, -32000, "SessionInactive".into()), "{}", answer.body);
    assert_eq!(seal_code(&answer), 1006);
}

#[test]
fn what_the_node_can_not_do_is_its_own_fault() {
    let node = TestNode::with_config(
        "  security_contexts:\n    - name: careful\n      capabilities:\n        \
         - {tool_pattern: fs.write, path_allowlist: [/workspace], approval: required}",
    );
    let agent = Agent::new(&node, "careful");
    let write = || agent.call("fs.write", json!({"path": "a", "content": ""}));
    assert_eq!(write().status, 200, "it waits");
    // A registry that somebody has damaged under the running node.
    let registry = rusqlite::Connection::open(node.data().join("registry.db")).unwrap();
    registry.busy_timeout(Duration::from_secs(10)).unwrap();
    registry.execute_batch("DROP TABLE approvals").unwrap();
    let answer = write();
    assert_eq!(refusal(&answer), (500, -32603, "InternalError".into()), "{}", answer.body);
    // The session is none the worse for it.
    assert_eq!(agent.send(&agent.envelope(&harmless())).status, 403, "the context has no such tool");
}
