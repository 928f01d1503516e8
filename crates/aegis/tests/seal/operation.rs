//! What operators do: look, end, revoke, rotate, restart; and what the record keeps of it.

use std::time::SystemTime;

use aegis_seal_client::Key;
use serde_json::{Value, json};

use crate::{
    agent::{Agent, JSON, attest, enrol, harmless, refusal},
    common::{TestNode, data, records, text},
};

#[test]
fn sessions_survive_a_restart_and_replays_do_not() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    let used = agent.envelope(&harmless());
    assert_eq!(agent.send(&used).status, 200);
    let Agent { key, token, session, .. } = agent;
    let revoked = {
        let other = Agent::new(&node, "workspace");
        assert!(node.cli(&["seal", "end", &other.session]).status.success());
        (other.key, other.token, other.session)
    };
    let (code, dir) = node.stop();
    assert_eq!(code, Some(0));
    let node = TestNode::on(dir);
    let agent = Agent { node: &node, key, token, session };
    assert_eq!(refusal(&agent.send(&used)).0, 401, "it was used before the restart");
    assert_eq!(agent.send(&agent.envelope(&harmless())).status, 200);
    let ended = Agent { node: &node, key: revoked.0, token: revoked.1, session: revoked.2 };
    assert_eq!(refusal(&ended.send(&ended.envelope(&harmless()))).2, "SessionInactive");
    // As `kill -9` leaves it, too.
    let Agent { key, token, session, .. } = agent;
    let node = TestNode::on(node.kill());
    let agent = Agent { node: &node, key, token, session };
    assert_eq!(agent.send(&agent.envelope(&harmless())).status, 200);
}

#[test]
fn a_revoked_enrolment_ends_its_sessions() {
    let node = TestNode::start();
    let workload = enrol(&node, "workspace", &["--note", "builds"]);
    let one = Agent::of(&node, &workload, "workspace");
    let two = Agent::of(&node, &workload, "workspace");
    let other = Agent::new(&node, "workspace");
    let listed = text(&node.cli(&["seal", "enrolments", "--json"]).stdout);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = listed["enrolments"]
        .as_array()
        .unwrap()
        .iter()
        .find(|enrolment| enrolment["note"] == "builds")
        .unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(!listed.to_string().contains(&workload), "an id is shown once");
    assert!(node.cli(&["seal", "revoke", &id]).status.success());
    for agent in [&one, &two] {
        let answer = agent.send(&agent.envelope(&harmless()));
        assert_eq!(refusal(&answer), (403, -32000, "SessionInactive".into()), "{}", answer.body);
    }
    assert_eq!(other.send(&other.envelope(&harmless())).status, 200);
    assert_eq!(attest(&node, &Key::fresh().unwrap(), &workload, "workspace").status, 401);
    let gone = node.cli(&["seal", "revoke", "enr_0000000000000000"]);
    assert_eq!(gone.status.code(), Some(2), "{}", text(&gone.stderr));
}

