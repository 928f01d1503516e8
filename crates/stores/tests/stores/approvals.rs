//! An approval is used up by one entry of the log, in the transaction that writes it.

use aegis_core::{
    id::{ApprovalId, CallId},
    record::{CallResult, Entry},
};
use aegis_stores::{
    AuditLog, DataDir,
    audit::{AuditError, LogReader},
};

use crate::common::{call, call_of, closed, config, intent, node, verify_database};

fn begins(call: CallId, id: &str) -> Entry {
    match intent(call) {
        Entry::Intent(mut intent) => {
            intent.approval = Some(ApprovalId::new(id));
            Entry::Intent(intent)
        }
        other => other,
    }
}

fn ends(call: CallId, id: &str, result: CallResult) -> Entry {
    match call_of(call, "alice", "fs.write", result) {
        Entry::Call(mut record) => {
            record.approval = Some(ApprovalId::new(id));
            Entry::Call(record)
        }
        other => other,
    }
}

fn refused() -> CallResult {
    CallResult::Refused { kind: "ApprovalRejected".into(), message: "no".into(), rule: None }
}

#[tokio::test]
async fn used_once_and_others_in_the_batch_are_unharmed() {
    let home = tempfile::tempdir().unwrap();
    let log = AuditLog::open(&DataDir::open(home.path()).unwrap(), &config(1024)).unwrap();
    let tries: Vec<_> = (0..64)
        .map(|number| {
            let log = log.clone();
            tokio::spawn(async move {
                match number % 2 {
                    0 => log.record_durable(&begins(CallId::fresh(), "approval:1")).await,
                    _ => log.record_durable(&node("something")).await,
                }
            })
        })
        .collect();
    let (mut numbers, mut consumed) = (Vec::new(), 0);
    for attempt in tries {
        match attempt.await.unwrap() {
            Ok(number) => numbers.push(number),
            Err(AuditError::Consumed(id)) => {
                assert_eq!(id.as_str(), "approval:1");
                consumed += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    numbers.sort_unstable();
    assert_eq!(consumed, 31);
    assert_eq!(numbers, (1..=33).collect::<Vec<u64>>(), "numbers without gaps, each entry its own");
    log.health().unwrap();
    log.close().await.unwrap();
    let report = verify_database(home.path());
    assert!(report.is_sound());
    assert_eq!(report.records, 33);
}

#[tokio::test]
async fn the_end_of_a_call_goes_by_its_intent() {
    let home = tempfile::tempdir().unwrap();
    let log = AuditLog::open(&DataDir::open(home.path()).unwrap(), &config(1024)).unwrap();
    let (ran, never, half) = (CallId::fresh(), CallId::fresh(), CallId::fresh());
    log.record_durable(&begins(ran, "approval:ran")).await.unwrap();
    log.record_durable(&ends(ran, "approval:ran", CallResult::Done { bytes: 1 })).await.unwrap();
    // What did not run uses its approval up as well: nothing can run by it later, and it has one record.
    log.record_durable(&ends(never, "approval:never", refused())).await.unwrap();
    log.record_durable(&begins(half, "approval:half")).await.unwrap();
    for entry in [
        begins(CallId::fresh(), "approval:never"),
        ends(never, "approval:never", refused()),
        ends(ran, "approval:ran", refused()),
    ] {
        assert!(matches!(log.record_durable(&entry).await, Err(AuditError::Consumed(_))));
    }
    log.record_durable(&call("fs.read")).await.unwrap();
    let ids: Vec<ApprovalId> =
        ["ran", "never", "half", "unheard"].map(|name| ApprovalId::new(format!("approval:{name}"))).into();
    let used = LogReader::open(log.path()).unwrap().used_approvals(&ids).unwrap();
    assert_eq!(used.len(), 3);
    assert_eq!(used[&ids[0]], Some(CallResult::Done { bytes: 1 }));
    assert_eq!(used[&ids[1]], Some(refused()));
    assert_eq!(used[&ids[2]], None);
    log.close().await.unwrap();
}

#[tokio::test]
async fn a_log_of_format_one_is_read_and_brought_up() {
    let closed = closed(5, 2).await;
    closed.sql().execute_batch("DROP TABLE consumed_approvals; PRAGMA user_version = 1;").unwrap();
    assert!(closed.verify().is_sound(), "the verifier reads it as it is");
    assert_eq!(LogReader::open(&closed.database()).unwrap().last().unwrap(), 5);
    let log = AuditLog::open(&DataDir::open(closed.home.path()).unwrap(), &config(1024)).unwrap();
    log.record_durable(&begins(CallId::fresh(), "approval:1")).await.unwrap();
    let again = log.record_durable(&begins(CallId::fresh(), "approval:1")).await;
    assert!(matches!(again, Err(AuditError::Consumed(_))));
    log.close().await.unwrap();
    let format: i64 = closed.sql().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(format, 2);
    assert_eq!(closed.verify().records, 6);
}
