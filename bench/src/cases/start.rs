//! From the start of the process to the line that says it is ready, against the bare MCP server; and how much memory a
//! node holds that nobody uses.

use std::{cell::Cell, time::Duration};

use crate::{
    echo::EchoServer,
    load::pause,
    node::Site,
    rounds::{Contender, Rounds, median},
    table::{Figure, Goal, Row, time},
    workplace::Workplace,
};

pub(super) const NAME: &str = "start";
const REPEATS: usize = 5;

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let used = Site::new(place, "start-again")?;
    let again = || -> anyhow::Result<f64> {
        let node = used.start(place)?;
        let seconds = node.server.started_in.as_secs_f64();
        node.server.stop()?;
        Ok(seconds)
    };
    let number = Cell::new(0);
    let first = || -> anyhow::Result<f64> {
        number.set(number.get() + 1);
        let site = Site::new(place, &format!("start-{}", number.get()))?;
        let node = site.start(place)?;
        let seconds = node.server.started_in.as_secs_f64();
        node.server.stop()?;
        site.remove()?;
        Ok(seconds)
    };
    let bare = || Ok(EchoServer::start(place)?.server.started_in.as_secs_f64());
    let contenders: Vec<Contender<'_>> =
        vec![Box::new(|| repeated(&again)), Box::new(|| repeated(&first)), Box::new(|| repeated(&bare))];
    let seconds = Rounds::take(place.rounds(), contenders)?;
    let row = |contender, what: &str| Row {
        case: NAME,
        what: format!("process start to ready, {what} (lower is better)"),
        ours: time(seconds.median(contender)),
        yardstick: time(seconds.median(2)),
        figure: Figure::Ratio(seconds.ratio(contender, 2)),
        goal: Goal::AtMost(3.0),
    };
    let mut rows = vec![row(0, "on data it has"), row(1, "the first time ever")];
    rows.push(memory(place, &used)?);
    used.remove()?;
    Ok(rows)
}

fn repeated(once: &dyn Fn() -> anyhow::Result<f64>) -> anyhow::Result<f64> {
    Ok(median((0..REPEATS).map(|_| once()).collect::<anyhow::Result<_>>()?))
}

fn memory(place: &Workplace, site: &Site) -> anyhow::Result<Row> {
    let (node, bare) = (site.start(place)?, EchoServer::start(place)?);
    pause(Duration::from_secs(2))?;
    let (ours, theirs) = (node.server.resident_mebibytes()?, bare.server.resident_mebibytes()?);
    node.server.stop()?;
    Ok(Row {
        case: NAME,
        what: "idle memory (resident)".into(),
        ours: format!("{ours:.1} MiB"),
        yardstick: format!("{theirs:.1} MiB"),
        figure: Figure::Mebibytes(ours),
        goal: Goal::AtMost(40.0),
    })
}
