//! Security tokens: JWTs of a small, fixed kind. EdDSA and RS256 are taken, EdDSA is made; nothing else is read.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::{Signature, Signer, SigningKey};
use serde::{Deserialize, Serialize};

use super::keys::{KeyId, Material, Ring};

/// The longest token that is looked at.
const LONGEST: usize = 8 << 10;
/// No token lives longer.
const LONGEST_LIFE: u64 = 24 * 3600;

/// What a token says. All of it is bound to the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub aud: Audience,
    /// The agent.
    pub sub: String,
    /// The context.
    pub scp: String,
    /// The workload: an enrolment's or token's public handle, never its secret.
    pub wid: String,
    /// The session.
    pub jti: String,
    pub exec_id: String,
    pub tenant_id: String,
    pub iat: u64,
    pub exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Audience {
    fn names_one_of(&self, wanted: &[String]) -> bool {
        match self {
            Self::One(name) => wanted.contains(name),
            Self::Many(names) => names.iter().any(|name| wanted.contains(name)),
        }
    }
}

/// Whose tokens are taken, and for whom.
#[derive(Debug, Clone)]
pub struct Terms {
    pub issuer: String,
    pub audiences: Vec<String>,
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    #[error("it is no JWT")]
    Unreadable,
    #[error("its algorithm is neither EdDSA nor RS256, or not that of its key")]
    Algorithm,
    #[error("it names no key that this node trusts")]
    UnknownKey,
    #[error("its signature does not verify")]
    Signature,
    #[error("it was made by another issuer")]
    Issuer,
    #[error("it is meant for another audience")]
    Audience,
    #[error("its times make no sense")]
    Times,
    #[error("it has expired")]
    Expired,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    typ: Option<String>,
    /// Extensions that must be understood; none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crit: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    EdDsa,
    Rs256,
}

/// A token split into its parts, with a header that may be looked at further.
struct Parts<'a> {
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
    algorithm: Algorithm,
    kid: String,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, TokenFault> {
        if token.len() > LONGEST {
            return Err(TokenFault::Unreadable);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Unreadable)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenFault::Unreadable)?;
        let header: Header = part(header)?;
        let algorithm = match header.alg.as_str() {
            "EdDSA" => Algorithm::EdDsa,
            "RS256" => Algorithm::Rs256,
            _ => return Err(TokenFault::Algorithm),
        };
        if header.typ.is_none_or(|typ| !typ.eq_ignore_ascii_case("JWT")) || header.crit.is_some() {
            return Err(TokenFault::Unreadable);
        }
        let kid = header.kid.ok_or(TokenFault::UnknownKey)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenFault::Unreadable)?;
        Ok(Self { signed, claims, signature, algorithm, kid })
    }
}

fn part<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, TokenFault> {
    let json = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenFault::Unreadable)?;
    serde_json::from_slice(&json).map_err(|_| TokenFault::Unreadable)
}

/// The claims of a token that is good at this second.
pub fn verify(token: &str, ring: &Ring, terms: &Terms, now: u64) -> Result<Claims, TokenFault> {
    let parts = Parts::of(token)?;
    // The key decides which algorithm it is used with, never the token.
    match (ring.find(&parts.kid).ok_or(TokenFault::UnknownKey)?, parts.algorithm) {
        (Material::Ed25519(key), Algorithm::EdDsa) => {
            let signature = Signature::from_slice(&parts.signature).map_err(|_| TokenFault::Signature)?;
            key.verify_strict(parts.signed.as_bytes(), &signature).map_err(|_| TokenFault::Signature)?;
        }
        (Material::Rsa(key), Algorithm::Rs256) => {
            ring::signature::UnparsedPublicKey::new(&ring::signature::RSA_PKCS1_2048_8192_SHA256, key)
                .verify(parts.signed.as_bytes(), &parts.signature)
                .map_err(|_| TokenFault::Signature)?;
        }
        _ => return Err(TokenFault::Algorithm),
    }
    let claims: Claims = part(parts.claims)?;
    if claims.iss != terms.issuer {
        return Err(TokenFault::Issuer);
    }
    if !claims.aud.names_one_of(&terms.audiences) {
        return Err(TokenFault::Audience);
    }
    if claims.exp <= claims.iat || claims.exp - claims.iat > LONGEST_LIFE {
        return Err(TokenFault::Times);
    }
    // No leeway: a session's end is the node's own decision, by the node's own clock.
    if claims.exp <= now {
        return Err(TokenFault::Expired);
    }
    if claims.nbf.is_some_and(|from| from > now) {
        return Err(TokenFault::Times);
    }
    Ok(claims)
}

/// A token over these claims.
pub fn issue(claims: &Claims, key: &SigningKey, kid: &KeyId) -> Result<String, serde_json::Error> {
    let header =
        Header { alg: "EdDSA".into(), kid: Some(kid.to_string()), typ: Some("JWT".into()), crit: None };
    let encode = |json: Vec<u8>| URL_SAFE_NO_PAD.encode(json);
    let mut token =
        format!("{}.{}", encode(serde_json::to_vec(&header)?), encode(serde_json::to_vec(claims)?));
    let signature = key.sign(token.as_bytes());
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature.to_bytes()));
    Ok(token)
}
