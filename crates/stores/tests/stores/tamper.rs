//! Every kind of tampering is found, named, and pinned to the right record.

use aegis_stores::audit::{Digest, Fault, FaultKind, Source, verify};
use rusqlite::Connection;

use crate::common::{Closed, closed};

fn row(sql: &Connection, seq: u64) -> (Vec<u8>, Vec<u8>) {
    sql.query_row("SELECT body, hash FROM entries WHERE seq = ?1", [seq as i64], |row| {
        Ok((row.get(0)?, row.get(1)?))
    })
    .unwrap()
}

fn put(sql: &Connection, seq: u64, (body, hash): &(Vec<u8>, Vec<u8>)) {
    sql.execute(
        "INSERT OR REPLACE INTO entries (seq, body, hash) VALUES (?1, ?2, ?3)",
        (seq as i64, body, hash),
    )
    .unwrap();
}

/// A body that says something else in the same number of bytes.
fn forged(body: &[u8]) -> Vec<u8> {
    String::from_utf8(body.to_vec()).unwrap().replace("alice", "mally").into_bytes()
}

fn hash(sql: &Connection, seq: u64, body: &[u8]) -> Vec<u8> {
    let previous = if seq == 1 { Digest::ZERO } else { Digest::from_slice(&row(sql, seq - 1).1).unwrap() };
    Digest::of_entry(&previous, seq, body).as_bytes().to_vec()
}

/// Makes the chain fit again from `seq` on, as an attacker with the database would.
fn rechain(sql: &Connection, seq: u64, last: u64) {
    for seq in seq..=last {
        let (body, _) = row(sql, seq);
        let hash = hash(sql, seq, &body);
        put(sql, seq, &(body, hash));
    }
}

/// Moves everything from `seq` on by one place.
fn shift(sql: &Connection, seq: u64, last: u64, up: bool) {
    if up {
        for seq in (seq..=last).rev() {
            put(sql, seq + 1, &row(sql, seq));
        }
    } else {
        for seq in seq..=last {
            put(sql, seq - 1, &row(sql, seq));
        }
        sql.execute("DELETE FROM entries WHERE seq = ?1", [last as i64]).unwrap();
    }
}

fn fault(closed: &Closed) -> (u64, u64, FaultKind) {
    let report = closed.verify();
    let Fault { seq, through, kind } = report.fault.expect("nothing was found");
    (seq, through, kind)
}

#[tokio::test]
async fn an_untouched_log_is_sound() {
    let closed = closed(40, 8).await;
    let report = closed.verify();
    assert_eq!((report.records, report.heads, report.unsigned, report.fault), (40, 5, 0, None));
    assert_eq!(report.last_head, Some(closed.head));
}

#[tokio::test]
async fn a_changed_byte() {
    for seq in [1, 20, 40] {
        let closed = closed(40, 8).await;
        let sql = closed.sql();
        let (body, hash) = row(&sql, seq);
        put(&sql, seq, &(forged(&body), hash));
        let report = closed.verify();
        assert_eq!(report.records, seq - 1);
        assert_eq!(report.fault, Some(Fault { seq, through: seq, kind: FaultKind::Changed }));
        assert!(report.fault.unwrap().to_string().contains(&format!("record {seq} was changed")));
    }
}

#[tokio::test]
async fn a_changed_hash() {
    let closed = closed(40, 8).await;
    closed.sql().execute_batch("UPDATE entries SET hash = zeroblob(32) WHERE seq = 13").unwrap();
    assert_eq!(fault(&closed), (13, 13, FaultKind::Changed));
    closed.sql().execute_batch("UPDATE entries SET hash = zeroblob(7) WHERE seq = 12").unwrap();
    assert_eq!(fault(&closed), (12, 12, FaultKind::Changed));
}

#[tokio::test]
async fn a_changed_record_with_its_hash_made_to_fit() {
    let closed = closed(40, 8).await;
    let sql = closed.sql();
    let body = forged(&row(&sql, 13).0);
    let hash = hash(&sql, 13, &body);
    put(&sql, 13, &(body, hash));
    // 13 fits the chain now; 14 was written after another 13.
    assert_eq!(fault(&closed), (14, 14, FaultKind::Changed));
}

