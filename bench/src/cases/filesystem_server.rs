//! A governed read of 4 KiB against npm `@modelcontextprotocol/server-filesystem`, which governs and records nothing.

use std::{fs, path::Path};

use serde_json::json;

use super::mcp_read::{CONNECTIONS, landmark};
use crate::{
    filesystem_server::{PACKAGE, PipedServer, filesystem_server},
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
    let row = |carrier, ours, yardstick, figure| Row {
        case: NAME,
        what: format!("fs.read 4 KiB over {carrier}, {CONNECTIONS} in flight, against {PACKAGE}"),
        ours,
        yardstick,
        figure,
        goal: Goal::AtLeast(10.0),
    };
    let directory = place.path().join("served");
    fs::create_dir(&directory)?;
    let mut theirs = match filesystem_server(&directory) {
        Ok(theirs) => theirs,
        // It needs node, npm and, once, a registry: a machine without them can still run the other cases.
        Err(error) => {
            return Ok(vec![row("stdio", "–".into(), format!("not available: {error:#}"), Figure::Missing)]);
        }
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
    // The yardstick speaks over a pipe only, so that is where the two can be compared.
    let piped = Site::new(place, "filesystem-server-piped")?;
    let mut command = place.aegis();
    command.args(["mcp", "--context", "workspace", "--data"]).arg(piped.data());
    let mut ours_piped = PipedServer::start("aegis mcp", &mut command)?;
    ours_piped.write_file(FILE, &text)?;
    let calls = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| Ok(ours.run()?.per_second())),
            Box::new(|| theirs.read_for(place.slice(), CONNECTIONS, ("read_text_file", &copy), &expected)),
            Box::new(|| {
                ours_piped.read_for(place.slice(), CONNECTIONS, ("fs.read", Path::new(FILE)), &expected)
            }),
        ],
    )?;
    drop(ours_piped);
    piped.remove()?;
    node.server.stop()?;
    site.remove()?;
    let shown = |contender| per_second(calls.median(contender), "calls");
    Ok(vec![
        row("stdio", shown(2), shown(1), Figure::Ratio(calls.ratio(2, 1))),
        row("HTTP", shown(0), shown(1), Figure::Ratio(calls.ratio(0, 1))),
    ])
}
