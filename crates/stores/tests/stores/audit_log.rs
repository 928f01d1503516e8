//! Writing, reopening, sealing; and the states in which a log does not open.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt, time::Duration};

use aegis_core::{
    id::CallId,
    record::{CallResult, Entry},
};
use aegis_stores::{
    AuditLog, DataDir,
    audit::{AuditError, FaultKind, Filter, Head, KeyError, LogReader, MAX_BODY},
};
use rusqlite::Connection;

use crate::common::{call, call_of, closed, config, intent, key, node, verify_database};

#[tokio::test]
async fn numbers_run_on_across_restarts() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..4_u64 {
        let data = DataDir::open(home.path()).unwrap();
        let log = AuditLog::open(&data, &config(1024)).unwrap();
        assert_eq!(log.progress().entries, round * 3);
        for step in 1..=3 {
            assert_eq!(log.record_durable(&call("fs.read")).await.unwrap(), round * 3 + step);
        }
        log.close().await.unwrap();
    }
    let report = verify_database(home.path());
    assert_eq!((report.records, report.heads, report.unsigned, report.fault), (12, 4, 0, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_at_once_each_get_a_number_of_their_own() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(100)).unwrap();
    let callers: Vec<_> = (0..64)
        .map(|_| {
            let log = log.clone();
            tokio::spawn(async move {
                let mut numbers = Vec::new();
                for _ in 0..8 {
                    log.record(&call("fs.read")).await.unwrap();
                    numbers.push(log.record_durable(&call("fs.write")).await.unwrap());
                }
                numbers
            })
        })
        .collect();
    let mut numbers = BTreeSet::new();
    for caller in callers {
        let own = caller.await.unwrap();
        assert!(own.is_sorted());
        numbers.extend(own);
    }
    assert_eq!(numbers.len(), 512);
    log.close().await.unwrap();
    let report = verify_database(home.path());
    assert_eq!((report.records, report.unsigned, report.fault), (1024, 0, None));
    assert!((1..=11).contains(&report.heads), "{} heads", report.heads);
}

#[tokio::test]
async fn readers_see_what_is_acknowledged_while_the_log_is_open() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    let reader = LogReader::open(&data.audit_database()).unwrap();
    assert_eq!(reader.last().unwrap(), 0);
    log.record(&call("fs.read")).await.unwrap();
    let seq = log.record_durable(&call("fs.write")).await.unwrap();
    assert_eq!((seq, reader.last().unwrap()), (2, 2));
    let report = verify_database(home.path());
    assert_eq!((report.records, report.heads, report.unsigned, report.fault), (2, 0, 2, None));

    let head = log.seal().await.unwrap();
    assert_eq!(head.size, 2);
    head.check(log.public_key()).unwrap();
    assert_eq!(log.seal().await.unwrap(), head, "nothing new, so no new head");
    assert_eq!(reader.head().unwrap(), Some(head));
    let report = verify_database(home.path());
    assert_eq!((report.heads, report.unsigned, report.fault), (1, 0, None));
}

#[tokio::test]
async fn what_nobody_waits_for_is_written_soon() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    log.record(&call("fs.read")).await.unwrap();
    while log.progress().entries < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_head_is_signed_when_its_time_has_come() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let mut config = config(1_000_000);
    config.head_every = aegis_core::quantity::Span(Duration::from_millis(20));
    let log = AuditLog::open(&data, &config).unwrap();
    log.record_durable(&call("fs.write")).await.unwrap();
    while log.progress().sealed < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn dropping_the_last_handle_writes_and_seals() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    for _ in 0..10 {
        log.record(&call("fs.read")).await.unwrap();
    }
    drop((log, data));
    // The directory is free once the writer is done.
    while DataDir::open(home.path()).is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let report = verify_database(home.path());
    assert_eq!((report.records, report.unsigned, report.fault), (10, 0, None));
}

#[tokio::test]
async fn a_closed_log_says_so() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    log.health().unwrap();
    log.close().await.unwrap();
    log.close().await.unwrap();
    assert!(matches!(log.record(&call("fs.read")).await, Err(AuditError::Closed)));
    assert!(matches!(log.record_durable(&call("fs.read")).await, Err(AuditError::Closed)));
    assert!(matches!(log.seal().await, Err(AuditError::Closed)));
    assert!(matches!(log.health(), Err(AuditError::Closed)));
}

