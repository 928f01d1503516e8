//! The load of `mcp-read` on nodes that know few tokens or many, and have few audit records behind them or many. What
//! a call costs must not depend on it.

use std::{cell::Cell, time::Duration};

use serde_json::json;

use super::mcp_read::{CONNECTIONS, landmark};
use crate::{
    echo,
    load::Load,
    node::{Node, Site},
    records,
    rounds::{Contender, Rounds},
    table::{Figure, Goal, Row, time, whole},
    tokens, wire,
    words::Random,
    workplace::Workplace,
};

pub(super) const NAME: &str = "flat";
const FILE: &str = "/workspace/notes/c.txt";
/// Within 10 %.
const GOAL: Goal = Goal::AtMost(1.1);

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let mut rows = by_tokens(place)?;
    rows.extend(by_records(place)?);
    Ok(rows)
}

struct Known {
    count: usize,
    tokens: Vec<String>,
    site: Site,
    node: Node,
}

fn by_tokens(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let most = usize::try_from(place.scaled(100_000, 10_000))?;
    let text = echo::text();
    let mut known = Vec::new();
    for count in [10, 1000, most] {
        let site = Site::new(place, &format!("tokens-{count}"))?;
        let tokens = tokens::make(&site.data(), count)?;
        let node = site.start(place)?;
        node.write_file(&tokens[0], FILE, &text)?;
        known.push(Known { count, tokens, site, node });
    }
    let expected = landmark(&text);
    let mut contenders: Vec<Contender<'_>> = Vec::new();
    for (index, each) in known.iter().enumerate() {
        let mut random = Random::new(index as u64);
        let expected = expected.as_str();
        // Each connection of each round has a token of its own.
        contenders.push(Box::new(move || {
            let one = || each.tokens[random.below(each.tokens.len())].as_str();
            let tokens: Vec<&str> = std::iter::repeat_with(one).take(CONNECTIONS).collect();
            cost(&each.node, &tokens, expected, place.slice())
        }));
    }
    // And the worst case: no two calls in a row with the same token, so that no cache of reasonable size holds them.
    let last = &known[known.len() - 1];
    contenders.push(Box::new(|| {
        let tokens: Vec<&str> = last.tokens.iter().map(String::as_str).collect();
        cost(&last.node, &tokens, &expected, place.slice())
    }));
    let rounds = Rounds::take(place.rounds(), contenders)?;

    let row = |contender, what: String, goal| Row {
        case: NAME,
        what: format!("{what} (lower is better)"),
        ours: time(rounds.median(contender)),
        yardstick: time(rounds.median(0)),
        figure: Figure::Ratio(rounds.ratio(contender, 0)),
        goal,
    };
    let named = |count: usize| format!("cost of a call, {} tokens known against 10", whole(count as f64));
    let rows = vec![
        row(1, named(known[1].count), GOAL),
        row(2, named(known[2].count), GOAL),
        row(3, format!("the same, another of the {} at each call", whole(most as f64)), Goal::Information),
    ];
    for Known { site, node, .. } in known {
        node.server.stop()?;
        site.remove()?;
    }
    Ok(rows)
}

/// Seconds per call.
fn cost(node: &Node, tokens: &[&str], expected: &str, time: Duration) -> anyhow::Result<f64> {
    let request = |token: &&str| wire::mcp_call(node.address, token, "fs.read", &json!({"path": FILE}));
    let requests: Vec<Vec<u8>> = tokens.iter().map(request).collect();
    let load = Load { address: node.address, connections: CONNECTIONS, requests: &requests, expected, time };
    Ok(1.0 / load.run()?.per_second())
}

fn by_records(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let most = place.record_count();
    let few = Site::new(place, "few-records")?;
    records::fill(&few.data(), 10_000)?;
    let many = place.many_records()?.copy(place, "many-records-used")?;
    let text = echo::text();
    let number = Cell::new(0);
    // Each call leaves a record, so that ten thousand would soon be more: both nodes start anew each round, the one
    // with few records on a fresh copy.
    let costs = |site: &Site| -> anyhow::Result<f64> {
        let tokens = tokens::make(&site.data(), 1)?;
        let node = site.start(place)?;
        node.write_file(&tokens[0], FILE, &text)?;
        let slice = place.slice() / 3;
        let expected = landmark(&text);
        cost(&node, &[tokens[0].as_str(); CONNECTIONS], &expected, slice / 4)?;
        let measured = cost(&node, &[tokens[0].as_str(); CONNECTIONS], &expected, slice)?;
        node.server.stop()?;
        Ok(measured)
    };
    let rounds = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| {
                number.set(number.get() + 1);
                let site = few.copy(place, &format!("few-records-{}", number.get()))?;
                let measured = costs(&site)?;
                site.remove()?;
                Ok(measured)
            }),
            Box::new(|| costs(&many)),
        ],
    )?;
    few.remove()?;
    many.remove()?;
    Ok(vec![Row {
        case: NAME,
        what: format!(
            "cost of a call, {} audit records behind it against 10,000 (lower is better)",
            whole(most as f64)
        ),
        ours: time(rounds.median(1)),
        yardstick: time(rounds.median(0)),
        figure: Figure::Ratio(rounds.ratio(1, 0)),
        goal: GOAL,
    }])
}
