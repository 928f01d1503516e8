//! Signing, without any network: for agents that have an HTTP client of their own.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signer, SigningKey};
use serde_json::{Map, Value, json};

use crate::{
    canonical::{canonical, message, write_string},
    error::Error,
};

/// The protocol's name, which stands in every envelope.
pub const PROTOCOL: &str = "seal/v1";

/// A key that exists for one session: made here, never written down, wiped from memory when dropped.
pub struct Key(SigningKey);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Key").field(&self.public()).finish()
    }
}

impl Key {
    pub fn fresh() -> Result<Self, Error> {
        let mut seed = zeroize::Zeroizing::new([0; 32]);
        getrandom::fill(seed.as_mut_slice()).map_err(|error| Error::Randomness(error.to_string()))?;
        Ok(Self::from_seed(&seed))
    }

    /// The key of a known seed: for keys that an orchestrator hands to the agent it starts, and for test vectors.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The public half as attestation wants it: base64 of the 32 bytes.
    pub fn public(&self) -> String {
        STANDARD.encode(self.0.verifying_key().as_bytes())
    }

    /// The body of `POST /v1/seal/attest`.
    pub fn attestation(&self, workload: &str, context: &str) -> Vec<u8> {
        json!({"public_key": self.public(), "workload_id": workload, "security_context": context})
            .to_string()
            .into_bytes()
    }

    /// The body of `POST /v1/seal/invoke`. An envelope is good for one use within half a minute of `at`.
    pub fn envelope(&self, token: &str, payload: &Value, at: SystemTime) -> Vec<u8> {
        let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let payload = canonical(payload);
        let signature = self.0.sign(message(&payload, token, at.as_secs()).as_bytes());
        let mut text = String::with_capacity(payload.len() + token.len() + 256);
        text.push_str("{\"protocol\":\"seal/v1\",\"security_token\":");
        write_string(&mut text, token);
        text.push_str(",\"signature\":\"");
        STANDARD.encode_string(signature.to_bytes(), &mut text);
        text.push_str("\",\"payload\":");
        text.push_str(&payload);
        text.push_str(",\"timestamp\":\"");
        text.push_str(&rfc3339(at));
        text.push_str("\"}");
        text.into_bytes()
    }
}

/// `tools/call`, with an id of its own.
pub fn call(tool: &str, arguments: &Map<String, Value>) -> Result<Value, Error> {
    Ok(json!({
        "jsonrpc": "2.0",
        "id": fresh_id()?,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }))
}

/// `tools/list`.
pub fn list() -> Result<Value, Error> {
    Ok(json!({"jsonrpc": "2.0", "id": fresh_id()?, "method": "tools/list", "params": {}}))
}

/// Random, because two envelopes with the same text in one second are taken for a replay.
fn fresh_id() -> Result<String, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::Randomness(error.to_string()))?;
    Ok(format!("req-{:016x}", u64::from_be_bytes(bytes)))
}

/// `YYYY-MM-DDTHH:MM:SS.mmmZ`.
fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        time / 3600,
        time / 60 % 60,
        time % 60,
        since_epoch.subsec_millis()
    )
}

/// The Gregorian date of a day counted from 1970-01-01. Years are counted from March, so that the odd day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_771_338_721, "2026-02-17T14:32:01.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert_eq!(rfc3339(Duration::from_millis(1_771_338_721_583)), "2026-02-17T14:32:01.583Z");
    }

    #[test]
    fn a_key_does_not_print_its_secret() {
        let key = Key::from_seed(&[7; 32]);
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.public()) && !shown.contains("7, 7"), "{shown}");
    }
}
