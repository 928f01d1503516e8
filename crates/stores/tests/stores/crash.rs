//! kill -9 while 64 callers write: whatever was acknowledged is there, and the chain holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use aegis_core::{
    id::CallId,
    record::{CallResult, Entry},
};
use aegis_stores::{
    AuditLog, DataDir,
    audit::{Filter, LogReader},
};

use crate::common::{call_of, config, intent, verify_database};

const HOME: &str = "AEGIS_CRASH_TEST_HOME";

/// The node that gets killed: the test below runs this one in a process of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let Some(home) = std::env::var_os(HOME) else { return };
    let data = DataDir::open(home).unwrap();
    let log = AuditLog::open(&data, &config(50)).unwrap();
    for unfinished in log.unfinished_intents() {
        log.record_durable(&call_of(unfinished.call, "alice", "fs.write", CallResult::Unknown))
            .await
            .unwrap();
    }
    let work = |log: AuditLog| async move {
        loop {
            let call = CallId::fresh();
            let begun = log.record_durable(&intent(call)).await.unwrap();
            println!("acknowledged {begun} {call}");
            let ended = call_of(call, "alice", "fs.write", CallResult::Done { bytes: 1 });
            let ended = log.record_durable(&ended).await.unwrap();
            println!("acknowledged {ended} {call}");
        }
    };
    for _ in 1..64 {
        tokio::spawn(work(log.clone()));
    }
    work(log).await;
}

/// Starts the victim, kills it after so many acknowledgements, and returns all that it gave.
fn acknowledged_before_kill(home: &Path, enough: usize) -> BTreeMap<u64, String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::victim", "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    let mut read = |line: String| {
        // The first line of all shares its line with the test runner's own words.
        let Some((_, rest)) = line.split_once("acknowledged ") else { return acknowledged.len() };
        if let Some((seq, call)) = rest.split_once(' ')
            && call.len() == 36
        {
            acknowledged.insert(seq.parse().unwrap(), call.to_owned());
        }
        acknowledged.len()
    };
    for line in lines.by_ref() {
        if read(line.unwrap()) >= enough {
            break;
        }
    }
    child.kill().unwrap();
    for line in lines {
        read(line.unwrap());
    }
    child.wait().unwrap();
    acknowledged
}

#[test]
fn nothing_acknowledged_is_lost() {
    let home = tempfile::tempdir().unwrap();
    for enough in [1, 64, 150, 333, 500, 777] {
        let acknowledged = acknowledged_before_kill(home.path(), enough);
        assert!(acknowledged.len() >= enough);

        let report = verify_database(home.path());
        assert_eq!(report.fault, None, "after {enough}");
        let reader = LogReader::open(&home.path().join("audit.db")).unwrap();
        let mut stored = BTreeMap::new();
        let mut open = BTreeSet::new();
        let mut entries = reader.tail(&Filter::default(), usize::MAX).unwrap();
        entries.reverse();
        for entry in entries {
            let call = match entry.entry.unwrap() {
                Entry::Intent(intent) => {
                    open.insert(intent.call);
                    intent.call
                }
                Entry::Call(record) => {
                    assert!(open.remove(&record.call), "an end without a beginning, or a second one");
                    record.call
                }
                Entry::Node(_) => continue,
            };
            stored.insert(entry.seq, call.to_string());
        }
        for (seq, call) in &acknowledged {
            assert_eq!(stored.get(seq), Some(call), "record {seq} was acknowledged");
        }

        // The next start knows exactly the calls that have no end.
        let data = DataDir::open(home.path()).unwrap();
        let log = AuditLog::open(&data, &config(50)).unwrap();
        let unfinished: BTreeSet<CallId> =
            log.unfinished_intents().iter().map(|intent| intent.call).collect();
        assert_eq!(unfinished, open);
        drop((log, data));
        while DataDir::open(home.path()).is_err() {
            std::thread::yield_now();
        }
    }
}
