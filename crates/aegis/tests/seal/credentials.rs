//! What one credential is worth at another's door: nothing.

use aegis_seal_client::Key;
use serde_json::{Value, json};

use crate::{
    agent::{Agent, JSON, attest, enrol, harmless, refusal, seal_code},
    common::TestNode,
};

#[test]
fn tokens_of_one_kind_are_nothing_to_the_other() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    for (method, path) in [
        ("GET", "/v1/tools"),
        ("POST", "/v1/tools/aegis.runtime.list"),
        ("GET", "/v1/status"),
        ("POST", "/mcp"),
        ("GET", "/v1/seal/tools"),
        ("GET", "/v1/seal/sessions"),
        ("GET", "/metrics"),
    ] {
        let answer = node.request(method, path, Some(&agent.token), Some(&json!({})));
        assert_eq!(answer.status, 401, "{path}: {}", answer.body);
    }
    let attested = node.raw(
        "POST",
        "/v1/seal/attest",
        Some(&agent.token),
        JSON,
        &agent.key.attestation("", "workspace"),
    );
    assert_eq!(attested.status, 401, "{}", attested.body);
    // The other way round: the operator's own token in an envelope, signed by a key of a good session.
    let stolen = agent.key.envelope(&node.token, &harmless(), std::time::SystemTime::now());
    let answer = agent.send(&stolen);
    assert_eq!(answer.status, 401, "{}", answer.body);
    // A header neither helps nor harms.
    for bearer in ["nonsense", node.token.as_str()] {
        let good = node.raw("POST", "/v1/seal/invoke", Some(bearer), JSON, &agent.envelope(&harmless()));
        assert_eq!(good.status, 200, "{}", good.body);
        let bad = node.raw("POST", "/v1/seal/invoke", Some(bearer), JSON, b"{}");
        assert_eq!(bad.status, 400, "{}", bad.body);
    }
}

#[test]
fn a_bearer_token_attests_too() {
    let node = TestNode::start();
    let token = node.make_token("read-only");
    let key = Key::fresh().unwrap();
    let answer = |context: &str, bearer: &str| {
        let body = key.attestation("my-laptop", context);
        node.raw("POST", "/v1/seal/attest", Some(bearer), JSON, &body)
    };
    let attested = answer("read-only", &token);
    assert_eq!(attested.status, 200, "{}", attested.body);
    let body = attested.json();
    let member = |name: &str| body[name].as_str().unwrap().to_owned();
    let agent = Agent {
        node: &node,
        key: Key::fresh().unwrap(),
        token: member("security_token"),
        session: member("session_id"),
    };
    assert_eq!(agent.send(&agent.envelope(&harmless())).status, 401, "the key is not the one that attested");
    let agent = Agent { key, ..agent };
    assert_eq!(agent.send(&agent.envelope(&harmless())).status, 200);
    assert_eq!(agent.call("fs.write", json!({"path": "a", "content": ""})).status, 403);
    // The body can't ask for more than the token has.
    let key = Key::fresh().unwrap();
    for context in ["workspace", "aegis-system-operator"] {
        let body = key.attestation("my-laptop", context);
        let more = node.raw("POST", "/v1/seal/attest", Some(&token), JSON, &body);
        assert!([401, 403].contains(&more.status), "{context}: {}", more.body);
    }
    let unknown =
        node.raw("POST", "/v1/seal/attest", Some("tok_guess"), JSON, &key.attestation("x", "workspace"));
    assert_eq!(unknown.status, 401, "{}", unknown.body);
}

#[test]
fn workload_ids_are_bound_counted_and_expiring() {
    let node = TestNode::start();
    let key = Key::fresh().unwrap();
    let workload = enrol(&node, "read-only", &["--uses", "2"]);
    let failed = |workload: &str, context: &str| {
        let answer = attest(&node, &key, workload, context);
        let body = answer.json();
        assert_eq!(body["status"], "error", "{body}");
        assert_eq!(body["message"], body["error"]["message"]);
        assert!(body["error_code"].as_u64().is_some_and(|code| (3000..=3002).contains(&code)), "{body}");
        (answer.status, body["error_code"].as_u64().unwrap())
    };
    assert_eq!(failed("wl_guess", "read-only").0, 401, "guessed");
    assert_eq!(failed("", "read-only").0, 401, "empty");
    let mut close = workload.clone();
    let last = if close.ends_with('A') { 'B' } else { 'A' };
    close.pop();
    close.push(last);
    assert_eq!(failed(&close, "read-only"), (401, 3000), "almost right");
    assert_eq!(failed(&workload, "workspace").0, 401, "a context that was not enrolled");
    assert_eq!(failed(&workload, "no-such-context").0, 401, "a context that does not exist");
    assert_eq!(failed(&workload, " "), (401, 3001), "no context");
    for _ in 0..2 {
        assert_eq!(attest(&node, &key, &workload, "read-only").status, 200);
    }
    assert_eq!(failed(&workload, "read-only").0, 401, "used up");

    let bound = enrol(&node, "read-only", &["--key", &key.public()]);
    let other = Key::fresh().unwrap();
    assert_eq!(attest(&node, &other, &bound, "read-only").status, 401, "another key");
    assert_eq!(attest(&node, &key, &bound, "read-only").status, 200);

    let short = enrol(&node, "read-only", &["--ttl", "1s"]);
    crate::common::wait_until(|| attest(&node, &key, &short, "read-only").status != 200);
    assert_eq!(failed(&short, "read-only").0, 401, "expired");
}

