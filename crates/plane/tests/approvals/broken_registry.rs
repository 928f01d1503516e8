//! The registry can't be used for a while, at the worst moments.

use std::time::Duration;

use aegis_core::{ApprovalState, Timestamp, ViolationKind, config::ApprovalsConfig, quantity::Span};
use aegis_plane::approvals::{Covered, NewStanding};
use rusqlite::Connection;

use crate::stage::{Stage, operator};

fn sql(stage: &Stage) -> Connection {
    Connection::open(stage.dir.path().join("data/registry.db")).unwrap()
}

/// Deciding does not look at the arguments, running does.
const AWAY: &str = "ALTER TABLE approval_bodies RENAME TO away";
const BACK: &str = "ALTER TABLE away RENAME TO approval_bodies";

#[tokio::test]
async fn what_was_approved_runs_once_it_can_be_read_again() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let sql = sql(&stage);
    sql.execute_batch(AWAY).unwrap();
    stage.approve(&asked.id).await.unwrap();
    let waited = stage.plane.approvals().wait(&asked.id, Duration::from_millis(400)).await.unwrap();
    assert_eq!(waited.state, ApprovalState::Approved);
    sql.execute_batch(BACK).unwrap();
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Executed);
    assert_eq!(stage.deeds(), ["one"]);
    assert_eq!(stage.call("one").await.unwrap().outcome.value["text"], "one");
}

#[tokio::test]
async fn what_can_not_be_read_in_time_has_expired() {
    let config = ApprovalsConfig { expiry: Span(Duration::from_secs(1)), ..ApprovalsConfig::default() };
    let stage = Stage::with(config).await;
    let asked = stage.ask("one").await;
    sql(&stage).execute_batch(AWAY).unwrap();
    stage.approve(&asked.id).await.unwrap();
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Expired);
    assert!(stage.deeds().is_empty());
    assert_eq!(stage.calls().await.len(), 1);
}

#[tokio::test]
async fn how_it_ended_is_kept_once_that_can_be_written() {
    let stage = Stage::new().await;
    let sql = sql(&stage);
    sql.execute_batch(
        "CREATE TRIGGER stuck BEFORE UPDATE ON approvals WHEN new.ended IS NOT NULL
         BEGIN SELECT RAISE(ABORT, 'not now'); END",
    )
    .unwrap();
    // The one runs; the other's credential goes between the yes and the run.
    let asked = stage.ask("one").await;
    stage.approve(&asked.id).await.unwrap();
    let eve = stage.caller("eve", "asks").await;
    let done = stage.call_as(&eve, "test.change", serde_json::json!({"act": "two"})).await.unwrap();
    let other = done.pending.unwrap();
    stage.registry.revoke(&eve.credential).await.unwrap();
    stage.approve(&other.id).await.unwrap();
    let waited = stage.plane.approvals().wait(&other.id, Duration::from_millis(400)).await.unwrap();
    assert_eq!(waited.state, ApprovalState::Approved);
    sql.execute_batch("DROP TRIGGER stuck").unwrap();
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Executed);
    assert_eq!(stage.settled(&other.id).await.state, ApprovalState::Cancelled);
    assert_eq!(stage.call("one").await.unwrap().outcome.value["text"], "one");
    assert_eq!(stage.deeds(), ["one"]);
}

#[tokio::test]
async fn what_is_revoked_has_been_recorded() {
    let stage = Stage::new().await;
    let approvals = stage.plane.approvals();
    let new = NewStanding {
        tenant: "local".into(),
        user: "ann".into(),
        tool: "test.change".into(),
        arguments: Covered::Any,
        until: Timestamp::now().plus(Duration::from_secs(3600)),
        covers_labels: false,
        note: None,
    };
    let row = approvals.always(new, &operator()).await.unwrap();
    let sql = sql(&stage);
    sql.execute_batch(
        "CREATE TRIGGER stuck BEFORE UPDATE ON standing_approvals BEGIN SELECT RAISE(ABORT, 'not now'); END",
    )
    .unwrap();
    let refused = approvals.revoke_standing(&row.id, &operator()).await.unwrap_err();
    assert_eq!(refused.kind, ViolationKind::InternalError);
    let recorded = "approval-standing-revoked".to_owned();
    assert!(stage.notes().await.contains(&recorded), "before anything else");
    assert!(stage.call("one").await.unwrap().pending.is_none(), "it is still in force");
    sql.execute_batch("DROP TRIGGER stuck").unwrap();
    assert!(approvals.revoke_standing(&row.id, &operator()).await.unwrap().revoked.is_some());
    assert!(stage.call("two").await.unwrap().pending.is_some());
}
