//! An exported file proves as much as the database it came from.

use std::{fs, io::Cursor};

use aegis_stores::{
    AuditLog, DataDir,
    audit::{ExportError, Exported, Fault, FaultKind, Report, Source, VerifyError, export, verify},
};
use serde_json::Value;

use crate::common::{Closed, call, closed, config};

fn exported(closed: &Closed) -> String {
    let mut bytes = Vec::new();
    export(&closed.database(), &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn check(closed: &Closed, text: &str) -> Result<Report, VerifyError> {
    verify(Source::Export(Box::new(Cursor::new(text.to_owned().into_bytes()))), &closed.key(), None)
}

fn fault(closed: &Closed, lines: &[&str]) -> (u64, FaultKind) {
    let Fault { seq, kind, .. } =
        check(closed, &(lines.join("\n") + "\n")).unwrap().fault.expect("nothing was found");
    (seq, kind)
}

#[tokio::test]
async fn round_trip() {
    let closed = closed(40, 8).await;
    let text = exported(&closed);
    assert_eq!(text.lines().count(), 1 + 40 + 5);
    let report = check(&closed, &text).unwrap();
    assert_eq!((report.records, report.heads, report.unsigned, report.fault), (40, 5, 0, None));
    assert_eq!(report.last_head, Some(closed.head));

    // Every line is JSON by itself, and a body is the entry.
    for line in text.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        assert_eq!(value.as_object().unwrap().len(), if value.get("seq").is_some() { 3 } else { 1 });
    }
    let third: Value = serde_json::from_str(text.lines().nth(3).unwrap()).unwrap();
    assert_eq!((&third["seq"], &third["body"]["tool"]), (&3.into(), &"fs.tool2".into()));
}

#[tokio::test]
async fn export_while_the_node_writes() {
    let home = tempfile::tempdir().unwrap();
    let data = DataDir::open(home.path()).unwrap();
    let log = AuditLog::open(&data, &config(4)).unwrap();
    for _ in 0..10 {
        log.record_durable(&call("fs.write")).await.unwrap();
    }
    let mut bytes = Vec::new();
    let done = export(&data.audit_database(), &mut bytes).unwrap();
    assert_eq!(done, Exported { records: 10, heads: 2 });
    let report = verify(Source::Export(Box::new(Cursor::new(bytes))), log.public_key(), None).unwrap();
    assert_eq!((report.records, report.unsigned, report.fault), (10, 2, None));
}

#[tokio::test]
async fn tampered_lines() {
    let closed = closed(40, 8).await;
    let text = exported(&closed);
    let lines: Vec<&str> = text.lines().collect();
    // Line 0 is the header; 8 records, a head, and so on: record 12 is line 13.
    let at = |seq: usize| seq + (seq - 1) / 8;
    let record = |seq: usize| lines[at(seq)];
    assert!(record(12).starts_with("{\"seq\":12,"));

    let changed = record(12).replace("alice", "mally");
    let mut edited = lines.clone();
    edited[at(12)] = &changed;
    assert_eq!(fault(&closed, &edited), (12, FaultKind::Changed));

    let mut edited = lines.clone();
    edited.remove(at(12));
    assert_eq!(fault(&closed, &edited), (12, FaultKind::Removed));
    edited.drain(at(12)..at(20));
    assert_eq!(fault(&closed, &edited), (12, FaultKind::Removed));

    let mut edited = lines.clone();
    edited.swap(at(12), at(13));
    assert_eq!(fault(&closed, &edited), (12, FaultKind::Reordered { found_at: 13 }));

    let mut edited = lines.clone();
    edited.insert(at(12), record(11));
    assert_eq!(fault(&closed, &edited), (11, FaultKind::Inserted));

    let mut edited = lines.clone();
    edited.retain(|line| !line.starts_with("{\"seq\":4"));
    assert_eq!(fault(&closed, &edited), (4, FaultKind::Removed));

    // Cut in the middle, the later heads gone with the records: the announcement shows it.
    assert_eq!(fault(&closed, &lines[..=at(20)]), (21, FaultKind::CutOff { announced: 40 }));
    // The heads left in place: the signature shows it.
    let mut edited = lines.clone();
    edited.drain(at(37)..=at(40));
    assert_eq!(fault(&closed, &edited), (37, FaultKind::Truncated { head: 40 }));

    let mut edited = lines.clone();
    let forged = lines[at(8) + 1].replace("\"size\":8", "\"size\":9");
    edited[at(8) + 1] = &forged;
    assert_eq!(fault(&closed, &edited), (9, FaultKind::BadSignature { head: 9 }));

    let mut edited = lines.clone();
    edited.swap(at(8) + 1, at(9));
    assert_eq!(fault(&closed, &edited), (8, FaultKind::MalformedHead { head: 8 }));

    let mut edited = lines.clone();
    edited.insert(at(12), "{\"seq\":12}");
    assert_eq!(fault(&closed, &edited), (12, FaultKind::MalformedLine { line: at(12) as u64 + 1 }));
}

/// A head that comes before the records it covers is believed only once they are there.
#[tokio::test]
async fn an_early_head_waits_for_its_records() {
    let closed = closed(16, 8).await;
    let text = exported(&closed);
    let mut lines: Vec<&str> = text.lines().collect();
    let head = lines.remove(9);
    lines.insert(5, head);
    let report = check(&closed, &(lines.join("\n") + "\n")).unwrap();
    assert_eq!((report.records, report.heads, report.fault), (16, 2, None));
}

#[tokio::test]
async fn a_file_cut_in_the_middle_of_a_line() {
    let closed = closed(16, 8).await;
    let text = exported(&closed);
    let whole = check(&closed, text.trim_end()).unwrap();
    assert!(whole.is_sound(), "a missing last newline is no fault");
    for cut in [text.len() / 2, text.len() / 3] {
        let report = check(&closed, &text[..cut]).unwrap();
        let fault = report.fault.unwrap();
        assert_eq!((fault.kind, fault.seq), (FaultKind::CutOff { announced: 16 }, report.records + 1));
    }
    let fault = check(&closed, &(text + "rubbish")).unwrap().fault.unwrap();
    assert_eq!(fault.kind, FaultKind::MalformedLine { line: 20 });
}

#[tokio::test]
async fn what_is_no_export() {
    let closed = closed(1, 8).await;
    for text in ["", "\n", "hello", "{}", "{\"seq\":1}", "\u{0}\u{0}"] {
        assert!(matches!(check(&closed, text), Err(VerifyError::NotAnExport)), "{text:?}");
    }
    let newer = "{\"export\":{\"format\":2,\"records\":1}}\n";
    assert!(matches!(check(&closed, newer), Err(VerifyError::NewerExport { found: 2 })));
    // A line without end does not fill memory.
    let endless = format!("{}{}", exported(&closed), "x".repeat(3 << 20));
    assert!(!check(&closed, &endless).unwrap().is_sound());
    // Nor does a database of another kind pass.
    let path = closed.home.path().join("registry.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    let source = Source::Database(path.clone());
    assert!(matches!(verify(source, &closed.key(), None), Err(VerifyError::NotALog { .. })));
    assert!(matches!(export(&path, &mut Vec::new()), Err(ExportError::NotALog { .. })));
    // Nor one of ours whose tables only look like tables.
    closed.sql().execute_batch("DROP TABLE heads; CREATE VIEW heads AS SELECT 1 AS size").unwrap();
    let source = Source::Database(closed.database());
    assert!(matches!(verify(source, &closed.key(), None), Err(VerifyError::NotALog { .. })));
    assert!(verify(Source::Database(closed.home.path().join("absent.db")), &closed.key(), None).is_err());
}

#[tokio::test]
async fn damaged_records_are_not_exported_as_if_whole() {
    let closed = closed(8, 8).await;
    closed
        .sql()
        .execute_batch("UPDATE entries SET body = CAST('{' || char(10) AS BLOB) WHERE seq = 3")
        .unwrap();
    let error = export(&closed.database(), &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::DamagedRecord { seq: 3 }), "{error}");
}

/// A log on a medium that can't be written to, without the files SQLite keeps beside an open one.
#[tokio::test]
async fn a_copy_of_the_database_is_enough() {
    let closed = closed(16, 8).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("a copy #1?.db");
    fs::copy(closed.database(), &copy).unwrap();
    let report = verify(Source::Database(copy), &closed.key(), None).unwrap();
    assert_eq!((report.records, report.fault), (16, None));
}
