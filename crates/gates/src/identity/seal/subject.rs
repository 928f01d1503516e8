//! Tokens that stand for a caller at an authorization server, where they are exchanged for one that a server takes.
//! They are of another type than the node's own tokens, which no door here takes for one.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use aegis_core::{
    Secret,
    secret::{Principal, SecretError, SubjectTokens},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::json;

use super::{SealGate, keys::KeyId};

/// Long enough for one exchange with a slow server and a clock that is a little off.
const LIFE: Duration = Duration::from_secs(120);
/// Not `JWT`, which is what the node's own tokens are.
const TYPE: &str = "aegis-subject+jwt";

impl SubjectTokens for SealGate {
    fn sign<'a>(
        &'a self,
        principal: &'a Principal,
        audience: &'a str,
        issuer: Option<&'a str>,
    ) -> Pin<Box<dyn Future<Output = Result<Secret, SecretError>> + Send + 'a>> {
        Box::pin(async move {
            let failed = |reason: String| SecretError::Unavailable {
                reference: "a token that stands for the caller".to_owned(),
                reason,
            };
            let now = self.now();
            if !self.inner.keys.can_sign() {
                let inner = Arc::clone(&self.inner);
                let made = tokio::task::spawn_blocking(move || inner.keys.ensure(now)).await;
                made.map_err(|error| failed(error.to_string()))?
                    .map_err(|error| failed(error.to_string()))?;
            }
            let mut id = [0; 16];
            getrandom::fill(&mut id).map_err(|error| failed(error.to_string()))?;
            let seconds = now.millis() / 1000;
            let claims = json!({
                "iss": issuer.unwrap_or(&self.inner.terms.issuer),
                "sub": principal.user,
                "tenant": principal.tenant,
                "aud": audience,
                "iat": seconds,
                "exp": seconds + LIFE.as_secs(),
                "jti": URL_SAFE_NO_PAD.encode(id),
            });
            let token = self.inner.keys.sign(|key, kid| Some(signed(&claims, key, kid)));
            token.map(Secret::new).ok_or_else(|| failed("there is no key to sign with".to_owned()))
        })
    }
}

fn signed(claims: &serde_json::Value, key: &SigningKey, kid: &KeyId) -> String {
    let header = json!({"alg": "EdDSA", "typ": TYPE, "kid": kid});
    let encode = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let mut token = format!("{}.{}", encode(&header), encode(claims));
    let signature = key.sign(token.as_bytes());
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature.to_bytes()));
    token
}
