//! Walking the log from old to new.

use std::{ops::ControlFlow, time::Duration};

use aegis_core::{
    Timestamp,
    record::{Entry, NodeRecord},
};
use aegis_stores::{AuditLog, DataDir, audit::LogReader};
use serde_json::Map;

use crate::common::config;

/// A record a minute, from the hour on.
async fn minutes(home: &std::path::Path, count: u64, start: Timestamp) {
    let log = AuditLog::open(&DataDir::open(home).unwrap(), &config(100_000)).unwrap();
    for minute in 0..count {
        let record = NodeRecord {
            time: start.plus(Duration::from_secs(60 * minute)),
            action: format!("{minute}"),
            caller: None,
            detail: Map::new(),
        };
        log.record(&Entry::Node(record)).await.unwrap();
    }
    log.close().await.unwrap();
}

#[tokio::test]
async fn every_entry_comes_once_and_in_order() {
    let home = tempfile::tempdir().unwrap();
    minutes(home.path(), 5000, Timestamp::from_millis(0)).await;
    let reader = LogReader::open(&home.path().join("audit.db")).unwrap();
    let mut seen = Vec::new();
    reader
        .walk(10, |seq, body| {
            let entry: Entry = serde_json::from_slice(body).unwrap();
            assert!(matches!(entry, Entry::Node(node) if node.action == (seq - 1).to_string()));
            seen.push(seq);
            if seq == 4900 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, (11..=4900).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_walk_can_begin_near_a_time() {
    let home = tempfile::tempdir().unwrap();
    let start = Timestamp::from_millis(1_767_225_600_000);
    minutes(home.path(), 1000, start).await;
    let reader = LogReader::open(&home.path().join("audit.db")).unwrap();
    let before = |minute: u64| reader.before(start.plus(Duration::from_secs(60 * minute))).unwrap();
    assert_eq!(reader.before(Timestamp::from_millis(0)).unwrap(), 0);
    // An hour of disorder is allowed for; what is skipped is older than that.
    for minute in [61, 100, 500, 999] {
        assert_eq!(before(minute), minute - 60);
    }
    assert_eq!(before(100_000), 1000);
}