#[tokio::test]
async fn removed_from_the_middle() {
    let closed = closed(40, 8).await;
    closed.sql().execute_batch("DELETE FROM entries WHERE seq IN (17, 18)").unwrap();
    assert_eq!(fault(&closed), (17, 18, FaultKind::Removed));
}

#[tokio::test]
async fn removed_across_a_head() {
    let closed = closed(40, 8).await;
    closed.sql().execute_batch("DELETE FROM entries WHERE seq BETWEEN 14 AND 20").unwrap();
    assert_eq!(fault(&closed), (14, 20, FaultKind::Removed));
}

#[tokio::test]
async fn removed_and_renumbered() {
    let closed = closed(40, 8).await;
    shift(&closed.sql(), 18, 40, false);
    assert_eq!(fault(&closed), (17, 17, FaultKind::Removed));
}

#[tokio::test]
async fn removed_at_the_start() {
    let closed = closed(40, 8).await;
    closed.sql().execute_batch("DELETE FROM entries WHERE seq = 1").unwrap();
    assert_eq!(fault(&closed), (1, 1, FaultKind::Removed));
}

#[tokio::test]
async fn cut_off_at_the_end() {
    let closed = closed(40, 8).await;
    closed.sql().execute_batch("DELETE FROM entries WHERE seq > 33").unwrap();
    assert_eq!(fault(&closed), (34, 40, FaultKind::Truncated { head: 40 }));
    closed.sql().execute_batch("DELETE FROM entries").unwrap();
    assert_eq!(fault(&closed), (1, 8, FaultKind::Truncated { head: 8 }));
}

#[tokio::test]
async fn two_exchanged() {
    for (one, other) in [(5, 6), (5, 23), (39, 40)] {
        let closed = closed(40, 8).await;
        let sql = closed.sql();
        let (first, second) = (row(&sql, one), row(&sql, other));
        put(&sql, one, &second);
        put(&sql, other, &first);
        assert_eq!(fault(&closed), (one, one, FaultKind::Reordered { found_at: other }), "{one} and {other}");
        // Only the bodies, the hashes left in place.
        put(&sql, one, &(second.0, first.1));
        put(&sql, other, &(first.0, second.1));
        assert_eq!(fault(&closed), (one, one, FaultKind::Reordered { found_at: other }), "{one} and {other}");
    }
}

#[tokio::test]
async fn inserted_in_the_middle() {
    let closed = closed(40, 8).await;
    let sql = closed.sql();
    let body = forged(&row(&sql, 20).0);
    shift(&sql, 20, 40, true);
    put(&sql, 20, &(body.clone(), vec![7; 32]));
    assert_eq!(fault(&closed), (20, 20, FaultKind::Inserted));
    // With the right hash for its place, it is the record after it that shows.
    let hash = hash(&sql, 20, &body);
    put(&sql, 20, &(body, hash));
    assert_eq!(fault(&closed), (20, 20, FaultKind::Inserted));
}

#[tokio::test]
async fn inserted_before_the_first() {
    for seq in [0, -5] {
        let closed = closed(10, 8).await;
        closed
            .sql()
            .execute("INSERT INTO entries (seq, body, hash) VALUES (?1, x'7b7d', zeroblob(32))", [seq])
            .unwrap();
        assert_eq!(fault(&closed), (0, 0, FaultKind::Inserted));
    }
}

/// What no head covers can be forged by whoever writes the database; the report says how much that is.
#[tokio::test]
async fn a_forged_record_at_the_end_is_counted_as_unsigned() {
    let closed = closed(40, 8).await;
    let sql = closed.sql();
    let body = forged(&row(&sql, 40).0);
    let hash = hash(&sql, 41, &body);
    put(&sql, 41, &(body, hash));
    let report = closed.verify();
    assert_eq!((report.records, report.unsigned, report.fault), (41, 1, None));
}

