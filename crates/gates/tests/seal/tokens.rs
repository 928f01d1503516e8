//! Tokens: forged, borrowed, of other kinds, of other times.

use aegis_core::{
    Secret, ViolationKind,
    caller::Tier,
    config::{SealConfig, TrustedKey},
    secret::{Principal, SubjectTokens},
};
use aegis_gates::identity::seal::{
    Provision, Ring,
    token::{Claims, Terms, TokenFault, verify},
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ed25519_dalek::{Signer, SigningKey};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::stage::{BEGIN, Stage, call, reason, signed, version};

const INVALID: (ViolationKind, Option<u16>) = (ViolationKind::TokenInvalid, Some(1004));
const UNKNOWN: (ViolationKind, Option<u16>) = (ViolationKind::TokenInvalid, Some(1005));

fn corpus() -> Value {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/seal/rs256.json"));
    serde_json::from_str(&text.unwrap()).unwrap()
}

fn terms() -> Terms {
    let config = SealConfig::default();
    Terms { issuer: config.issuer, audiences: config.audiences }
}

fn trusting(kid: &str, pem: &str) -> Ring {
    Ring::trusting(&[TrustedKey { kid: kid.into(), public_key_pem: pem.into() }]).unwrap()
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// The parts of a token as JSON, with its signature as it came.
fn split(token: &str) -> (Value, Value, String) {
    let parts: Vec<&str> = token.split('.').collect();
    let json = |text: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap();
    (json(parts[0]), json(parts[1]), parts[2].to_owned())
}

#[tokio::test]
async fn a_token_for_others_is_none_of_ours() {
    let stage = Stage::new().await;
    let principal = Principal { tenant: "acme".into(), user: "ann".into() };
    let token = stage.gate.sign(&principal, "https://login.example.org/token", None).await.unwrap();
    let (header, claims, _) = split(token.expose());
    assert_eq!(header["kid"], stage.gate.jwks()["keys"][0]["kid"]);
    assert_eq!((&claims["sub"], &claims["tenant"]), (&json!("ann"), &json!("acme")));
    assert_eq!(claims["aud"], "https://login.example.org/token");
    assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 120);
    let again = stage.gate.sign(&principal, "https://login.example.org/token", None).await.unwrap();
    assert_ne!(split(again.expose()).1["jti"], claims["jti"]);
    // Even where audience and issuer are those of the node's own tokens.
    let config = SealConfig::default();
    let close = stage.gate.sign(&principal, &config.audiences[0], Some(&config.issuer)).await.unwrap();
    let now = claims["iat"].as_u64().unwrap();
    assert_eq!(verify(close.expose(), &Ring::default(), &terms(), now), Err(TokenFault::Unreadable));
}

#[tokio::test]
async fn what_a_token_says() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let (header, claims, _) = split(client.token());
    assert_eq!((&header["alg"], &header["typ"]), (&json!("EdDSA"), &json!("JWT")));
    assert_eq!(header["kid"], stage.gate.jwks()["keys"][0]["kid"]);
    let session = &client.attested.session;
    assert_eq!(
        claims,
        json!({
            "iss": "aegis-orchestrator", "aud": "aegis-agents", "sub": session.agent, "scp": "research",
            "wid": session.credential, "jti": session.id, "exec_id": session.execution, "tenant_id": "local",
            "iat": BEGIN, "exp": BEGIN + 3600,
        })
    );
}

