//! The vectors of `corpus/seal/`: what clients in two languages send, byte for byte.

use aegis_core::ViolationKind;
use aegis_gates::identity::seal::{
    canonical::{Order, canonical},
    envelope::{Envelope, Malformed},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::stage::BEGIN;

fn vectors() -> Value {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/seal/vectors.json"));
    serde_json::from_str(&text.unwrap()).unwrap()
}

fn key(text: &Value) -> VerifyingKey {
    let bytes = STANDARD.decode(text.as_str().unwrap()).unwrap();
    VerifyingKey::from_bytes(&bytes.try_into().unwrap()).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_body_of_both_languages_verifies() {
    let vectors = vectors();
    let signing = vectors["signing"].as_array().unwrap();
    assert_eq!(signing.len(), 19);
    let mut bodies = 0;
    for vector in signing {
        let key = key(&vector["public_key"]);
        for language in ["python", "typescript"] {
            for body in vector[language]["bodies"].as_array().unwrap() {
                let envelope = Envelope::read(body.as_str().unwrap().as_bytes()).unwrap();
                let name = &vector["name"];
                let message = envelope.verify(&key).unwrap_or_else(|| panic!("{name} of {language}"));
                assert_eq!(hex(&Sha256::digest(&message)), vector[language]["canonical_sha256"], "{name}");
                assert_eq!(envelope.second, i64::try_from(BEGIN).unwrap());
                bodies += 1;
            }
        }
    }
    assert_eq!(bodies, 57);
}

#[test]
fn the_vectors_of_the_specification() {
    let vectors = vectors();
    let of_rfc = vectors["rfc"].as_array().unwrap();
    assert_eq!(of_rfc.len(), 4);
    for vector in of_rfc {
        let message = serde_json::json!({
            "timestamp": vector["timestamp_unix"],
            "security_token": vector["security_token"],
            "payload": vector["payload"],
        });
        let bytes = canonical(&message.to_string(), Order::CodePoint).unwrap();
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), vector["canonical_text"]);
        assert_eq!(hex(&Sha256::digest(&bytes)), vector["sha256"]);
        let signature = STANDARD.decode(vector["signature_b64"].as_str().unwrap()).unwrap();
        let signature = Signature::from_slice(&signature).unwrap();
        key(&vector["public_key_b64"]).verify_strict(&bytes, &signature).unwrap();
    }
}

#[test]
fn verification_as_expected() {
    let vectors = vectors();
    let verification = vectors["verification"].as_array().unwrap();
    assert_eq!(verification.len(), 21);
    for vector in verification {
        let body = vector["envelope"].to_string();
        let key = key(&vector["public_key"]);
        let got = match Envelope::read(body.as_bytes()) {
            Err(_) => "reject 400 / -32600",
            Ok(envelope) if envelope.verify(&key).is_none() => "reject 401 / -32000",
            Ok(_) => "accept",
        };
        // What the vectors leave to the server: whole seconds are taken, other spellings of base64 are not.
        let expected = match vector["expected"].as_str().unwrap() {
            "server choice (see seal.md 4.4)" => "accept",
            "server choice; reject recommended" => "reject 401 / -32000",
            other => other,
        };
        assert_eq!(got, expected, "{}", vector["name"]);
    }
}

#[test]
fn the_statuses_behind_the_words() {
    let status = |kind: ViolationKind| (kind.http_status(), kind.jsonrpc_code());
    assert_eq!(status(ViolationKind::MalformedEnvelope), (400, -32600));
    assert_eq!(status(ViolationKind::SignatureVerificationFailed), (401, -32000));
    assert_eq!(status(ViolationKind::SessionExpired), (401, -32000));
    assert_eq!(status(ViolationKind::TokenInvalid), (401, -32000));
    assert_eq!(status(ViolationKind::SessionInactive), (403, -32000));
    assert_eq!(status(ViolationKind::TenantMismatch), (403, -32000));
    assert_eq!(status(ViolationKind::AttestationFailed), (401, -32000));
}

#[test]
fn calls_are_read_from_what_was_signed() {
    let vectors = vectors();
    for vector in vectors["signing"].as_array().unwrap() {
        let body = vector["python"]["bodies"][0].as_str().unwrap();
        let sent: Value = serde_json::from_str(body).unwrap();
        let read = Envelope::read(body.as_bytes()).unwrap().request();
        match sent["payload"]["method"].as_str().unwrap() {
            "tools/call" | "tools/list" => {
                let (id, _) = read.unwrap();
                assert_eq!(serde_json::from_str::<Value>(&id).unwrap(), sent["payload"]["id"]);
            }
            _ => assert!(matches!(read, Err(Malformed::Method(_)))),
        }
    }
}