#[test]
fn rotated_keys_keep_old_tokens_alive() {
    let node = TestNode::start();
    let keys = || {
        let answer = node.request("GET", "/.well-known/jwks.json", None, None);
        assert_eq!(answer.status, 200);
        let keys = answer.json()["keys"].as_array().unwrap().clone();
        assert!(
            keys.iter().all(|key| key["kty"] == "OKP" && key["crv"] == "Ed25519" && key.get("d").is_none())
        );
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let old = Agent::new(&node, "workspace");
    let before = keys();
    assert_eq!(before.len(), 1, "{before:?}");
    let output = node.cli(&["seal", "rotate-keys"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let fresh = text(&output.stdout).trim().to_owned();
    let after = keys();
    assert_eq!(after.len(), before.len() + 1, "{after:?}");
    assert!(after.contains(&fresh) && before.iter().all(|key| after.contains(key)), "{after:?}");
    let new = Agent::new(&node, "workspace");
    for agent in [&old, &new] {
        assert_eq!(agent.send(&agent.envelope(&harmless())).status, 200);
    }
    let node_token = node.make_token("workspace");
    let refused = node.request("POST", "/v1/seal/rotate-keys", Some(&node_token), None);
    assert_eq!((refused.status, refused.violation().as_str()), (403, "OperatorOnly"));
}

#[test]
fn the_catalogue_is_for_those_who_may_call() {
    let node = TestNode::start();
    assert_eq!(node.request("GET", "/v1/seal/tools", None, None).status, 401);
    let list = |token: &str, query: &str, headers: &[(&str, &str)]| {
        node.raw("GET", &format!("/v1/seal/tools{query}"), Some(token), headers, b"")
    };
    let names = |body: &Value| -> Vec<String> {
        let tools = body["tools"].as_array().unwrap();
        assert!(tools.iter().all(|tool| tool["input_schema"]["type"] == "object"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = list(&node.token, "", &[]).json();
    assert_eq!(all["protocol"], "seal/v1");
    assert_eq!(all["attestation_endpoint"], "/v1/seal/attest");
    assert_eq!(all["invoke_endpoint"], "/v1/seal/invoke");
    assert!(names(&all).contains(&"aegis.system.info".to_owned()));
    let narrowed =
        list(&node.token, "?security_context=workspace", &[("X-Zaru-Security-Context", " read-only ")]);
    assert_eq!(narrowed.json()["security_context"], "read-only", "the header counts");
    assert!(!names(&narrowed.json()).contains(&"fs.write".to_owned()));
    let narrowed = list(&node.token, "?security_context=workspace", &[]).json();
    assert!(names(&narrowed).contains(&"fs.write".to_owned()));
    assert!(!names(&narrowed).contains(&"aegis.system.info".to_owned()));
    assert_eq!(list(&node.token, "?security_context=nowhere", &[]).status, 404);
    let user = node.make_token("read-only");
    assert_eq!(list(&user, "?security_context=read-only", &[]).status, 200);
    assert_eq!(list(&user, "?security_context=aegis-system-operator", &[]).status, 403);
    assert_eq!(list(&user, "", &[("X-Zaru-Security-Context", "workspace")]).status, 403);
}

#[test]
fn the_command_line_calls_as_a_workload() {
    let node = TestNode::start();
    let workload = enrol(&node, "read-only", &[]);
    node.call("fs.write", json!({"path": "a.txt", "content": "hi"}));
    let call = |arguments: &[&str]| {
        node.cli(
            &[&["call", "--seal", "--workload", &workload, "--context", "read-only"], arguments].concat(),
        )
    };
    let read = call(&["fs.read", r#"{"path": "a.txt"}"#]);
    assert!(read.status.success() && text(&read.stdout).contains("\"hi\""), "{}", text(&read.stderr));
    let denied = call(&["fs.delete", r#"{"path": "a.txt"}"#]);
    assert_eq!(denied.status.code(), Some(3), "{}", text(&denied.stderr));
    assert!(text(&denied.stderr).contains("denied (ToolNotAllowed)"), "{}", text(&denied.stderr));
    let failed = call(&["--json", "fs.read", r#"{"path": "none"}"#]);
    assert_eq!(failed.status.code(), Some(1));
    let failed: Value = serde_json::from_slice(&failed.stdout).unwrap();
    assert_eq!((&failed["is_error"], &failed["result"]["error_kind"]), (&json!(true), &json!("NOT_FOUND")));
    let sessions = text(&node.cli(&["seal", "sessions"]).stdout);
    assert_eq!(sessions.lines().count(), 4, "{sessions}");
    let without = node.cli(&["call", "--seal", "fs.list", "{}"]);
    assert_eq!(without.status.code(), Some(2), "{}", text(&without.stderr));
}

#[test]
fn everything_leaves_its_record() {
    let node = TestNode::start();
    let workload = enrol(&node, "workspace", &[]);
    let agent = Agent::of(&node, &workload, "workspace");
    agent.call("fs.write", json!({"path": "a", "content": "x"}));
    agent.call("fs.read", json!({"path": ".."}));
    let mut forged: Value = serde_json::from_slice(&agent.envelope(&harmless())).unwrap();
    forged["payload"]["id"] = "other".into();
    agent.send(forged.to_string().as_bytes());
    attest(&node, &agent.key, "wl_guess", "workspace");
    node.cli(&["seal", "end", &agent.session, "--reason", "the day is over"]);
    node.cli(&["seal", "rotate-keys"]);
    let Agent { token, session, .. } = agent;
    let (_, dir) = node.stop();
    let records = records(&data(dir.path()));
    let of = |action: &str| -> Vec<&Value> {
        records.iter().map(|record| &record["entry"]).filter(|entry| entry["action"] == action).collect()
    };
    for action in [
        "seal-enrolled",
        "seal-attested",
        "seal-refused",
        "seal-attestation-refused",
        "seal-session-revoked",
        "seal-keys-rotated",
    ] {
        assert_eq!(of(action).len(), 1, "{action}");
    }
    assert_eq!(of("seal-attested")[0]["detail"]["session"]["id"], session.as_str());
    assert_eq!(of("seal-refused")[0]["detail"]["violation"], "SignatureVerificationFailed");
    assert_eq!(of("seal-session-revoked")[0]["detail"]["reason"], "the day is over");
    assert_eq!(of("seal-session-revoked")[0]["caller"]["user"], "operator");
    let calls: Vec<&Value> =
        records.iter().map(|record| &record["entry"]).filter(|entry| entry["entry"] == "call").collect();
    assert_eq!(calls.len(), 2, "a refused envelope is no call");
    for call in &calls {
        assert_eq!(call["caller"]["door"], "seal");
        assert_eq!(call["caller"]["session"], session.as_str());
        assert_eq!(call["proof"]["signature"].as_str().unwrap().len(), 88);
        assert_eq!(call["proof"]["message_sha256"].as_str().unwrap().len(), 64);
    }
    assert_eq!(calls[1]["result"]["kind"], "PathTraversalAttempt");
    // What proves who somebody is, is nobody's to read.
    let log = serde_json::to_string(&records).unwrap();
    assert!(!log.contains(&token) && !log.contains(&workload), "a credential is in the log");
}

#[test]
fn a_signed_call_that_waits_for_a_person() {
    let node = TestNode::with_config(
        "  security_contexts:\n    - name: asks\n      capabilities:\n        \
         - {tool_pattern: fs.write, path_allowlist: [/workspace], approval: required}",
    );
    let agent = Agent::new(&node, "asks");
    let write = json!({"path": "plan.txt", "content": "as agreed"});
    let parked = agent.call("fs.write", write.clone());
    assert_eq!(parked.status, 200, "{}", parked.body);
    let body = parked.json();
    assert_eq!(body["payload"]["result"]["pendingApproval"], true, "{body}");
    assert!(body["payload"].get("error").is_none());
    let id = body["payload"]["result"]["approvalRequestId"].as_str().unwrap().to_owned();
    assert!(node.cli(&["approvals", "approve", &id]).status.success());
    assert!(node.cli(&["approvals", "wait", &id]).status.success());
    let answer = agent.call("fs.write", write);
    assert_eq!(answer.json()["payload"]["result"]["bytes_written"], 9, "{}", answer.body);
    let refused = agent.call("fs.write", json!({"path": "plan.txt", "content": "not agreed"}));
    let id = refused.json()["payload"]["result"]["approvalRequestId"].as_str().unwrap().to_owned();
    assert!(node.cli(&["approvals", "reject", &id, "--reason", "keep the plan"]).status.success());
    let answer = agent.call("fs.write", json!({"path": "plan.txt", "content": "not agreed"}));
    assert_eq!(refusal(&answer), (403, -32000, "ApprovalRejected".into()), "{}", answer.body);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("keep the plan"));
}

/// A token that another issuer signed is taken in by an operator, for a key; then its envelopes are as good as any.
#[test]
fn a_session_of_another_issuer() {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    use ed25519_dalek::{
        Signer, SigningKey,
        pkcs8::{EncodePublicKey, spki::der::pem::LineEnding},
    };

    let issuer = SigningKey::from_bytes(&[7; 32]);
    let pem = issuer.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
    let node = TestNode::with_config(&format!(
        "  seal:\n    trusted_keys:\n      - {{kid: kms-1, public_key_pem: {}}}",
        json!(pem)
    ));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "iss": "aegis-orchestrator", "aud": "aegis-agents", "sub": "agent-1", "scp": "workspace", "wid": "pod-1",
        "jti": "session-of-theirs", "exec_id": "run-1", "tenant_id": "local", "iat": now, "exp": now + 600,
    });
    let token_by = |key: &SigningKey| {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let said =
            format!("{}.{}", encode(&json!({"alg": "EdDSA", "typ": "JWT", "kid": "kms-1"})), encode(&claims));
        format!("{said}.{}", URL_SAFE_NO_PAD.encode(key.sign(said.as_bytes()).to_bytes()))
    };
    let key = Key::fresh().unwrap();
    let body = |token: &str| json!({"security_token": token, "public_key": key.public()});
    let provision = |bearer: &str, token: &str| {
        node.request("POST", "/v1/seal/sessions", Some(bearer), Some(&body(token)))
    };
    let token = token_by(&issuer);
    assert_eq!(provision(&node.token, &token_by(&SigningKey::from_bytes(&[8; 32]))).status, 401, "forged");
    let user = node.cli(&["token", "create", "--context", "workspace"]);
    assert_eq!(provision(text(&user.stdout).trim(), &token).status, 403, "no operator");
    let made = provision(&node.token, &token);
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(provision(&node.token, &token).status, 401, "twice");
    let envelope = key.envelope(&token, &harmless(), SystemTime::now());
    let answer = node.raw("POST", "/v1/seal/invoke", None, JSON, &envelope);
    assert_eq!(answer.status, 200, "{}", answer.body);
}
