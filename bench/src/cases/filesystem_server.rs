//! A governed read of 4 KiB against npm `@modelcontextprotocol/server-filesystem`, which governs and records nothing.

use std::fs;

use serde_json::json;

use super::mcp_read::{CONNECTIONS, landmark};
use crate::{
    filesystem_server::{FilesystemServer, PACKAGE},
    load::Load,
    node::Site,
    rounds::Rounds,
    table::{Figure, Goal, Row, per_second},
    tokens, wire,
    words::Words,
    workplace::Workplace,
};

pub(super) const NAME: &str = "filesystem-server";
const FILE: &str = "/workspace/notes/b.txt";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let row = |ours, yardstick, figure| Row {
        case: NAME,
        what: format!("fs.read 4 KiB, {CONNECTIONS} in flight, against {PACKAGE}"),
        ours,
        yardstick,
        figure,
        goal: Goal::AtLeast(10.0),
    };
    let directory = place.path().join("served");
    fs::create_dir(&directory)?;
    let mut theirs = match FilesystemServer::start(&directory) {
        Ok(theirs) => theirs,
        // It needs node, npm and, once, a registry: a machine without them can still run the other cases.
        Err(error) => return Ok(vec![row("–".into(), format!("not available: {error:#}"), Figure::Missing)]),
    };
    let text = Words::new(4096).text(4096);
    let (copy, expected) = (directory.join("b.txt"), landmark(&text));
    fs::write(&copy, &text)?;

    let site = Site::new(place, NAME)?;
    let token = tokens::make(&site.data(), 1)?.remove(0);
    let node = site.start(place)?;
    node.write_file(&token, FILE, &text)?;
    let requests = vec![wire::mcp_call(node.address, &token, "fs.read", &json!({"path": FILE})); CONNECTIONS];
    let ours = Load {
        address: node.address,
        connections: CONNECTIONS,
        requests: &requests,
        expected: &expected,
        time: place.slice(),
    };
    let calls = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| Ok(ours.run()?.per_second())),
            Box::new(|| theirs.read_for(place.slice(), CONNECTIONS, &copy, &expected)),
        ],
    )?;
    node.server.stop()?;
    site.remove()?;
    let shown = |contender| per_second(calls.median(contender), "calls");
    Ok(vec![row(shown(0), shown(1), Figure::Ratio(calls.ratio(0, 1)))])
}
