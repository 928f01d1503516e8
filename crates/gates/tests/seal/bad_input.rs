//! Envelopes that are wrong in every way somebody thought of.

use aegis_core::ViolationKind;
use aegis_gates::identity::seal::Request;
use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::SigningKey;
use serde_json::{Value, json};

use crate::stage::{BEGIN, Stage, call, reason, signed};

const MALFORMED: (ViolationKind, Option<u16>) = (ViolationKind::MalformedEnvelope, Some(1000));
const BAD_SIGNATURE: (ViolationKind, Option<u16>) = (ViolationKind::SignatureVerificationFailed, Some(1001));
const STALE: (ViolationKind, Option<u16>) = (ViolationKind::SignatureVerificationFailed, Some(1003));

#[tokio::test]
async fn a_good_envelope_says_who_and_what() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let verified = stage.send(&client.call("req-1", BEGIN)).await.unwrap();
    assert_eq!(verified.id, "\"req-1\"");
    assert_eq!(verified.caller.user.as_str(), "robot");
    assert_eq!(verified.caller.session.as_ref(), Some(&client.attested.session.id));
    assert_eq!(verified.caller.pinned, client.attested.session.pinned);
    let Request::Call { tool, arguments } = verified.request else { panic!("not a call") };
    assert_eq!((tool.as_str(), &arguments["path"]), ("fs.read", &json!("/workspace/a.txt")));

    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let verified = stage.send(&client.envelope(&list, BEGIN)).await.unwrap();
    assert_eq!((verified.id.as_str(), verified.request), ("7", Request::List));
    let bare = json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "fs.list"}});
    let verified = stage.send(&client.envelope(&bare, BEGIN)).await.unwrap();
    assert_eq!(verified.id, "null");
    assert_eq!(verified.request, Request::Call { tool: "fs.list".into(), arguments: serde_json::Map::new() });
}

#[tokio::test]
async fn members_missing_or_of_the_wrong_type() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let good = client.call("1", BEGIN);
    for member in ["protocol", "security_token", "signature", "payload", "timestamp"] {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(member);
        let refusal = stage.send(&without).await.unwrap_err();
        assert!(refusal.violation.message.contains(member), "{}", refusal.violation.message);
        for wrong in [Value::Null, json!(true), json!([1]), json!(-1), json!({"a": 1}), json!(1.5)] {
            if member == "payload" && wrong.is_object() {
                continue;
            }
            let mut mistyped = good.clone();
            mistyped[member] = wrong.clone();
            assert_eq!(reason(stage.send(&mistyped).await), MALFORMED, "{member} = {wrong}");
        }
    }
    for protocol in ["seal/v2", "SEAL/V1", "seal/v1 ", "smcp/v1", ""] {
        let mut other = good.clone();
        other["protocol"] = protocol.into();
        assert_eq!(reason(stage.send(&other).await), MALFORMED, "{protocol}");
    }
    let mut empty = good.clone();
    empty["security_token"] = "".into();
    assert_eq!(reason(stage.send(&empty).await), MALFORMED);
    assert!(stage.send(&good).await.is_ok(), "none of them used the good one up");
}

#[tokio::test]
async fn bodies_that_are_no_envelopes() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let good = client.call("1", BEGIN).to_string();
    let twice = good.replacen('{', "{\"protocol\":\"seal/v1\",", 1);
    let twice_unknown = good.replacen('{', "{\"x\":1,\"x\":1,", 1);
    let twice_within = good.replace("\"path\":", "\"path\":\"/etc\",\"path\":");
    assert!(twice_within.contains("/etc"));
    let lone = good.replace("a.txt", "\\ud83d");
    let deep =
        good.replace("\"/workspace/a.txt\"", &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    for body in [
        "",
        "null",
        "[]",
        "\"seal/v1\"",
        "{",
        &good[..good.len() - 1],
        &twice,
        &twice_unknown,
        &twice_within,
        &lone,
        &deep,
        &format!("{good}{good}"),
        &format!("\u{feff}{good}"),
    ] {
        let refused = stage.gate.verify(body.as_bytes()).await;
        assert_eq!(reason(refused), MALFORMED, "{}", &body[..body.len().min(60)]);
    }
    assert_eq!(reason(stage.gate.verify(&[0xff, b'{']).await), MALFORMED);
    let mut large = client.call("2", BEGIN);
    large["payload"]["params"]["arguments"]["path"] = "x".repeat(10 << 20).into();
    assert_eq!(reason(stage.send(&large).await), MALFORMED, "10 MiB");
    assert!(stage.gate.verify(good.as_bytes()).await.is_ok());
}