#[tokio::test]
async fn the_whole_chain_rewritten() {
    let closed = closed(40, 8).await;
    let sql = closed.sql();
    let (body, hash) = row(&sql, 19);
    put(&sql, 19, &(forged(&body), hash));
    rechain(&sql, 19, 40);
    assert_eq!(fault(&closed), (17, 24, FaultKind::Rewritten { head: 24 }));
}

#[tokio::test]
async fn rewritten_with_the_later_heads_dropped() {
    let closed = closed(40, 8).await;
    let sql = closed.sql();
    let (body, hash) = row(&sql, 19);
    put(&sql, 19, &(forged(&body), hash));
    rechain(&sql, 19, 40);
    sql.execute_batch("DELETE FROM heads WHERE size > 16").unwrap();
    // The log alone can't show it, only that nothing vouches for these records …
    let report = closed.verify();
    assert_eq!((report.records, report.unsigned, report.is_sound()), (40, 24, true));
    // … a head kept elsewhere does.
    let with_kept = || {
        verify(Source::Database(closed.database()), &closed.key(), Some(&closed.head)).unwrap().fault.unwrap()
    };
    assert_eq!(with_kept().kind, FaultKind::NotAsKept { head: 40 });
    // And so it does for a log that was set back.
    sql.execute_batch("DELETE FROM entries WHERE seq > 16").unwrap();
    assert_eq!(with_kept(), Fault { seq: 17, through: 40, kind: FaultKind::Truncated { head: 40 } });
}

#[tokio::test]
async fn forged_heads() {
    let closed = closed(40, 8).await;
    let sql = closed.sql();
    sql.execute_batch("UPDATE heads SET signature = zeroblob(64) WHERE size = 24").unwrap();
    assert_eq!(fault(&closed), (24, 24, FaultKind::BadSignature { head: 24 }));
    // A head of another size under this one's number.
    sql.execute_batch(
        "UPDATE heads SET body = (SELECT body FROM heads WHERE size = 8),
             signature = (SELECT signature FROM heads WHERE size = 8) WHERE size = 16",
    )
    .unwrap();
    assert_eq!(fault(&closed), (16, 16, FaultKind::MalformedHead { head: 16 }));
    sql.execute_batch("UPDATE heads SET body = CAST('size 8' AS BLOB) WHERE size = 8").unwrap();
    assert_eq!(fault(&closed), (8, 8, FaultKind::MalformedHead { head: 8 }));
}

#[tokio::test]
async fn another_nodes_key() {
    let (own, other) = (closed(40, 8).await, closed(1, 8).await);
    let report = verify(Source::Database(own.database()), &other.key(), None).unwrap();
    assert_eq!(report.fault.unwrap().kind, FaultKind::WrongKey { head: 8 });
    // A kept head that the key did not sign is refused before anything is read.
    verify(Source::Database(own.database()), &own.key(), Some(&other.head)).unwrap_err();
}

/// The whole log rewritten and signed anew by someone with a key of their own.
#[tokio::test]
async fn another_log_in_its_place() {
    let (own, other) = (closed(40, 8).await, closed(40, 8).await);
    std::fs::copy(other.database(), own.database()).unwrap();
    assert_eq!(fault(&own).2, FaultKind::WrongKey { head: 8 });
}

/// The break stands in one batch of the reader, what explains it in a later one.
#[tokio::test]
async fn exchanged_far_apart() {
    let closed = closed(900, 1024).await;
    let sql = closed.sql();
    let (one, other) = (row(&sql, 420), row(&sql, 780));
    put(&sql, 420, &other);
    put(&sql, 780, &one);
    assert_eq!(fault(&closed), (420, 420, FaultKind::Reordered { found_at: 780 }));
}

/// The reader is far ahead when the fault is found, and stops.
#[tokio::test]
async fn changed_early_in_a_long_log() {
    let closed = closed(6000, 1024).await;
    let sql = closed.sql();
    let (body, hash) = row(&sql, 2);
    put(&sql, 2, &(forged(&body), hash));
    assert_eq!(fault(&closed), (2, 2, FaultKind::Changed));
}
