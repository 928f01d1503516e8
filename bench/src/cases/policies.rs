//! What policies cost a call they do not speak of, and what the shipped rules about labels cost any call.

use std::fs;

use serde_json::{Value, json};

use super::mcp_read::{CONNECTIONS, landmark};
use crate::{
    echo,
    load::Load,
    node::{Node, Site},
    rounds::Rounds,
    table::{Figure, Goal, Row, time},
    tokens, wire,
    workplace::Workplace,
};

pub(super) const OTHERS: &str = "cedar-others";
pub(super) const LABEL_RULES: &str = "label-rules";
const FILE: &str = "/workspace/notes/d.txt";
/// Policies about tools that are not called.
const COUNT: usize = 1000;

/// A read on a node with a thousand policies about other tools, against one without any.
pub(super) fn others(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let many = Measured::start(place, "cedar-many", &json!({}), &policies())?;
    let none = Measured::start(place, "cedar-none", &json!({}), "")?;
    let read = ("fs.read", json!({"path": FILE}), landmark(&echo::text()));
    let row = compare(
        place,
        OTHERS,
        "fs.read with 1,000 Cedar policies on other tools",
        &many,
        &none,
        &read,
        1.02,
    )?;
    many.stop()?;
    none.stop()?;
    Ok(vec![row])
}

/// The same calls with the rules about labels as they ship, against none.
pub(super) fn label_rules(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let on = Measured::start(place, "labels-on", &json!({}), "")?;
    let off = Measured::start(place, "labels-off", &json!({"policy": {"label_rules": "off"}}), "")?;
    let read = ("fs.read", json!({"path": FILE}), landmark(&echo::text()));
    let make = ("fs.create_dir", json!({"path": "/workspace/notes"}), "notes".to_owned());
    let rows = vec![
        compare(place, LABEL_RULES, "fs.read with the label rules on", &on, &off, &read, 1.03)?,
        compare(place, LABEL_RULES, "fs.create_dir with the label rules on", &on, &off, &make, 1.03)?,
    ];
    on.stop()?;
    off.stop()?;
    Ok(rows)
}

/// Half of them look at the caller only, half at arguments.
fn policies() -> String {
    (0..COUNT)
        .map(|number| {
            let condition = if number % 2 == 0 {
                format!("principal.user == \"nobody-{number}\"")
            } else {
                format!("context.paths.contains(\"/workspace/closed/{number}\")")
            };
            let tool = if number % 3 == 0 { "fs.delete" } else { "fs.write" };
            format!("forbid (principal, action == Action::\"{tool}\", resource) when {{ {condition} }};\n")
        })
        .collect()
}

struct Measured {
    site: Site,
    node: Node,
    token: String,
}

impl Measured {
    fn start(place: &Workplace, name: &str, spec: &Value, policies: &str) -> anyhow::Result<Self> {
        let site = Site::configured(place, name, spec)?;
        let token = tokens::make(&site.data(), 1)?.remove(0);
        if !policies.is_empty() {
            fs::create_dir(site.data().join("policies"))?;
            fs::write(site.data().join("policies/others.cedar"), policies)?;
        }
        let node = site.start(place)?;
        node.write_file(&token, FILE, &echo::text())?;
        Ok(Self { site, node, token })
    }

    /// Seconds per call.
    fn cost(&self, place: &Workplace, call: &(&str, Value, String)) -> anyhow::Result<f64> {
        let (tool, arguments, expected) = call;
        let address = self.node.address;
        let requests = vec![wire::mcp_call(address, &self.token, tool, arguments); CONNECTIONS];
        let load =
            Load { address, connections: CONNECTIONS, requests: &requests, expected, time: place.slice() };
        Ok(1.0 / load.run()?.per_second())
    }

    fn stop(self) -> anyhow::Result<()> {
        self.node.server.stop()?;
        self.site.remove()
    }
}

fn compare(
    place: &Workplace,
    case: &'static str,
    what: &str,
    with: &Measured,
    without: &Measured,
    call: &(&str, Value, String),
    most: f64,
) -> anyhow::Result<Row> {
    let rounds = Rounds::take(
        place.rounds(),
        vec![Box::new(|| with.cost(place, call)), Box::new(|| without.cost(place, call))],
    )?;
    Ok(Row {
        case,
        what: format!("{what}, against without (lower is better)"),
        ours: time(rounds.median(0)),
        yardstick: time(rounds.median(1)),
        figure: Figure::Ratio(rounds.ratio(0, 1)),
        goal: Goal::AtMost(most),
    })
}
