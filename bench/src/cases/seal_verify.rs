//! What the SEAL gate does with an envelope (read, canonicalise, signature, token, replay) against nothing but
//! `verify_strict` over the same bytes.

use std::{cell::RefCell, time::Instant};

use anyhow::Context;
use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use serde_json::Value;

use crate::{
    rounds::Rounds,
    seal_gate::{Gate, SIGNED, Signed},
    table::{Figure, Goal, Row, time},
    workplace::Workplace,
};

pub(super) const NAME: &str = "seal-verify";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let count = usize::try_from(place.scaled(4000, 500))?;
    let cold_count = count / 4;
    let (warm_gate, cold_gate) = (RefCell::new(Gate::with(1)?), RefCell::new(Gate::with(0)?));
    let raw_gate = RefCell::new(Gate::with(1)?);
    let warm = || {
        let mut gate = warm_gate.borrow_mut();
        let token = gate.tokens[0].clone();
        let envelopes = (0..count).map(|_| gate.sign(&token)).collect::<anyhow::Result<Vec<_>>>()?;
        gate.verify(&envelopes)
    };
    // Each session's first envelope: its token has not been looked at yet.
    let cold = || {
        let mut gate = cold_gate.borrow_mut();
        gate.open(cold_count)?;
        let tokens = std::mem::take(&mut gate.tokens);
        let envelopes = tokens.iter().map(|token| gate.sign(token)).collect::<anyhow::Result<Vec<_>>>()?;
        gate.verify(&envelopes)
    };
    let raw = || {
        let mut gate = raw_gate.borrow_mut();
        let token = gate.tokens[0].clone();
        let envelopes = (0..count).map(|_| gate.sign(&token)).collect::<anyhow::Result<Vec<_>>>()?;
        bare(&gate.key.public(), &envelopes)
    };
    let seconds = Rounds::take(place.rounds(), vec![Box::new(warm), Box::new(cold), Box::new(raw)])?;
    let row = |contender, what: &str, goal| Row {
        case: NAME,
        what: format!("{what}, {SIGNED} signed bytes, against verify_strict of as many (lower is better)"),
        ours: time(seconds.median(contender)),
        yardstick: time(seconds.median(2)),
        figure: Figure::Ratio(seconds.ratio(contender, 2)),
        goal: Goal::AtMost(goal),
    };
    Ok(vec![row(0, "an envelope of a session in use", 1.2), row(1, "a session's first envelope", 2.2)])
}

/// Seconds per signature.
fn bare(public: &str, envelopes: &[Signed]) -> anyhow::Result<f64> {
    let key: [u8; 32] = STANDARD.decode(public)?.try_into().ok().context("not a key")?;
    let key = VerifyingKey::from_bytes(&key)?;
    let mut signed = Vec::new();
    for envelope in envelopes {
        let body: Value = serde_json::from_slice(&envelope.body)?;
        let signature = STANDARD.decode(body["signature"].as_str().context("not signed")?)?;
        signed.push((envelope.message.as_slice(), Signature::from_slice(&signature)?));
    }
    let begun = Instant::now();
    for (message, signature) in &signed {
        key.verify_strict(message, signature)?;
    }
    Ok(begun.elapsed().as_secs_f64() / signed.len() as f64)
}
