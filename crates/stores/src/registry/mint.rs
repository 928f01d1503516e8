//! Secrets that are shown once and kept as a hash, and the public handles that go with them.

use aegis_core::{Secret, id::CredentialId};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sha2::{Digest, Sha256};

use super::RegistryError;

/// 32 random bytes in base64url.
const RANDOM: usize = 43;

/// A new secret that begins with `prefix`, and its hash.
pub(super) fn secret(prefix: &str) -> Result<(Secret, [u8; 32]), RegistryError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(RegistryError::Randomness)?;
    let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(random));
    let hash = Sha256::digest(&text).into();
    Ok((Secret::new(text), hash))
}

/// None for text that can't be such a secret, which then costs no lookup.
pub(super) fn hash_of(prefix: &str, text: &str) -> Option<[u8; 32]> {
    let random = text.strip_prefix(prefix)?;
    let shaped = random.len() == RANDOM
        && random.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    shaped.then(|| Sha256::digest(text).into())
}

/// A public handle, which has nothing to do with the secret's own text.
pub(super) fn handle(prefix: &str) -> Result<CredentialId, RegistryError> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(RegistryError::Randomness)?;
    Ok(CredentialId::new(format!("{prefix}{:016x}", u64::from_be_bytes(random))))
}