#[tokio::test]
async fn an_empty_log_can_be_sealed_and_verified() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    assert_eq!(verify_database(home.path()).records, 0);
    assert_eq!(log.seal().await.unwrap().size, 0);
    log.record_durable(&node("started")).await.unwrap();
    log.close().await.unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    log.close().await.unwrap();
    let report = verify_database(home.path());
    assert_eq!((report.records, report.heads, report.unsigned, report.fault), (1, 2, 0, None));
}

#[tokio::test]
async fn calls_without_an_end_are_found_at_the_next_start() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    let calls: Vec<CallId> = (0..4).map(|_| CallId::fresh()).collect();
    for call in &calls {
        log.record_durable(&intent(*call)).await.unwrap();
    }
    log.record_durable(&call_of(calls[1], "alice", "fs.write", CallResult::Done { bytes: 1 })).await.unwrap();
    log.close().await.unwrap();

    let log = AuditLog::open(&data, &config(1024)).unwrap();
    let unfinished: Vec<CallId> = log.unfinished_intents().iter().map(|intent| intent.call).collect();
    assert_eq!(unfinished, [calls[0], calls[2], calls[3]]);
    for call in unfinished {
        log.record_durable(&call_of(call, "alice", "fs.write", CallResult::Unknown)).await.unwrap();
    }
    log.close().await.unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    assert!(log.unfinished_intents().is_empty());
}

#[tokio::test]
async fn an_entry_over_the_limit_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    let error = log.record_durable(&node(&"x".repeat(MAX_BODY))).await.unwrap_err();
    assert!(matches!(error, AuditError::TooLarge { .. }), "{error}");
    assert_eq!(log.record_durable(&node(&"x".repeat(MAX_BODY - 200))).await.unwrap(), 1);
}

/// More bytes than the queue holds: callers wait for room instead of failing or filling memory.
#[tokio::test]
async fn a_full_queue_makes_callers_wait() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    let large = node(&"x".repeat(MAX_BODY - 200));
    for _ in 0..20 {
        log.record(&large).await.unwrap();
    }
    log.close().await.unwrap();
    assert_eq!(verify_database(home.path()).records, 20);
}

#[tokio::test]
async fn a_newer_or_foreign_file_is_left_alone() {
    let closed = closed(3, 1024).await;
    let data = DataDir::open(closed.home.path()).unwrap();
    closed.sql().pragma_update(None, "user_version", 3).unwrap();
    let before = fs::read(closed.database()).unwrap();
    let error = AuditLog::open(&data, &config(1024)).unwrap_err();
    assert!(matches!(error, AuditError::Newer { found: 3, known: 2, .. }), "{error}");
    assert_eq!(fs::read(closed.database()).unwrap(), before);

    fs::remove_file(closed.database()).unwrap();
    Connection::open(closed.database()).unwrap().execute_batch("CREATE TABLE other (x)").unwrap();
    let error = AuditLog::open(&data, &config(1024)).unwrap_err();
    assert!(matches!(error, AuditError::NotALog { .. }), "{error}");

    fs::write(closed.database(), "not a database, but longer than a header of one hundred bytes".repeat(9))
        .unwrap();
    let error = AuditLog::open(&data, &config(1024)).unwrap_err();
    assert!(matches!(error, AuditError::Unopenable { .. }), "{error}");
}

