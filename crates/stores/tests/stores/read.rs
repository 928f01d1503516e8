//! Reading as people do.

use std::time::Duration;

use aegis_core::{
    Timestamp,
    config::ToolPattern,
    id::{CallId, TenantId, UserId},
    record::{CallResult, Entry},
};
use aegis_stores::{
    AuditLog, DataDir,
    audit::{Filter, Kind, LogReader, ReadError, Status, Stored},
};

use crate::common::{call, call_of, config, intent, node};

fn numbers(found: &[Stored]) -> Vec<u64> {
    found.iter().map(|stored| stored.seq).collect()
}

async fn sample(home: &std::path::Path) -> AuditLog {
    let data = DataDir::open(home).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    let result = |status: usize| match status {
        0 => CallResult::Done { bytes: 1 },
        1 => CallResult::Failed { kind: "not_found".into(), message: "no such file".into() },
        2 => CallResult::Refused { kind: "ToolNotAllowed".into(), message: "no".into(), rule: None },
        _ => CallResult::Unknown,
    };
    log.record(&node("started")).await.unwrap();
    for index in 0..8 {
        let user = if index % 2 == 0 { "alice" } else { "bob" };
        let tool = if index < 4 { "fs.read" } else { "web.fetch" };
        log.record(&call_of(CallId::fresh(), user, tool, result(index % 4))).await.unwrap();
    }
    log.record_durable(&intent(CallId::fresh())).await.unwrap();
    log
}

#[tokio::test]
async fn filters() {
    let home = tempfile::tempdir().unwrap();
    let _log = sample(home.path()).await;
    let reader = LogReader::open(&home.path().join("audit.db")).unwrap();
    let tail = |filter: Filter| numbers(&reader.tail(&filter, 100).unwrap());

    assert_eq!(tail(Filter::default()), [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(numbers(&reader.tail(&Filter::default(), 3).unwrap()), [10, 9, 8]);
    assert_eq!(tail(Filter { kind: Some(Kind::Node), ..Filter::default() }), [1]);
    assert_eq!(tail(Filter { kind: Some(Kind::Intent), ..Filter::default() }), [10]);
    assert_eq!(tail(Filter { user: Some(UserId::new("bob")), ..Filter::default() }), [9, 7, 5, 3]);
    assert_eq!(tail(Filter { tenant: Some(TenantId::new("other")), ..Filter::default() }), Vec::<u64>::new());
    assert_eq!(tail(Filter { status: Some(Status::Refused), ..Filter::default() }), [8, 4]);
    assert_eq!(tail(Filter { status: Some(Status::Unknown), ..Filter::default() }), [9, 5]);
    let pattern = |text| Some(ToolPattern::parse(text).unwrap());
    assert_eq!(tail(Filter { tool: pattern("web.*"), ..Filter::default() }), [9, 8, 7, 6]);
    assert_eq!(tail(Filter { tool: pattern("fs.read"), ..Filter::default() }), [5, 4, 3, 2]);
    let both = Filter { tool: pattern("fs.read"), user: Some(UserId::new("alice")), ..Filter::default() };
    assert_eq!(tail(both), [4, 2]);

    let now = Timestamp::now();
    let hour = Duration::from_secs(3600);
    assert_eq!(tail(Filter { since: Some(now.plus(hour)), ..Filter::default() }), Vec::<u64>::new());
    assert_eq!(tail(Filter { until: Some(now.minus(hour)), ..Filter::default() }), Vec::<u64>::new());
    let around = Filter { since: Some(now.minus(hour)), until: Some(now.plus(hour)), ..Filter::default() };
    assert_eq!(tail(around).len(), 10);

    assert_eq!("refused".parse(), Ok(Status::Refused));
    assert!("denied".parse::<Status>().is_err());
    assert_eq!("intent".parse(), Ok(Kind::Intent));
}

/// More than one page, in both directions.
#[tokio::test]
async fn pages() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    for index in 0..1000 {
        let user = if index % 100 == 0 { "rare" } else { "alice" };
        log.record(&call_of(CallId::fresh(), user, "fs.read", CallResult::Unknown)).await.unwrap();
    }
    log.seal().await.unwrap();
    let open = || LogReader::open(&data.audit_database()).unwrap();
    let rare = Filter { user: Some(UserId::new("rare")), ..Filter::default() };
    let found = open().tail(&rare, 100).unwrap();
    assert_eq!(numbers(&found), (0..10).rev().map(|index| index * 100 + 1).collect::<Vec<u64>>());
    assert_eq!(open().tail(&Filter::default(), usize::MAX).unwrap().len(), 1000);

    let mut follow = open().follow(300, rare);
    assert_eq!(numbers(&follow.more().unwrap()), [301, 401, 501, 601, 701, 801, 901]);
    let mut follow = open().follow(0, Filter::default());
    let mut seen = Vec::new();
    loop {
        let more = follow.more().unwrap();
        if more.is_empty() {
            break;
        }
        seen.extend(numbers(&more));
    }
    assert_eq!(seen, (1..=1000).collect::<Vec<u64>>());
}

#[tokio::test]
async fn following_a_running_log() {
    let home = tempfile::tempdir().unwrap();
    let log = sample(home.path()).await;
    let reader = LogReader::open(&home.path().join("audit.db")).unwrap();
    let last = reader.last().unwrap();
    let mut follow = reader.follow(last, Filter { user: Some(UserId::new("alice")), ..Filter::default() });
    assert!(follow.more().unwrap().is_empty());
    log.record(&call_of(CallId::fresh(), "bob", "fs.read", CallResult::Unknown)).await.unwrap();
    let seq = log.record_durable(&call("fs.write")).await.unwrap();
    let more = follow.more().unwrap();
    assert_eq!(numbers(&more), [seq]);
    assert!(matches!(&more[0].entry, Ok(Entry::Call(record)) if record.tool == "fs.write"));
    assert!(follow.more().unwrap().is_empty());
}

#[tokio::test]
async fn what_can_not_be_read_is_shown() {
    let closed = crate::common::closed(5, 1024).await;
    closed.sql().execute_batch("UPDATE entries SET body = x'ff', hash = x'00' WHERE seq = 3").unwrap();
    let reader = LogReader::open(&closed.database()).unwrap();
    let found = reader.tail(&Filter { user: Some(UserId::new("nobody")), ..Filter::default() }, 10).unwrap();
    assert_eq!(numbers(&found), [3]);
    assert_eq!((&found[0].body[..], found[0].hash), (&[0xff][..], None));
    assert!(found[0].entry.is_err());
}

#[test]
fn no_log() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("audit.db");
    assert!(matches!(LogReader::open(&path), Err(ReadError::Missing { .. })));
    std::fs::write(&path, "").unwrap();
    assert!(matches!(LogReader::open(&path), Err(ReadError::NotALog { .. })));
}