/// All names of the key that published clients use, and names that may only narrow.
#[test]
fn bodies_of_attestation() {
    let node = TestNode::start();
    let workload = enrol(&node, "workspace", &["--tenant", "acme", "--user", "ann"]);
    let public = Key::fresh().unwrap().public();
    let attest = |body: Value| node.request("POST", "/v1/seal/attest", None, Some(&body));
    for name in ["public_key", "public_key_pem", "agent_public_key"] {
        let answer = attest(json!({name: public, "workload_id": workload, "security_context": "workspace"}));
        assert_eq!(answer.status, 200, "{name}: {}", answer.body);
    }
    let same = attest(json!({
        "public_key": public, "workload_id": workload, "security_context": "workspace", "tenant_id": "acme",
        "user_id": "ann", "task_summary": "tidy up",
    }));
    assert_eq!(same.status, 200, "{}", same.body);
    let foreign = attest(json!({
        "public_key": public, "workload_id": workload, "security_context": "workspace", "tenant_id": "other",
    }));
    assert!([401, 403].contains(&foreign.status), "{}", foreign.body);
    for body in [
        json!({"workload_id": workload, "security_context": "workspace"}),
        json!({"public_key": "AAAA", "workload_id": workload, "security_context": "workspace"}),
        json!({"public_key": 7, "workload_id": workload, "security_context": "workspace"}),
        json!([]),
    ] {
        let answer = attest(body);
        assert!([400, 401].contains(&answer.status), "{}", answer.body);
        assert_eq!(answer.json()["status"], "error");
    }
    let sessions = node.request("GET", "/v1/seal/sessions?tenant=acme", Some(&node.token), None).json();
    let sessions = sessions["sessions"].as_array().unwrap().clone();
    assert_eq!(sessions.len(), 4);
    assert!(sessions.iter().all(|session| session["tenant"] == "acme" && session["user"] == "ann"));
    let none = node.request("GET", "/v1/seal/sessions?tenant=other", Some(&node.token), None).json();
    assert_eq!(none["sessions"], json!([]));
}

#[test]
fn a_session_stays_in_its_tenant() {
    let node = TestNode::start();
    let ours = Agent::of(&node, &enrol(&node, "workspace", &["--tenant", "ours"]), "workspace");
    let theirs = Agent::of(&node, &enrol(&node, "workspace", &["--tenant", "theirs"]), "workspace");
    assert_eq!(theirs.call("fs.write", json!({"path": "secret", "content": "x"})).status, 200);
    let read = ours.call("fs.read", json!({"path": "secret"})).json();
    assert_eq!(read["payload"]["result"]["error_kind"], "NOT_FOUND", "{read}");
    // Their session with our key, and the other way round.
    for (key, token) in [(&ours.key, &theirs.token), (&theirs.key, &ours.token)] {
        let crossed = ours.send(&key.envelope(token, &harmless(), std::time::SystemTime::now()));
        assert_eq!(refusal(&crossed).0, 401, "{}", crossed.body);
        assert_eq!(seal_code(&crossed), 1001);
    }
    // People without the operator's rights see nobody's sessions, not even their own.
    let token = node.make_token("workspace");
    for path in ["/v1/seal/sessions".to_owned(), format!("/v1/seal/sessions/{}", ours.session)] {
        assert_eq!(node.request("GET", &path, Some(&token), None).status, 403, "{path}");
        assert_eq!(node.request("GET", &path, None, None).status, 401, "{path}");
    }
}

#[test]
fn contexts_with_reserved_names_need_the_tier_that_they_are_for() {
    let node = TestNode::start();
    let refused = |arguments: &[&str]| {
        let output = node.cli(&[&["seal", "enroll"], arguments].concat());
        assert!(!output.status.success(), "{arguments:?}");
        crate::common::text(&output.stderr)
    };
    let stderr = refused(&["--context", "aegis-system-agent-runtime"]);
    assert!(stderr.contains("tiers system and operator"), "{stderr}");
    let stderr = refused(&["--context", "zaru-pro", "--tier", "operator"]);
    assert!(stderr.contains("whose tier is user"), "{stderr}");
    let stderr = refused(&["--context", "workspac"]);
    assert!(stderr.contains("did you mean `workspace`"), "{stderr}");
    enrol(&node, "aegis-system-agent-runtime", &["--tier", "system"]);
    let operator = enrol(&node, "aegis-system-operator", &["--tier", "operator"]);
    let agent = Agent::of(&node, &operator, "aegis-system-operator");
    assert_eq!(agent.call("aegis.system.info", json!({})).status, 200, "an operator's session");
    let pro = Agent::new(&node, "zaru-pro");
    assert_eq!(pro.call("aegis.system.info", json!({})).status, 403);
    assert_eq!(pro.call("fs.list", json!({"path": "/workspace"})).status, 200);
}