#[tokio::test]
async fn the_key_is_private_and_is_not_replaced() {
    let closed = closed(3, 1024).await;
    let data = DataDir::open(closed.home.path()).unwrap();
    let (secret, public) = (data.audit_key(), data.audit_public_key());
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&secret), mode(&public), mode(&data.audit_database())), (0o600, 0o644, 0o600));
    assert!(fs::read_to_string(&secret).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
    let opened = || AuditLog::open(&data, &config(1024));
    let key_error = || match opened() {
        Err(AuditError::Key(error)) => error,
        other => panic!("{other:?}"),
    };

    fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(*key_error(), KeyError::Exposed { mode: 0o640, .. }));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();

    // The public half is made again; another one is not overwritten.
    let kept = key(closed.home.path());
    fs::remove_file(&public).unwrap();
    opened().unwrap().close().await.unwrap();
    assert_eq!(key(closed.home.path()), kept);
    let other = crate::common::closed(1, 1024).await;
    fs::copy(other.home.path().join("audit.pub"), &public).unwrap();
    assert!(matches!(*key_error(), KeyError::Unmatched { .. }));
    fs::copy(other.home.path().join("audit.key"), &secret).unwrap();
    let error = opened().unwrap_err();
    assert!(
        matches!(&error, AuditError::Damaged { fault, .. } if fault.kind == FaultKind::WrongKey { head: 3 }),
        "{error}"
    );
    fs::remove_file(&secret).unwrap();
    assert!(matches!(*key_error(), KeyError::Lost { .. }));
    fs::write(&secret, "nonsense").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(*key_error(), KeyError::Malformed { .. }));
}

/// A start looks at the last head and what follows it.
#[tokio::test]
async fn damage_at_the_end_is_found_at_the_start() {
    let cases: [(&str, FaultKind, u64); 6] = [
        ("DELETE FROM entries WHERE seq > 7", FaultKind::Truncated { head: 8 }, 8),
        ("DELETE FROM entries", FaultKind::Truncated { head: 8 }, 1),
        ("UPDATE entries SET body = 'x' || body WHERE seq = 8", FaultKind::Changed, 8),
        ("UPDATE entries SET hash = zeroblob(32) WHERE seq = 7", FaultKind::Changed, 8),
        ("UPDATE heads SET signature = zeroblob(64)", FaultKind::BadSignature { head: 8 }, 8),
        ("UPDATE heads SET frontier = zeroblob(32)", FaultKind::MalformedHead { head: 8 }, 8),
    ];
    for (tampering, kind, seq) in cases {
        let closed = closed(8, 1024).await;
        closed.sql().execute_batch(&tampering.replace("'x' || body", "CAST('x' || body AS BLOB)")).unwrap();
        let data = DataDir::open(closed.home.path()).unwrap();
        match AuditLog::open(&data, &config(1024)) {
            Err(AuditError::Damaged { fault, .. }) => {
                assert_eq!((fault.kind, fault.seq), (kind, seq), "{tampering}");
            }
            other => panic!("{tampering}: {other:?}"),
        }
    }
}

/// The same for records that no head covers.
#[tokio::test]
async fn damage_after_the_last_head_is_found_at_the_start() {
    for (tampering, kind, seq) in [
        ("UPDATE entries SET hash = zeroblob(32) WHERE seq = 5", FaultKind::Changed, 5),
        ("DELETE FROM entries WHERE seq = 6", FaultKind::Removed, 6),
    ] {
        let closed = closed(8, 4).await;
        closed.sql().execute_batch("DELETE FROM heads WHERE size > 4").unwrap();
        closed.sql().execute_batch(tampering).unwrap();
        let data = DataDir::open(closed.home.path()).unwrap();
        match AuditLog::open(&data, &config(1024)) {
            Err(AuditError::Damaged { fault, .. }) => {
                assert_eq!((fault.kind, fault.seq), (kind, seq), "{tampering}");
            }
            other => panic!("{tampering}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_head_survives_as_json() {
    let closed = closed(3, 1024).await;
    let text = serde_json::to_string(&closed.head).unwrap();
    let head: Head = serde_json::from_str(&text).unwrap();
    assert_eq!(head, closed.head);
    head.check(&closed.key()).unwrap();
    let report = aegis_stores::audit::verify(
        aegis_stores::audit::Source::Database(closed.database()),
        &closed.key(),
        Some(&head),
    );
    assert!(report.unwrap().is_sound());
}

#[tokio::test]
async fn bodies_are_the_entries_bytes() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    let entry = call("fs.read");
    log.record_durable(&entry).await.unwrap();
    let stored =
        LogReader::open(&data.audit_database()).unwrap().tail(&Filter::default(), 1).unwrap().remove(0);
    assert_eq!(stored.body, serde_json::to_vec(&entry).unwrap());
    assert!(matches!(stored.entry, Ok(Entry::Call(record)) if record.tool == "fs.read"));
}
