//! Durable audit records, 64 callers at once, against a plain file: the same bytes, one fdatasync per 64 records.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    sync::Arc,
    time::Instant,
};

use aegis_core::{config::AuditConfig, record::Entry};
use aegis_stores::{AuditLog, DataDir};
use tokio::{runtime::Runtime, task::JoinSet};

use crate::{
    records::Records,
    rounds::Rounds,
    table::{Figure, Goal, Row, per_second},
    workplace::Workplace,
};

pub(super) const NAME: &str = "audit-durable";
const CALLERS: usize = 64;

pub(super) fn measure(place: &Workplace) -> anyhow::Result<Vec<Row>> {
    let each = usize::try_from(place.scaled(100, 20))?;
    let mut records = Records::new(64);
    let entries: Arc<Vec<Entry>> = Arc::new((0..CALLERS * each).map(|_| records.record()).collect());
    let mut lines = Vec::with_capacity(entries.len());
    for entry in entries.iter() {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        lines.push(line);
    }

    let runtime = Runtime::new()?;
    let directory = place.path().join(NAME);
    let log = AuditLog::open(&DataDir::open(directory.join("data"))?, &AuditConfig::default())?;
    let mut plain = OpenOptions::new().create(true).append(true).open(directory.join("plain"))?;
    let rates = Rounds::take(
        place.rounds(),
        vec![
            Box::new(|| runtime.block_on(record_all(&log, &entries, each))),
            Box::new(|| append_all(&mut plain, &lines)),
        ],
    )?;
    runtime.block_on(log.close())?;
    Ok(vec![Row {
        case: NAME,
        what: format!("record_durable, {CALLERS} callers, against append and one fdatasync per {CALLERS}"),
        ours: per_second(rates.median(0), "records"),
        yardstick: per_second(rates.median(1), "records"),
        figure: Figure::Ratio(rates.ratio(0, 1)),
        goal: Goal::AtLeast(0.5),
    }])
}

async fn record_all(log: &AuditLog, entries: &Arc<Vec<Entry>>, each: usize) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (log, entries) = (log.clone(), Arc::clone(entries));
        callers.spawn(async move {
            for entry in &entries[caller * each..(caller + 1) * each] {
                log.record_durable(entry).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = callers.join_next().await {
        done??;
    }
    Ok(entries.len() as f64 / begun.elapsed().as_secs_f64())
}

fn append_all(file: &mut File, lines: &[Vec<u8>]) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for group in lines.chunks(CALLERS) {
        file.write_all(&group.concat())?;
        file.sync_data()?;
    }
    Ok(lines.len() as f64 / begun.elapsed().as_secs_f64())
}
