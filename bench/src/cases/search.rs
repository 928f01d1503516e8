//! What `grep` and `glob` have in common: a governed call over plain HTTP, end to end, against a run of `rg`, on a large
//! tree and on one the size of a repository.

use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::{
    load::Client,
    node::{Node, Site},
    ripgrep::{self, Search},
    rounds::{Rounds, median},
    table::{Figure, Goal, Row, time},
    tokens,
    tree::{self, Tree},
    wire,
    workplace::Workplace,
};

/// A search takes milliseconds on the small tree; a round is the median of this many.
const REPEATS: usize = 15;

pub(super) fn measure(place: &Workplace, case: &'static str, search: Search) -> anyhow::Result<Vec<Row>> {
    let (tool, arguments) = match search {
        Search::Lines => ("fs.grep", json!({"pattern": tree::RARE_PATTERN, "path": "/workspace"})),
        Search::Names => ("fs.glob", json!({"pattern": tree::GLOB, "path": "/workspace"})),
    };
    let mut rows = Vec::new();
    for (tree, small) in [(place.large_tree()?, false), (place.repository()?, true)] {
        let site = Site::on_tree(place, &format!("{case}-{small}"), &tree.root)?;
        let token = tokens::make(&site.data(), 1)?.remove(0);
        let node = site.start(place)?;
        let mut ours = Ours::open(&node, &token, tool, &arguments)?;
        let there = same_hits(&mut ours, search, tree)?;

        // Names come from the directory tree alone, so even the large one takes milliseconds.
        let repeats = if small || matches!(search, Search::Names) { REPEATS } else { 1 };
        let seconds = Rounds::take(
            place.rounds(),
            vec![
                Box::new(|| repeated(repeats, || ours.search())),
                Box::new(|| repeated(repeats, || Ok(ripgrep::run(search, &tree.root)?.0))),
            ],
        )?;
        drop(ours);
        node.server.stop()?;
        site.remove()?;
        let described = tree.describe();
        let (what, figure, goal) = if small {
            let what = format!("{tool}, {described}, {there} hits: time (lower is better)");
            (what, seconds.ratio(0, 1), Goal::AtMost(1.3))
        } else {
            // Throughput is the inverse of time.
            let what = format!("{tool}, {described}, {there} hits: throughput");
            (what, seconds.ratio(1, 0), Goal::AtLeast(0.85))
        };
        let shown = |seconds: f64| match search {
            Search::Lines if !small => {
                format!("{} ({:.0} MB/s)", time(seconds), tree.bytes as f64 / 1e6 / seconds)
            }
            _ => time(seconds),
        };
        rows.push(Row {
            case,
            what,
            ours: shown(seconds.median(0)),
            yardstick: shown(seconds.median(1)),
            figure: Figure::Ratio(figure),
            goal,
        });
    }
    Ok(rows)
}

fn repeated(times: usize, mut once: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    Ok(median((0..times).map(|_| once()).collect::<anyhow::Result<_>>()?))
}

/// Both sides must find the same number of lines, or there is nothing to compare.
fn same_hits(ours: &mut Ours, search: Search, tree: &Tree) -> anyhow::Result<usize> {
    let found = ours.hits()?;
    let (_, theirs) = ripgrep::run(search, &tree.root)?;
    if found != theirs || found == 0 {
        bail!("the node found {found} lines and rg {theirs}");
    }
    Ok(found)
}

struct Ours {
    client: Client,
    request: Vec<u8>,
}

impl Ours {
    fn open(node: &Node, token: &str, tool: &str, arguments: &Value) -> anyhow::Result<Self> {
        let request = wire::rest_call(node.address, token, tool, arguments);
        Ok(Self { client: Client::open(node.address)?, request })
    }

    fn search(&mut self) -> anyhow::Result<f64> {
        let begun = Instant::now();
        self.client.call(&self.request)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn hits(&mut self) -> anyhow::Result<usize> {
        let answer: Value = serde_json::from_slice(self.client.call(&self.request)?)?;
        let text = answer["result"].as_str().with_context(|| format!("no text: {answer}"))?;
        Ok(text.lines().count())
    }
}