#[tokio::test]
async fn forged_tokens_and_other_algorithms() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let (header, claims, signature) = split(client.token());
    let own_key = SigningKey::from_bytes(&[5; 32]);
    let forged = |header: &Value, claims: &Value| {
        let text = format!("{}.{}", encode(header), encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(own_key.sign(text.as_bytes()).to_bytes());
        format!("{text}.{signature}")
    };
    let with = |member: &str, value: Value| {
        let mut changed = header.clone();
        changed[member] = value;
        changed
    };
    let mut operator = claims.clone();
    operator["scp"] = "aegis-system-operator".into();
    let cases = [
        (forged(&with("alg", json!("none")), &claims), INVALID),
        (format!("{}.{}.", encode(&with("alg", json!("none"))), encode(&claims)), INVALID),
        (forged(&with("alg", json!("HS256")), &claims), INVALID),
        (forged(&with("alg", json!("hs256")), &claims), INVALID),
        (forged(&with("alg", json!("ES256")), &claims), INVALID),
        (forged(&with("kid", json!("other")), &claims), INVALID),
        (forged(&with("kid", Value::Null), &claims), INVALID),
        (forged(&with("typ", json!("JOSE")), &claims), INVALID),
        (forged(&with("crit", json!(["b64"])), &claims), INVALID),
        ("aegis_0123456789".into(), INVALID),
        ("a.b.c".into(), INVALID),
        ("..".into(), INVALID),
        (format!("{}.x", client.token()), INVALID),
        // These could be ours by their looks; our key did not sign them.
        (forged(&header, &claims), INVALID),
        (forged(&with("alg", json!("RS256")), &claims), INVALID),
        (format!("{}.{}.{signature}", encode(&header), encode(&operator)), INVALID),
    ];
    for (token, expected) in cases {
        // The client's own key signs, so that nothing but the token is wrong.
        let envelope = signed(&client.key, &token, &call("1"), BEGIN);
        assert_eq!(reason(stage.send(&envelope).await), expected, "{token}");
    }
    assert!(stage.send(&client.call("1", BEGIN)).await.is_ok());
}

#[tokio::test]
async fn a_session_ends_to_the_second() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    stage.clock.set(BEGIN + 3599);
    assert!(stage.send(&client.call("1", BEGIN + 3599)).await.is_ok());
    stage.clock.set(BEGIN + 3600);
    let expired = (ViolationKind::SessionExpired, Some(1003));
    assert_eq!(reason(stage.send(&client.call("2", BEGIN + 3600)).await), expired);
    assert!(!stage.gate.is_live(&client.attested.session.id));
    // And to one that was never used, and after a restart.
    let stage = stage.killed().await;
    assert_eq!(reason(stage.send(&client.call("3", BEGIN + 3600)).await), expired);
}

#[tokio::test]
async fn tokens_of_another_node_are_unknown() {
    let (here, there) = (Stage::new().await, Stage::new().await);
    let client = there.client().await;
    here.client().await;
    assert_eq!(reason(here.send(&client.call("1", BEGIN)).await), INVALID);
}

#[tokio::test]
async fn rotation_overlaps() {
    let stage = Stage::new().await;
    assert_eq!(stage.gate.jwks(), json!({"keys": []}), "the first key is made with the first token");
    let old = stage.client().await;
    let before = stage.gate.jwks();
    stage.clock.set(BEGIN + 100);
    let id = stage.gate.rotate_keys().await.unwrap();
    let after = stage.gate.jwks();
    assert_eq!(after["keys"].as_array().unwrap().len(), 2);
    assert_eq!(after["keys"][0]["kid"], id.to_string());
    assert_eq!(after["keys"][1], before["keys"][0]);
    let new = stage.client().await;
    assert_eq!(split(new.token()).0["kid"], id.to_string());
    let stage = stage.killed().await;
    assert_eq!(stage.gate.jwks(), after);
    for client in [&old, &new] {
        assert!(stage.send(&client.call("1", BEGIN + 100)).await.is_ok());
    }
    // The first key goes when nothing that it signed can be good any more.
    stage.clock.set(BEGIN + 3800);
    stage.gate.rotate_keys().await.unwrap();
    let kids = stage.gate.jwks();
    assert!(!kids.to_string().contains(before["keys"][0]["kid"].as_str().unwrap()), "{kids}");
}

#[tokio::test]
async fn keys_are_private_and_their_loss_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let stage = Stage::new().await;
    stage.client().await;
    let path = stage.path().join("seal.keys");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let data = aegis_stores::DataDir::read_only(stage.path()).unwrap();
    assert_eq!(data.seal_keys(), path.canonicalize().unwrap());
    let registry = std::fs::read(stage.path().join("registry.db")).unwrap();
    let stored: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let seed = stored["signing"]["seed"].as_str().unwrap().as_bytes().to_vec();
    assert!(!registry.windows(seed.len()).any(|window| window == seed));
}

