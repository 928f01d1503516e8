//! Envelopes that nobody should send. Each gets a clear answer in words every client understands, leaves its trace, and
//! the node goes on.

use std::{io::Write, time::SystemTime};

use serde_json::{Value, json};

use crate::{
    agent::{Agent, JSON, harmless, refusal, seal_code},
    common::{TestNode, read_answer},
};

#[test]
fn an_envelope_is_taken_once() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    let envelope = agent.envelope(&harmless());
    assert_eq!(agent.send(&envelope).status, 200);
    let again = agent.send(&envelope);
    assert_eq!(refusal(&again).0, 401, "{}", again.body);
    assert_eq!(seal_code(&again), 1003);
    // The same in other words: white space and members that are not signed make no new envelope.
    let spaced: Value = serde_json::from_slice(&envelope).unwrap();
    let mut padded = spaced.clone();
    padded["container_id"] = "other".into();
    for body in [format!("{spaced:#}"), padded.to_string()] {
        assert_eq!(agent.send(body.as_bytes()).status, 401, "{body}");
    }
}

#[test]
fn bulk_depth_and_doubles() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    let huge = vec![b' '; 10 << 20];
    let answer = agent.send(&huge);
    assert_eq!(refusal(&answer), (413, -32600, "RequestTooLarge".into()), "{}", answer.head);
    assert_eq!(node.raw("POST", "/v1/seal/attest", None, JSON, &huge[..1 << 20]).status, 413);

    let deep = format!("{{\"payload\":{}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    let malformed = (400, -32600, "MalformedEnvelope".to_owned());
    assert_eq!(refusal(&agent.send(deep.as_bytes())), malformed);
    let good = String::from_utf8(agent.envelope(&harmless())).unwrap();
    for (what, from, to) in [
        ("a member twice", "\"protocol\":", "\"protocol\":\"seal/v1\",\"protocol\":"),
        ("a name twice", "\"name\":", "\"name\":\"fs.delete\",\"name\":"),
        ("a lone surrogate", "\"language\":", "\"\\ud800\":"),
        ("an escaped double", "\"jsonrpc\":", "\"jsonrp\\u0063\":\"2.0\",\"jsonrpc\":"),
    ] {
        let body = good.replacen(from, to, 1);
        if body == good {
            continue;
        }
        assert_eq!(refusal(&agent.send(body.as_bytes())), malformed, "{what}");
    }
    let lone = good.replacen("\"tools/call\"", "\"\\udc00\"", 1);
    assert_eq!(refusal(&agent.send(lone.as_bytes())), malformed);

    // A large one that is in order passes.
    let content = "x".repeat(3 << 20);
    let written = agent.call("fs.write", json!({"path": "large", "content": content}));
    assert_eq!(written.status, 200, "{}", written.body);
}

/// The node's own limit counts where it is lower.
#[test]
fn a_body_must_be_whole_in_time() {
    let node = TestNode::with_config("  network: {body_timeout: 1s, max_body: 64KiB}");
    let agent = Agent::new(&node, "workspace");
    let mut stream = node.connect();
    write!(
        stream,
        "POST /v1/seal/invoke HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{{\"proto",
        node.address
    )
    .unwrap();
    let slow = read_answer(&mut stream);
    assert_eq!((slow.status, slow.json()["status"].as_str()), (408, Some("error")), "{}", slow.body);
    let large = agent.send(&vec![b'x'; 65 << 10]);
    assert_eq!(refusal(&large).0, 413, "{}", large.body);
}

#[test]
fn forged_tokens() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    let parts: Vec<&str> = agent.token.split('.').collect();
    let [header, claims, signature] = parts[..] else { panic!("{}", agent.token) };
    // {"alg":"none"} and {"alg":"HS256"}.
    let (none, symmetric) = ("eyJhbGciOiJub25lIn0", "eyJhbGciOiJIUzI1NiJ9");
    for forged in [
        format!("{none}.{claims}."),
        format!("{symmetric}.{claims}.{signature}"),
        format!("{header}.{claims}."),
        format!("{header}.{claims}.{}", "A".repeat(86)),
        format!("{header}.{claims}"),
        agent.token.to_uppercase(),
        "x".into(),
    ] {
        let answer = agent.send(&agent.key.envelope(&forged, &harmless(), SystemTime::now()));
        assert_eq!(refusal(&answer).0, 401, "{forged}: {}", answer.body);
        assert!([1004, 1005].contains(&seal_code(&answer)), "{forged}: {}", answer.body);
    }
    assert_eq!(agent.send(&agent.envelope(&harmless())).status, 200);
}

/// A point of small order would verify anything.
#[test]
fn small_order_keys_do_not_attest() {
    let node = TestNode::start();
    let workload = crate::agent::enrol(&node, "workspace", &[]);
    for key in
        ["AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]
    {
        let body = json!({"public_key": key, "workload_id": workload, "security_context": "workspace"});
        let answer = node.request("POST", "/v1/seal/attest", None, Some(&body));
        assert!([400, 401].contains(&answer.status), "{}", answer.body);
    }
}

#[test]
fn a_flood_of_bad_envelopes_is_counted_and_not_recorded_one_by_one() {
    let node = TestNode::start();
    let agent = Agent::new(&node, "workspace");
    for number in 0..150 {
        let body = format!("{{\"protocol\":\"{number}\"}}");
        assert_eq!(agent.send(body.as_bytes()).status, 400);
    }
    for _ in 0..50 {
        assert_eq!(crate::agent::attest(&node, &agent.key, "wl_guess", "workspace").status / 100, 4);
    }
    assert_eq!(agent.send(&agent.envelope(&harmless())).status, 200, "the honest go on");
    let metrics = node.request("GET", "/metrics", Some(&node.token), None).body;
    assert!(metrics.contains("aegis_refusals_total{violation=\"MalformedEnvelope\"} 150"), "{metrics}");
    assert!(metrics.contains("aegis_seal_attestations_total{result=\"failure\"} 50"), "{metrics}");
    assert!(metrics.contains("aegis_seal_attestations_total{result=\"success\"} 1"), "{metrics}");
    assert!(metrics.contains("aegis_seal_sessions_active 1"), "{metrics}");
    let (code, dir) = node.stop();
    assert_eq!(code, Some(0));
    let records = crate::common::records(&crate::common::data(dir.path()));
    let refused: Vec<&Value> = records
        .iter()
        .map(|record| &record["entry"])
        .filter(|entry| entry["action"].as_str().is_some_and(|action| action.ends_with("refused")))
        .collect();
    assert_eq!(refused.len(), 61, "sixty, and one for the rest");
    let further: u64 = refused[60]["detail"]["further"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(further, 140, "{}", refused[60]);
}