#[tokio::test]
async fn large_and_deep_ones_within_the_bounds_are_taken() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let mut deep = json!(1);
    for _ in 0..90 {
        deep = json!([deep]);
    }
    let mut payload = call("1");
    payload["params"]["arguments"] = json!({"content": "é\n".repeat(1 << 20), "deep": deep});
    let verified = stage.send(&client.envelope(&payload, BEGIN)).await.unwrap();
    let Request::Call { arguments, .. } = verified.request else { panic!("not a call") };
    assert_eq!(Value::Object(arguments), payload["params"]["arguments"]);
}

#[tokio::test]
async fn times_out_of_the_window() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    for (second, fresh) in [(BEGIN - 31, false), (BEGIN - 30, true), (BEGIN + 30, true), (BEGIN + 31, false)]
    {
        let sent = stage.send(&client.call(&second.to_string(), second)).await;
        if fresh {
            sent.unwrap();
        } else {
            assert_eq!(reason(sent), STALE);
        }
    }
    for second in [0, 253_402_300_799] {
        assert_eq!(reason(stage.send(&client.call("far", second)).await), STALE);
    }
    for text in ["yesterday", "2026-02-17T14:32:01", "2026-02-17 14:32:01Z", "", "99999999999999999999"] {
        let mut envelope = client.call("1", BEGIN);
        envelope["timestamp"] = text.into();
        assert_eq!(reason(stage.send(&envelope).await), MALFORMED, "{text}");
    }
    let mut whole = client.call("whole", BEGIN);
    whole["timestamp"] = BEGIN.into();
    assert!(stage.send(&whole).await.is_ok());
}

#[tokio::test]
async fn tampering_and_other_keys() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let good = client.call("1", BEGIN);
    let mut path = good.clone();
    path["payload"]["params"]["arguments"]["path"] = "/etc/shadow".into();
    let mut more = good.clone();
    more["payload"]["params"]["arguments"]["recursive"] = true.into();
    let mut time = good.clone();
    time["timestamp"] = (BEGIN + 1).into();
    let mut signature = good.clone();
    signature["signature"] = STANDARD.encode([0; 64]).into();
    let other_key = signed(&SigningKey::from_bytes(&[9; 32]), client.token(), &call("1"), BEGIN);
    for (name, envelope) in
        [("path", path), ("more", more), ("time", time), ("signature", signature), ("other key", other_key)]
    {
        let refusal = stage.send(&envelope).await.unwrap_err();
        assert_eq!((refusal.violation.kind, refusal.seal_code), BAD_SIGNATURE, "{name}");
        assert_eq!(refusal.id.as_deref(), Some("\"1\""));
        assert_eq!(refusal.claimed.unwrap().user.as_str(), "robot");
    }
    let sound = good["signature"].as_str().unwrap().to_owned();
    for text in [
        String::new(),
        "no base64!".to_owned(),
        sound.trim_end_matches('=').to_owned(),
        sound.replace('+', "-").replace('/', "_") + "\n",
        STANDARD.encode([1; 63]),
        STANDARD.encode([1; 65]),
    ] {
        let mut envelope = good.clone();
        envelope["signature"] = text.clone().into();
        assert_eq!(reason(stage.send(&envelope).await), BAD_SIGNATURE, "{text}");
    }
    assert!(stage.send(&good).await.is_ok());
}

#[tokio::test]
async fn one_clients_token_is_nothing_with_anothers_key() {
    let stage = Stage::new().await;
    let (one, other) =
        (stage.client().await, stage.client_of(&stage.enrol(&["research"]).await.1, 2).await.unwrap());
    let stolen = signed(&other.key, one.token(), &call("1"), BEGIN);
    assert_eq!(reason(stage.send(&stolen).await), BAD_SIGNATURE);
}

#[tokio::test]
async fn requests_that_name_no_tool() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    for payload in [
        json!({}),
        json!({"jsonrpc": "2.0"}),
        json!({"jsonrpc": "1.0", "id": 1, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": {}, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": true, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "fs.read", "params": {"path": "a"}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call"}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": ""}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 1}}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}),
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fs.read", "arguments": []}}),
    ] {
        assert_eq!(reason(stage.send(&client.envelope(&payload, BEGIN)).await), MALFORMED, "{payload}");
    }
}

#[tokio::test]
async fn unknown_members_of_the_envelope_mean_nothing() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let mut envelope = client.call("1", BEGIN);
    envelope["container_id"] = json!({"z": 1, "a": ["\u{1f600}"]});
    envelope["tenant_id"] = "other".into();
    let verified = stage.send(&envelope).await.unwrap();
    assert_eq!(verified.caller.tenant.as_str(), "local");
}