#[test]
fn rs256_of_a_trusted_key() {
    let corpus = corpus();
    let token = corpus["token"].as_str().unwrap();
    for form in ["public_key_pem", "rsa_public_key_pem"] {
        let ring = trusting("kms-1", corpus[form].as_str().unwrap());
        let claims = verify(token, &ring, &terms(), BEGIN).unwrap();
        assert_eq!(serde_json::to_value(&claims).unwrap(), corpus["claims"]);
    }
    let ring = trusting("kms-1", corpus["public_key_pem"].as_str().unwrap());
    let exp = corpus["claims"]["exp"].as_u64().unwrap();
    assert!(verify(token, &ring, &terms(), exp - 1).is_ok());
    assert_eq!(verify(token, &ring, &terms(), exp), Err(TokenFault::Expired));
    let other = |change: fn(&mut Terms)| {
        let mut terms = terms();
        change(&mut terms);
        verify(token, &ring, &terms, BEGIN)
    };
    assert_eq!(other(|terms| terms.issuer = "somebody".into()), Err(TokenFault::Issuer));
    assert_eq!(other(|terms| terms.audiences = vec!["nobody".into()]), Err(TokenFault::Audience));
    assert!(other(|terms| terms.audiences = vec!["nobody".into(), "others".into()]).is_ok());
    let elsewhere = trusting("kms-2", corpus["public_key_pem"].as_str().unwrap());
    assert_eq!(verify(token, &elsewhere, &terms(), BEGIN), Err(TokenFault::UnknownKey));

    let (header, mut claims, signature) = split(token);
    claims["scp"] = "aegis-system-operator".into();
    let tampered = format!("{}.{}.{signature}", encode(&header), encode(&claims));
    assert_eq!(verify(&tampered, &ring, &terms(), BEGIN), Err(TokenFault::Signature));
    // The key's own text as a shared secret: the classic mistake.
    let mut confused = header.clone();
    confused["alg"] = "HS256".into();
    let confused = format!("{}.{}.{signature}", encode(&confused), encode(&corpus["claims"]));
    assert_eq!(verify(&confused, &ring, &terms(), BEGIN), Err(TokenFault::Algorithm));
    let mut eddsa = header;
    eddsa["alg"] = "EdDSA".into();
    let eddsa = format!("{}.{}.{signature}", encode(&eddsa), encode(&corpus["claims"]));
    assert_eq!(verify(&eddsa, &ring, &terms(), BEGIN), Err(TokenFault::Algorithm));
}

#[test]
fn trusted_keys_must_be_keys() {
    for pem in [
        "",
        "key",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----",
    ] {
        assert!(
            Ring::trusting(&[TrustedKey { kid: "a".into(), public_key_pem: pem.into() }]).is_err(),
            "{pem}"
        );
    }
}

/// A token signed with a trusted Ed25519 key.
fn eddsa(claims: &Value) -> (String, Ring) {
    use ed25519_dalek::pkcs8::{EncodePublicKey, spki::der::pem::LineEnding};
    let key = SigningKey::from_bytes(&[3; 32]);
    let pem = key.verifying_key().to_public_key_pem(LineEnding::LF).unwrap();
    let text = format!("{}.{}", encode(&json!({"alg": "EdDSA", "typ": "JWT", "kid": "k"})), encode(claims));
    let signature = URL_SAFE_NO_PAD.encode(key.sign(text.as_bytes()).to_bytes());
    (format!("{text}.{signature}"), trusting("k", &pem))
}

