use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Span;

/// Signed envelopes: who may attest, and how long a session lasts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SealConfig {
    /// `iss` of the tokens this node makes and takes.
    #[schemars(length(min = 1, max = 200))]
    pub issuer: String,
    /// `aud` of the tokens this node takes; the first is in those it makes.
    #[schemars(length(min = 1, max = 16))]
    pub audiences: Vec<String>,
    /// How long a session lasts; at most 24 hours.
    pub token_ttl: Span,
    /// How far an envelope's time may be from the node's, either way; at most 60 seconds.
    pub window: Span,
    /// Attestations a minute that one workload may ask for. Those by unknown workloads are counted together, and
    /// never hold up a known one.
    #[schemars(range(min = 1, max = 100_000))]
    pub attestations_per_minute: u32,
    /// Public keys of others whose tokens are taken beside the node's own, e.g. of a key management service.
    #[schemars(length(max = 16))]
    pub trusted_keys: Vec<TrustedKey>,
}

/// A key that verifies tokens and signs none here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustedKey {
    /// `kid` in the header of the tokens it signed.
    #[schemars(length(min = 1, max = 200))]
    pub kid: String,
    /// An Ed25519 key, for EdDSA, or an RSA key of 2048 bits or more, for RS256.
    pub public_key_pem: String,
}

impl SealConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = Vec::new();
        let mut wrong = |member: &str, message: &str| {
            mistakes.push((format!("/spec/seal/{member}"), message.to_owned()));
        };
        if self.issuer.trim().is_empty() {
            wrong("issuer", "an empty issuer would be taken from anybody: name one");
        }
        if self.audiences.is_empty() || self.audiences.iter().any(|audience| audience.trim().is_empty()) {
            wrong("audiences", "name at least one audience, and none empty");
        }
        if !(1..=24 * 3600).contains(&self.token_ttl.0.as_secs()) {
            wrong("token_ttl", "a session lasts from a second to 24 hours");
        }
        if !(1..=60).contains(&self.window.0.as_secs()) {
            wrong("window", "an envelope is fresh for 1 to 60 seconds");
        }
        for (index, key) in self.trusted_keys.iter().enumerate() {
            if key.kid.trim().is_empty()
                || self.trusted_keys[..index].iter().any(|other| other.kid == key.kid)
            {
                wrong(&format!("trusted_keys/{index}/kid"), "each key needs a name of its own");
            }
            if !key.public_key_pem.trim_start().starts_with("-----BEGIN ") {
                wrong(
                    &format!("trusted_keys/{index}/public_key_pem"),
                    "paste the key with its BEGIN and END lines",
                );
            }
        }
        mistakes
    }
}

impl Default for SealConfig {
    fn default() -> Self {
        Self {
            issuer: "aegis-orchestrator".into(),
            audiences: vec!["aegis-agents".into()],
            token_ttl: Span::seconds(3600),
            window: Span::seconds(30),
            attestations_per_minute: 60,
            trusted_keys: Vec::new(),
        }
    }
}
