//! A governed read of 1 KiB over MCP (all gates, labels, audit, everything on defaults) against a bare MCP server that
//! answers the same requests with the same text.

use std::{
    cell::{Cell, RefCell},
    net::SocketAddr,
    time::Duration,
};

use serde_json::json;

use crate::{
    echo::{self, EchoServer},
    load::{Answered, Load},
    node::{Node, Site},
    process::Server,
    rounds::{Rounds, percentile},
    table::{Figure, Goal, Row, per_second, time},
    tokens, wire,
    workplace::Workplace,
};

pub(super) const NAME: &str = "mcp-read";
pub(super) const CONNECTIONS: usize = 16;
const FILE: &str = "/workspace/notes/a.txt";

/// Enough of the text to know it by: no answer without it is a success. One line, which looks the same in JSON.
pub(super) fn landmark(text: &str) -> String {
    text.lines().max_by_key(|line| line.len()).unwrap_or_default().to_owned()
}

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let site = Site::new(place, NAME)?;
    let token = tokens::make(&site.data(), 1)?.remove(0);
    let node = site.start(place)?;
    let text = echo::text();
    node.write_file(&token, FILE, &text)?;
    let bare = EchoServer::start(place)?;

    let ours = Target::new(&node.server, node.address, &token, &text);
    let theirs = Target::new(&bare.server, bare.address, &token, &text);
    let slice = place.slice();
    let calls = Rounds::take(
        place.rounds(),
        vec![Box::new(|| ours.calls_per_second(slice)), Box::new(|| theirs.calls_per_second(slice))],
    )?;
    // Processor time is read from /proc in steps of 10 ms: over all rounds that is exact enough.
    let processor = (ours.cpu_per_call(), theirs.cpu_per_call());

    let alone = slice / 3;
    let (mut p99_ours, mut p99_theirs) = (Vec::new(), Vec::new());
    let middle = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| ours.median_latency(alone, &mut p99_ours)),
            Box::new(|| theirs.median_latency(alone, &mut p99_theirs)),
        ],
    )?;
    let slowest = Rounds::of(vec![p99_ours, p99_theirs]);
    let resident = node.server.resident_mebibytes()?;
    stop(node, site)?;

    let latency = |what: &str, rounds: &Rounds| Row {
        case: NAME,
        what: format!("latency of one connection, {what} (lower is better)"),
        ours: time(rounds.median(0)),
        yardstick: time(rounds.median(1)),
        figure: Figure::Ratio(rounds.ratio(0, 1)),
        goal: Goal::Information,
    };
    Ok(vec![
        Row {
            case: NAME,
            what: format!("fs.read 1 KiB, {CONNECTIONS} connections, against a bare rmcp echo"),
            ours: per_second(calls.median(0), "calls"),
            yardstick: per_second(calls.median(1), "calls"),
            figure: Figure::Ratio(calls.ratio(0, 1)),
            goal: Goal::AtLeast(0.6),
        },
        Row {
            case: NAME,
            what: "processor time per call (lower is better)".into(),
            ours: time(processor.0),
            yardstick: time(processor.1),
            figure: Figure::Ratio(Rounds::of(vec![vec![processor.0], vec![processor.1]]).ratio(0, 1)),
            goal: Goal::Information,
        },
        latency("median", &middle),
        latency("99th percentile", &slowest),
        Row {
            case: NAME,
            what: "memory of the node after this load".into(),
            ours: format!("{resident:.1} MiB"),
            yardstick: "–".into(),
            figure: Figure::Mebibytes(resident),
            goal: Goal::Information,
        },
    ])
}

fn stop(node: Node, site: Site) -> anyhow::Result<()> {
    node.server.stop()?;
    site.remove()
}

/// A server under load.
struct Target<'a> {
    server: &'a Server,
    address: SocketAddr,
    requests: Vec<Vec<u8>>,
    expected: String,
    cpu: Cell<f64>,
    calls: RefCell<u64>,
}

impl<'a> Target<'a> {
    fn new(server: &'a Server, address: SocketAddr, token: &str, text: &str) -> Self {
        let request = wire::mcp_call(address, token, "fs.read", &json!({"path": FILE}));
        Self {
            server,
            address,
            requests: vec![request; CONNECTIONS],
            expected: landmark(text),
            cpu: Cell::new(0.0),
            calls: RefCell::new(0),
        }
    }

    fn load(&self, connections: usize, time: Duration) -> anyhow::Result<Answered> {
        let requests = &self.requests;
        Load { address: self.address, connections, requests, expected: &self.expected, time }.run()
    }

    fn calls_per_second(&self, time: Duration) -> anyhow::Result<f64> {
        let before = self.server.cpu_seconds()?;
        let answered = self.load(CONNECTIONS, time)?;
        self.cpu.set(self.cpu.get() + self.server.cpu_seconds()? - before);
        *self.calls.borrow_mut() += answered.calls;
        Ok(answered.per_second())
    }

    fn cpu_per_call(&self) -> f64 {
        self.cpu.get() / *self.calls.borrow() as f64
    }

    fn median_latency(&self, time: Duration, slowest: &mut Vec<f64>) -> anyhow::Result<f64> {
        let mut answered = self.load(1, time)?;
        slowest.push(percentile(&mut answered.times, 0.99).as_secs_f64());
        Ok(percentile(&mut answered.times, 0.5).as_secs_f64())
    }
}
