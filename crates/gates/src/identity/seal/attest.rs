//! What a workload sends to be attested. Everything in it is a wish: who it is comes from its enrolment or token.

use aegis_core::{ViolationKind, id::ContextName};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ed25519_dalek::{VerifyingKey, pkcs8::DecodePublicKey};
use serde::Deserialize;

use super::refusal::{ATTESTATION_FAILED, MALFORMED, Refusal};

/// The largest body. A key, an id and a name need a small part of it.
const LONGEST: usize = 64 << 10;

/// What stands before the 32 bytes of an Ed25519 key in SPKI.
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The members that mean something. Others (names of agents, executions, containers, users and tiers) are what a
/// caller says of itself: they give nothing, and are not kept.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    public_key: Option<String>,
    public_key_pem: Option<String>,
    agent_public_key: Option<String>,
    workload_id: Option<String>,
    security_context: Option<String>,
    requested_scope: Option<String>,
    tenant_id: Option<String>,
}

/// A readable attestation.
#[derive(Debug, Clone)]
pub struct Attestation {
    pub(super) key: VerifyingKey,
    /// May be the secret of an enrolment.
    pub(super) workload: Option<String>,
    pub(super) context: Option<ContextName>,
    pub(super) tenant: Option<String>,
}

impl Attestation {
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let malformed = |message: &str| {
            Refusal::of(
                ViolationKind::MalformedEnvelope,
                MALFORMED,
                format!("the attestation can't be read: {message}"),
            )
            .hint("send {\"public_key\": …, \"workload_id\": …, \"security_context\": …}")
        };
        if body.len() > LONGEST {
            return Err(malformed("it is larger than 64 KiB"));
        }
        let body: Body = serde_json::from_slice(body).map_err(|error| malformed(&error.to_string()))?;
        let mut spellings =
            [body.public_key, body.public_key_pem, body.agent_public_key].into_iter().flatten();
        let Some(key) = spellings.next() else { return Err(malformed("it has no `public_key`")) };
        if spellings.any(|other| other != key) {
            return Err(malformed("it names two keys"));
        }
        let said = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        Ok(Self {
            key: usable_key(&key)?,
            workload: said(body.workload_id),
            context: said(body.security_context).or(said(body.requested_scope)).map(ContextName::new),
            tenant: said(body.tenant_id),
        })
    }

    pub fn public_key(&self) -> &[u8; 32] {
        self.key.as_bytes()
    }

    /// The context asked for, as the client wrote it.
    pub fn context(&self) -> Option<&ContextName> {
        self.context.as_ref()
    }
}

/// A public key that may attest, in any of the forms that clients send.
pub fn read_key(text: &str) -> Option<[u8; 32]> {
    usable_key(text).ok().map(|key| key.to_bytes())
}

pub(super) fn usable_key(text: &str) -> Result<VerifyingKey, Refusal> {
    let refused = |message: &str| {
        Refusal::of(ViolationKind::AttestationFailed, ATTESTATION_FAILED, message)
            .hint("send the 32 bytes of an Ed25519 public key in base64, or the key in PEM form")
    };
    let key =
        decode(text).ok_or_else(|| refused("the public key is no Ed25519 key in a form that is known"))?;
    // One that anybody can sign for.
    if key.is_weak() {
        return Err(refused("the public key is of small order: signatures by it prove nothing"));
    }
    Ok(key)
}

/// Every form that clients send: base64 and base64url of the raw key, base64 of SPKI, PEM, and the raw bytes as text.
fn decode(text: &str) -> Option<VerifyingKey> {
    let text = text.trim();
    if text.starts_with("-----BEGIN") {
        return VerifyingKey::from_public_key_pem(text).ok();
    }
    let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok();
    let raw: [u8; 32] = match decoded.as_deref() {
        Some(bytes) if bytes.len() == 32 => bytes.try_into().ok()?,
        Some(bytes) if bytes.len() == 44 => bytes.strip_prefix(&SPKI)?.try_into().ok()?,
        _ => text.as_bytes().try_into().ok()?,
    };
    VerifyingKey::from_bytes(&raw).ok()
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::{
        SigningKey,
        pkcs8::{EncodePublicKey, spki::der::pem::LineEnding},
    };
    use serde_json::json;

    use super::*;

    fn key() -> VerifyingKey {
        SigningKey::from_bytes(&[7; 32]).verifying_key()
    }

    #[test]
    fn every_form_of_a_key_is_the_same_key() {
        let raw = key().to_bytes();
        let spki = [SPKI.as_slice(), &raw].concat();
        let forms = [
            STANDARD.encode(raw),
            URL_SAFE_NO_PAD.encode(raw),
            STANDARD.encode(&spki),
            key().to_public_key_pem(LineEnding::LF).unwrap(),
            key().to_public_key_pem(LineEnding::CRLF).unwrap(),
        ];
        for form in forms {
            for name in ["public_key", "public_key_pem", "agent_public_key"] {
                let body = json!({name: form, "security_context": "research"});
                let read = Attestation::parse(body.to_string().as_bytes()).unwrap();
                assert_eq!(read.public_key(), &raw, "{form}");
            }
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let hex = key().to_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let long = STANDARD.encode([7; 33]);
        let rsa = "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----";
        for text in ["", " ", "key", hex.as_str(), long.as_str(), rsa] {
            let body = json!({"public_key": text});
            let refusal = Attestation::parse(body.to_string().as_bytes()).unwrap_err();
            assert_eq!(refusal.seal_code, Some(ATTESTATION_FAILED), "{text}");
        }
    }

    #[test]
    fn keys_of_small_order_are_refused() {
        // The identity, the point of order two, and two of order eight.
        let identity = {
            let mut bytes = [0; 32];
            bytes[0] = 1;
            bytes
        };
        let two = {
            let mut bytes = [0xff; 32];
            bytes[0] = 0xec;
            bytes[31] = 0x7f;
            bytes
        };
        let eight = [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
            0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
        ];
        for bytes in [identity, two, [0; 32], eight] {
            let refusal = usable_key(&STANDARD.encode(bytes)).unwrap_err();
            assert!(
                refusal.violation.message.contains("small order"),
                "{bytes:?}: {}",
                refusal.violation.message
            );
        }
    }

    #[test]
    fn bodies_that_make_no_sense() {
        let good = STANDARD.encode(key().to_bytes());
        for body in [
            String::new(),
            "[]".into(),
            "{}".into(),
            json!({"public_key": 1}).to_string(),
            json!({"public_key": good, "workload_id": {}}).to_string(),
            json!({"public_key": good, "agent_public_key": STANDARD.encode([9; 32])}).to_string(),
            format!("{{\"public_key\":\"{good}\",\"public_key\":\"{good}\"}}"),
            format!("{{\"public_key\":\"{good}\",\"note\":\"{}\"}}", "x".repeat(LONGEST)),
        ] {
            let refusal = Attestation::parse(body.as_bytes()).unwrap_err();
            assert_eq!(
                refusal.violation.kind,
                ViolationKind::MalformedEnvelope,
                "{}",
                &body[..body.len().min(80)]
            );
        }
    }
}
