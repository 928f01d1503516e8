//! One MCP server on standard input and output, behind our node with everything on, and behind other people's proxies
//! that govern and record nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::mcp_read::CONNECTIONS;
use crate::{
    filesystem_server::PipedServer,
    load::{Answered, Load, pause},
    node::Site,
    peers::{Kind, Peer},
    rounds::{Contender, Rounds, Spread, percentile},
    table::{Figure, Goal, Row, per_second, time},
    tokens, wire,
    words::Words,
    workplace::Workplace,
};

pub(super) const NAME: &str = "upstream";
const IDLE_SERVERS: usize = 20;

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let directory = place.path().join(NAME);
    std::fs::create_dir(&directory)?;
    let server = stdio_echo()?;
    let text = Words::new(256).text(256).replace('\n', " ");
    let mut peers: Vec<(Kind, Peer)> = Vec::new();
    let mut rows = Vec::new();
    for kind in Kind::EACH {
        match kind.start(&directory, &server, &text, CONNECTIONS) {
            Ok(peer) => peers.push((kind, peer)),
            // Each needs its language's tools and, once, a registry; the others are still compared.
            Err(error) => rows.push(missing(kind, &error)),
        }
    }

    let site = Site::configured(place, "upstream-node", &governed(&[described("echo", &server)]))?;
    let token = tokens::make(&site.data(), 1)?.remove(0);
    let node = site.start(place)?;
    let request = wire::mcp_call(node.address, &token, "echo", &json!({"text": text}));
    let mut direct = PipedServer::start(NAME, std::process::Command::new(&server[0]).args(&server[1..]))?;

    let ours = Behind { address: node.address, requests: vec![request; CONNECTIONS], text: &text };
    let theirs: Vec<Behind<'_>> = peers
        .iter()
        .map(|(_, peer)| Behind { address: peer.address, requests: peer.requests.clone(), text: &text })
        .collect();
    ours.wait_until_it_answers()?;

    let slice = place.slice();
    let mut contenders: Vec<Contender<'_>> = vec![Box::new(|| ours.rate(slice))];
    for one in &theirs {
        contenders.push(Box::new(move || one.rate(slice)));
    }
    let rates = Rounds::take(place.rounds().min(5), contenders)?;
    rows.extend(rate_rows(&rates, &peers));

    let mut middles: Vec<Vec<f64>> = vec![Vec::new(); theirs.len() + 2];
    let mut slowest = middles.clone();
    for _ in 0..place.rounds().min(5) {
        let mut times = vec![ours.alone(slice)?, direct_times(&mut direct, slice, &text)?];
        for one in &theirs {
            times.push(one.alone(slice)?);
        }
        for (contender, mut times) in times.into_iter().enumerate() {
            middles[contender].push(percentile(&mut times, 0.5).as_secs_f64());
            slowest[contender].push(percentile(&mut times, 0.99).as_secs_f64());
        }
    }
    rows.extend(added_rows(&middles, &slowest, &peers));
    drop(direct);
    node.server.stop()?;
    site.remove()?;
    rows.push(memory(place, &server, &peers)?);
    Ok(rows)
}

fn stdio_echo() -> anyhow::Result<Vec<String>> {
    let own = std::env::current_exe()?.display().to_string();
    Ok(vec![own, "yardstick".into(), "stdio-echo".into()])
}

fn described(name: &str, server: &[String]) -> Value {
    // The operator vouches for what the server says of its tool: a read waits for no disk.
    let tools = json!({"echo": {"mutability": "read_only"}});
    json!({"name": name, "executable": server[0], "args": server[1..], "capabilities": ["echo"], "tools": tools})
}

/// The context of the bench's tokens, which may call that one tool and nothing else.
fn governed(servers: &[Value]) -> Value {
    let context = json!({"name": tokens::CONTEXT, "capabilities": [{"tool_pattern": "echo"}]});
    json!({"mcp_servers": servers, "security_contexts": [context]})
}

fn missing(kind: Kind, error: &anyhow::Error) -> Row {
    Row {
        case: NAME,
        what: format!("against {}", kind.name()),
        ours: "–".into(),
        yardstick: format!("not available: {error:#}"),
        figure: Figure::Missing,
        goal: Goal::Information,
    }
}

/// The echo server behind something that speaks HTTP.
struct Behind<'a> {
    address: std::net::SocketAddr,
    /// One for each connection.
    requests: Vec<Vec<u8>>,
    text: &'a str,
}

