//! The client against the vectors that every implementation shares.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::time::{Duration, UNIX_EPOCH};

use aegis_seal_client::Key;
use serde_json::Value;

/// Numbers that other languages write in another way than ours: a matter of how the payload came to be, not of how it
/// is signed.
const NUMBERS: [&str; 3] = ["floats_integral", "floats_exponent", "large_integers"];
/// 2026-02-17T14:32:01.583Z, the time of all vectors.
const MILLIS: u64 = 1_771_338_721_583;

/// The keys of the vectors: the first of RFC 8032, and two that anybody can remember.
fn keys() -> [Key; 3] {
    let rfc = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    let rfc: Vec<u8> =
        (0..64).step_by(2).map(|at| u8::from_str_radix(&rfc[at..at + 2], 16).unwrap()).collect();
    let counting = std::array::from_fn(|index| u8::try_from(index).unwrap());
    [rfc.try_into().unwrap(), [1; 32], counting].map(|seed| Key::from_seed(&seed))
}

#[test]
fn signatures_are_those_of_the_vectors() {
    let file: Value = serde_json::from_str(include_str!("../../../corpus/seal/vectors.json")).unwrap();
    let at = UNIX_EPOCH + Duration::from_millis(MILLIS);
    let keys = keys();
    let mut seen = 0;
    for vector in file["signing"].as_array().unwrap() {
        let name = vector["name"].as_str().unwrap();
        if NUMBERS.contains(&name) {
            continue;
        }
        let key = keys.iter().find(|key| vector["public_key"] == key.public().as_str()).unwrap();
        let body = vector["python"]["bodies"][0].as_str().unwrap();
        let theirs: Value = serde_json::from_str(body).unwrap();
        let token = theirs["security_token"].as_str().unwrap();
        let ours: Value = serde_json::from_slice(&key.envelope(token, &theirs["payload"], at)).unwrap();
        assert_eq!(ours, theirs, "{name}");
        seen += 1;
    }
    assert_eq!(seen, 16);
}
