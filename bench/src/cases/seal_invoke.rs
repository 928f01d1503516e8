//! A signed call of a built-in tool (envelope, session, replay, policy, audit, everything on defaults) against a bare
//! handler that reads the envelope and verifies one signature.

use std::{
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aegis_seal_client::{Key, answer};
use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::{
    bare_seal::BareSeal,
    load::{Client, Load},
    node::{Node, Site},
    rounds::Rounds,
    table::{Figure, Goal, Row, per_second},
    wire,
    workplace::Workplace,
};

pub(super) const NAME: &str = "seal-invoke";
const CONNECTIONS: usize = 16;
const CONTEXT: &str = "workspace";
const TOOL: &str = "aegis.runtime.list";
/// Part of every good answer.
const EXPECTED: &str = "custom_runtime_supported";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let site = Site::new(place, NAME)?;
    let node = site.start(place)?;
    let session = Session::open(&site, &node)?;
    let sample = Client::open(node.address)?.call(&session.signed(node.address)?)?.to_vec();
    let bare = BareSeal::start(place, &session.key.public(), &sample)?;

    // An envelope is good for one use within half a minute, so each round signs its own, before the clock runs.
    let count = usize::try_from(place.scaled(24_000, 2_000))?;
    let calls = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| per_round(node.address, count, || session.signed(node.address))),
            Box::new(|| per_round(bare.address, count, || session.counted(bare.address))),
        ],
    )?;
    node.server.stop()?;
    site.remove()?;
    Ok(vec![Row {
        case: NAME,
        what: format!("{TOOL}, {CONNECTIONS} connections, against a bare handler that verifies a signature"),
        ours: per_second(calls.median(0), "calls"),
        yardstick: per_second(calls.median(1), "calls"),
        figure: Figure::Ratio(calls.ratio(0, 1)),
        goal: Goal::AtLeast(0.6),
    }])
}

fn per_round(
    address: SocketAddr,
    count: usize,
    request: impl Fn() -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<f64> {
    let requests = (0..count).map(|_| request()).collect::<anyhow::Result<Vec<_>>>()?;
    let time = Duration::MAX;
    let load = Load { address, connections: CONNECTIONS, requests: &requests, expected: EXPECTED, time };
    Ok(load.run_once()?.per_second())
}

struct Session {
    key: Key,
    token: String,
}

impl Session {
    /// Enrols a workload as the operator, and attests as that workload.
    fn open(site: &Site, node: &Node) -> anyhow::Result<Self> {
        let operator = std::fs::read_to_string(site.data().join("operator.token"))?;
        let wanted = json!({"contexts": [CONTEXT], "user": "agent-0"});
        let enrol =
            wire::post(node.address, "/v1/seal/enrolments", Some(operator.trim()), "", &wanted.to_string());
        let mut client = Client::open(node.address)?;
        let enrolled: Value = serde_json::from_slice(client.call(&enrol)?)?;
        let workload = enrolled["workload_id"].as_str().context("the workload was not enrolled")?;
        let key = Key::fresh()?;
        let body = String::from_utf8(key.attestation(workload, CONTEXT))?;
        let attest = wire::post(node.address, "/v1/seal/attest", None, "", &body);
        let attested = answer::attested(200, client.call(&attest)?)?;
        Ok(Self { key, token: attested.token })
    }

    fn envelope(&self) -> anyhow::Result<String> {
        let arguments = Map::from_iter([("language".to_owned(), json!("python"))]);
        let payload = aegis_seal_client::call(TOOL, &arguments)?;
        Ok(String::from_utf8(self.key.envelope(&self.token, &payload, SystemTime::now()))?)
    }

    fn signed(&self, address: SocketAddr) -> anyhow::Result<Vec<u8>> {
        Ok(wire::post(address, "/v1/seal/invoke", None, "", &self.envelope()?))
    }

    /// As the bare handler wants it: the second as a number, which spares it a calendar.
    fn counted(&self, address: SocketAddr) -> anyhow::Result<Vec<u8>> {
        let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map(|since| since.as_secs());
        loop {
            let before = seconds(SystemTime::now())?;
            let envelope = self.envelope()?;
            // Signed within one second, so the number is that of the signature.
            if seconds(SystemTime::now())? == before {
                let (rest, _) = envelope.split_once(",\"timestamp\":").context("an envelope has a time")?;
                let body = format!("{rest},\"timestamp\":{before}}}");
                return Ok(wire::post(address, "/v1/seal/invoke", None, "", &body));
            }
        }
    }
}