impl Behind<'_> {
    fn load(&self, connections: usize, time: Duration) -> anyhow::Result<Answered> {
        let requests = &self.requests[..connections];
        Load { address: self.address, connections, requests, expected: self.text, time }.run()
    }

    fn rate(&self, time: Duration) -> anyhow::Result<f64> {
        Ok(self.load(CONNECTIONS, time)?.per_second())
    }

    /// How long each call took with nothing else going on.
    fn alone(&self, time: Duration) -> anyhow::Result<Vec<Duration>> {
        Ok(self.load(1, time / 3)?.times)
    }

    /// A node serves before the servers behind it have all started.
    fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            match self.load(1, Duration::from_millis(1)) {
                // On a busy machine the time may be up before anything was asked.
                Ok(answered) if answered.calls > 0 => return Ok(()),
                Err(error) if begun.elapsed() > Duration::from_secs(20) => return Err(error),
                _ => pause(Duration::from_millis(50))?,
            }
        }
    }
}

fn direct_times(server: &mut PipedServer, time: Duration, text: &str) -> anyhow::Result<Vec<Duration>> {
    let (begun, mut times) = (Instant::now(), Vec::new());
    while begun.elapsed() < time / 3 {
        let one = Instant::now();
        server.call("echo", &json!({"text": text}), text)?;
        times.push(one.elapsed());
    }
    Ok(times)
}

fn rate_rows(rates: &Rounds, peers: &[(Kind, Peer)]) -> Vec<Row> {
    let row = |contender: usize, name: &str, goal| Row {
        case: NAME,
        what: format!("governed calls, {CONNECTIONS} connections, against {name}"),
        ours: per_second(rates.median(0), "calls"),
        yardstick: per_second(rates.median(contender), "calls"),
        figure: Figure::Ratio(rates.ratio(0, contender)),
        goal,
    };
    let of = |(index, (kind, peer)): (usize, &(Kind, Peer))| {
        // The goal is about the best of the scripting languages, so each of them must be beaten by it.
        row(index + 1, peer.name, Goal::AtLeast(if kind.is_script() { 5.0 } else { 1.0 }))
    };
    peers.iter().enumerate().map(of).collect()
}

/// What a proxy adds to the direct call: contender 0 is ours, 1 the direct call.
fn added_rows(middles: &[Vec<f64>], slowest: &[Vec<f64>], peers: &[(Kind, Peer)]) -> Vec<Row> {
    let added = |figures: &[Vec<f64>], contender: usize| -> Vec<f64> {
        figures[contender]
            .iter()
            .zip(&figures[1])
            .map(|(behind, direct)| (behind - direct).max(1e-9))
            .collect()
    };
    let mut rows = Vec::new();
    for (what, figures, goal) in [
        ("added to the direct call, median", middles, Goal::Information),
        ("added to the direct call, 99th percentile", slowest, Goal::AtMost(0.2)),
    ] {
        for (index, (_, peer)) in peers.iter().enumerate() {
            let both = Rounds::of(vec![added(figures, 0), added(figures, index + 2)]);
            let spread: Spread = both.ratio(0, 1);
            rows.push(Row {
                case: NAME,
                what: format!("{what}, against {} (lower is better)", peer.name),
                ours: time(both.median(0)),
                yardstick: time(both.median(1)),
                figure: Figure::Ratio(spread),
                goal,
            });
        }
    }
    rows
}

fn memory(place: &Workplace, server: &[String], peers: &[(Kind, Peer)]) -> anyhow::Result<Row> {
    let servers: Vec<Value> = (0..IDLE_SERVERS)
        .map(|number| json!({"name": format!("echo-{number}"), "executable": server[0], "args": server[1..]}))
        .collect();
    let site = Site::configured(place, "upstream-many", &json!({"mcp_servers": servers}))?;
    let node = site.start(place)?;
    pause(Duration::from_secs(3))?;
    let ours = node.server.resident_mebibytes()?;
    node.server.stop()?;
    site.remove()?;
    let theirs: Vec<String> = peers
        .iter()
        .map(|(_, peer)| Ok(format!("{} {:.1} MiB", peer.name, peer.resident_mebibytes()?)))
        .collect::<anyhow::Result<_>>()?;
    Ok(Row {
        case: NAME,
        what: format!("memory of the node with {IDLE_SERVERS} servers, against proxies with one"),
        ours: format!("{ours:.1} MiB"),
        yardstick: theirs.join(", "),
        figure: Figure::Mebibytes(ours),
        goal: Goal::Information,
    })
}