#[test]
fn claims_that_make_no_sense() {
    let good = corpus()["claims"].clone();
    let check = |claims: &Value| {
        let (token, ring) = eddsa(claims);
        verify(&token, &ring, &terms(), BEGIN)
    };
    assert!(check(&good).is_ok());
    for member in ["iss", "aud", "sub", "scp", "wid", "jti", "exec_id", "tenant_id", "iat", "exp"] {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(member);
        assert_eq!(check(&without), Err(TokenFault::Unreadable), "{member}");
        let mut wrong = good.clone();
        wrong[member] = json!({});
        assert_eq!(check(&wrong), Err(TokenFault::Unreadable), "{member}");
    }
    let with = |member: &str, value: u64| {
        let mut claims = good.clone();
        claims[member] = value.into();
        check(&claims)
    };
    assert_eq!(with("exp", BEGIN + 24 * 3600 + 1), Err(TokenFault::Times), "longer than a day");
    assert_eq!(with("iat", BEGIN + 9999), Err(TokenFault::Times));
    assert_eq!(with("exp", u64::MAX), Err(TokenFault::Times));
    assert_eq!(with("nbf", BEGIN + 1), Err(TokenFault::Times));
    assert!(with("nbf", BEGIN).is_ok());
    let read: Claims = check(&good).unwrap();
    assert_eq!(read.scp, "research");
}

proptest! {
    #[test]
    fn any_text_is_answered(token in ".{0,80}") {
        let ring = Ring::default();
        prop_assert!(verify(&token, &ring, &terms(), BEGIN).is_err());
    }

    #[test]
    fn one_changed_character_is_one_too_many(at in 0..300_usize, to in "[A-Za-z0-9_.-]") {
        let (token, ring) = eddsa(&corpus()["claims"]);
        let at = at % token.len();
        let mut changed = token.clone();
        changed.replace_range(at..=at, &to);
        prop_assume!(changed != token);
        prop_assert!(verify(&changed, &ring, &terms(), BEGIN).is_err());
    }
}

#[tokio::test]
async fn a_session_with_somebody_elses_token() {
    let corpus = corpus();
    let stage = Stage::with(|config| {
        let pem = corpus["public_key_pem"].as_str().unwrap().to_owned();
        config.trusted_keys = vec![TrustedKey { kid: "kms-1".into(), public_key_pem: pem }];
    })
    .await;
    let operator = stage.bearer(Tier::Operator, "aegis-system-operator", None).await;
    let key = SigningKey::from_bytes(&[4; 32]);
    let new = Provision {
        token: Secret::new(corpus["token"].as_str().unwrap()),
        public_key: STANDARD.encode(key.verifying_key().as_bytes()),
        user: "robot".into(),
        tier: Tier::User,
    };
    let envelope = |id: &str, second: u64| signed(&key, new.token.expose(), &call(id), second);
    assert_eq!(reason(stage.send(&envelope("0", BEGIN)).await), UNKNOWN);
    let user = stage.bearer(Tier::User, "research", None).await;
    assert_eq!(reason(stage.gate.provision(&new, &user, version).await), (ViolationKind::OperatorOnly, None));
    let session = stage.gate.provision(&new, &operator, version).await.unwrap();
    assert_eq!(session.id.as_str(), corpus["claims"]["jti"]);
    assert_eq!(reason(stage.gate.provision(&new, &operator, version).await).1, Some(3002), "once");
    let verified = stage.send(&envelope("1", BEGIN)).await.unwrap();
    assert_eq!((verified.caller.user.as_str(), verified.caller.context.as_str()), ("robot", "research"));
    let exp = corpus["claims"]["exp"].as_u64().unwrap();
    stage.clock.set(exp);
    let refused = stage.send(&envelope("2", exp)).await;
    assert_eq!(reason(refused), (ViolationKind::SessionExpired, Some(1003)));

    let forged = Provision { token: Secret::new(format!("{}A", new.token.expose())), ..new.clone() };
    assert_eq!(reason(stage.gate.provision(&forged, &operator, version).await), INVALID);
    stage.gate.revoke_session(&session.id, "over").await.unwrap();
    assert_eq!(
        reason(stage.gate.provision(&new, &operator, version).await),
        (ViolationKind::SessionExpired, Some(1003))
    );
}
