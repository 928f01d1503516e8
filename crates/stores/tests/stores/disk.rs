//! A full disk: nobody is told that a record is safe when it is not, and the log recovers by itself. And a disk that
//! can't be written to at all, which is enough for a verifier.

use std::{fs, path::Path, process::Command, time::Duration};

use aegis_core::record::Entry;
use aegis_stores::{
    AuditLog, DataDir,
    audit::{AuditError, Filter, LogReader, Source, verify},
};

use crate::common::{call, closed, config, node, verify_database};

/// A small file system of its own, unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"])
            .arg(directory.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(directory)),
            other => {
                println!("skipped: no small file system can be mounted here ({other:?})");
                None
            }
        }
    }

    fn fill(&self) {
        let path = self.ballast();
        let mut size = 4 << 20;
        while size >= 512 {
            let mut content = fs::read(&path).unwrap_or_default();
            let before = content.len();
            content.resize(before + size, b'x');
            if fs::write(&path, &content).is_err() {
                content.truncate(before);
                fs::write(&path, &content).unwrap();
                size /= 2;
            }
        }
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.0.path().join("ballast")
    }

    fn home(&self) -> std::path::PathBuf {
        self.0.path().join("data")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a file may still be open when a test fails.
        drop(Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

async fn healthy(log: &AuditLog) {
    while log.health().is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn actions(home: &Path) -> Vec<String> {
    let entries =
        LogReader::open(&home.join("audit.db")).unwrap().tail(&Filter::default(), usize::MAX).unwrap();
    let action = |entry| match entry {
        Ok(Entry::Node(record)) => Some(record.action),
        _ => None,
    };
    entries.into_iter().filter_map(|stored| action(stored.entry)).collect()
}

#[tokio::test]
async fn awaited_records() {
    let Some(disk) = SmallDisk::new() else { return };
    let data = DataDir::open(disk.home()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    log.record_durable(&call("fs.write")).await.unwrap();
    disk.fill();
    let mut acknowledged = 1;
    let error = loop {
        match log.record_durable(&call("fs.write")).await {
            Ok(seq) => {
                acknowledged += 1;
                assert_eq!(seq, acknowledged);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, AuditError::Unwritable(_)), "{error}");
    assert!(error.to_string().contains("free disk space"), "{error}");
    log.health().unwrap_err();
    log.record(&call("fs.read")).await.unwrap_err();
    log.seal().await.unwrap_err();

    disk.free();
    healthy(&log).await;
    // The outage itself has taken a number.
    assert_eq!(log.record_durable(&call("fs.write")).await.unwrap(), acknowledged + 2);
    log.close().await.unwrap();
    let report = verify_database(&disk.home());
    assert_eq!((report.records, report.unsigned, report.fault), (acknowledged + 2, 0, None));
    assert_eq!(actions(&disk.home()), ["audit-recovered"]);
}

#[tokio::test]
async fn records_that_were_taken_on_already() {
    let Some(disk) = SmallDisk::new() else { return };
    let data = DataDir::open(disk.home()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    disk.fill();
    let large = node(&"x".repeat(200_000));
    while log.record(&large).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if log.health().is_err() {
            break;
        }
    }
    disk.free();
    healthy(&log).await;
    log.close().await.unwrap();
    let actions = actions(&disk.home());
    assert_eq!(actions.first().map(String::as_str), Some("audit-recovered"));
    assert!(actions.len() >= 2, "what was queued before the outage is written after it");
    assert!(verify_database(&disk.home()).is_sound());
}

#[tokio::test]
async fn nothing_is_recorded_in_a_log_that_was_taken_away() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    log.record_durable(&node("before")).await.unwrap();
    fs::rename(data.audit_database(), home.path().join("elsewhere")).unwrap();
    let error = log.record_durable(&node("after")).await.unwrap_err();
    assert!(matches!(error, AuditError::Gone { .. }), "{error}");
    assert!(log.health().is_err());
    // However often it is tried again.
    let error = log.close().await.unwrap_err();
    assert!(matches!(error, AuditError::Gone { .. }), "{error}");
}

#[tokio::test]
async fn closing_during_an_outage_says_what_happened() {
    let Some(disk) = SmallDisk::new() else { return };
    let data = DataDir::open(disk.home()).unwrap();
    let log = AuditLog::open(&data, &config(1024)).unwrap();
    disk.fill();
    while log.record_durable(&node(&"x".repeat(100_000))).await.is_ok() {}
    let error = log.close().await.unwrap_err();
    assert!(matches!(error, AuditError::Unwritable(_)), "{error}");
}

#[tokio::test]
async fn a_read_only_medium_can_be_verified() {
    let Some(disk) = SmallDisk::new() else { return };
    let closed = closed(16, 8).await;
    let copy = disk.0.path().join("evidence #1?.db");
    fs::copy(closed.database(), &copy).unwrap();
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(disk.0.path()).status().unwrap();
    assert!(remounted.success());
    let report = verify(Source::Database(copy.clone()), &closed.key(), Some(&closed.head)).unwrap();
    assert_eq!((report.records, report.heads, report.fault), (16, 2, None));
    assert_eq!(LogReader::open(&copy).unwrap().tail(&Filter::default(), 100).unwrap().len(), 16);
}
