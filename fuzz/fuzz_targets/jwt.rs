//! Whatever is sent as a token: it is answered, and only the one good token is taken.
#![no_main]

use std::sync::LazyLock;

use aegis_core::config::TrustedKey;
use aegis_gates::identity::seal::{
    Ring,
    token::{Terms, verify},
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

static GOOD: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../corpus/seal/rs256.json")).expect("JSON")
});
static RING: LazyLock<Ring> = LazyLock::new(|| {
    let text = |member: &str| GOOD[member].as_str().expect("text").to_owned();
    let key = TrustedKey { kid: text("kid"), public_key_pem: text("public_key_pem") };
    Ring::trusting(&[key]).expect("a key")
});
static TERMS: LazyLock<Terms> = LazyLock::new(|| Terms {
    issuer: "aegis-orchestrator".to_owned(),
    audiences: vec!["aegis-agents".to_owned()],
});
/// Within the good token's time.
const NOW: u64 = 1_771_338_721;

fuzz_target!(|data: (u16, &str)| {
    let (at, text) = data;
    let good = GOOD["token"].as_str().expect("text");
    assert!(verify(good, &RING, &TERMS, NOW).is_ok());
    assert!(verify(text, &RING, &TERMS, NOW).is_err() || text == good);
    // The good one with something else in its midst.
    let at = usize::from(at) % good.len();
    let end = (at + text.len()).min(good.len());
    let changed = format!("{}{text}{}", &good[..at], &good[end..]);
    assert!(verify(&changed, &RING, &TERMS, NOW).is_err() || changed == good);
});
