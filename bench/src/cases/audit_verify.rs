//! `aegis audit verify` (chain, tree, signatures), from the database and from an exported file, against `sha256sum` over
//! a file that holds just the bodies of the records.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    process::Command,
    time::Instant,
};

use aegis_stores::{
    DataDir,
    audit::{self, Filter, LogReader},
};
use anyhow::{Context, bail};
use serde_json::Value;

use crate::{
    node::command_line,
    process,
    rounds::Rounds,
    table::{Figure, Goal, Row, time, whole},
    workplace::Workplace,
};

pub(super) const NAME: &str = "audit-verify";

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let count = place.record_count();
    let site = place.many_records()?;
    let data = site.data();
    let paths = DataDir::read_only(&data)?;
    let (exported, bodies) = (place.path().join("export.jsonl"), place.path().join("bodies"));
    audit::export(&paths.audit_database(), &mut BufWriter::new(File::create(&exported)?))?;
    let bytes = write_bodies(&paths.audit_database(), &bodies)?;

    let database = || verify(command_line(place, &data).args(["audit", "verify"]), count);
    let file = || {
        let mut command = command_line(place, &data);
        command.args(["audit", "verify", "--file"]).arg(&exported);
        verify(command.arg("--key").arg(paths.audit_public_key()), count)
    };
    let sum = || {
        let begun = Instant::now();
        process::output(Command::new("sha256sum").arg(&bodies))?;
        Ok(begun.elapsed().as_secs_f64())
    };
    let seconds = Rounds::take(place.rounds(), vec![Box::new(database), Box::new(file), Box::new(sum)])?;
    std::fs::remove_file(&exported)?;
    std::fs::remove_file(&bodies)?;

    let row = |contender, from: &str| Row {
        case: NAME,
        what: format!(
            "{} records ({} MB) from {from}, against sha256sum",
            whole(count as f64),
            bytes / 1_000_000
        ),
        ours: time(seconds.median(contender)),
        yardstick: time(seconds.median(2)),
        figure: Figure::Ratio(seconds.ratio(2, contender)),
        goal: Goal::AtLeast(0.5),
    };
    Ok(vec![row(0, "the database"), row(1, "an export")])
}

fn verify(command: &mut Command, count: u64) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let said = process::output(command)?;
    let seconds = begun.elapsed().as_secs_f64();
    let report: Value = serde_json::from_slice(&said)
        .with_context(|| format!("no report: {}", String::from_utf8_lossy(&said)))?;
    if report["records"] != count {
        bail!("not all of {count} records were verified: {report}");
    }
    Ok(seconds)
}

fn write_bodies(database: &Path, file: &Path) -> anyhow::Result<usize> {
    let reader = LogReader::open(database)?;
    let mut follow = reader.follow(0, Filter::default());
    let mut to = BufWriter::new(File::create(file)?);
    let mut bytes = 0;
    loop {
        let more = follow.more()?;
        if more.is_empty() {
            break;
        }
        for stored in more {
            to.write_all(&stored.body)?;
            bytes += stored.body.len();
        }
    }
    to.flush()?;
    Ok(bytes)
}
