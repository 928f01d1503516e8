use aegis_core::{
    ApprovalState, Timestamp, Violation, ViolationKind,
    approval::{Approval, ApprovalOutcome},
    record::{CallRecord, CallResult, Entry, Intent},
};
use aegis_stores::registry::{Decided, DecisionRow};

use crate::stage::{Stage, kind, operator};

/// The decision is kept, and the node dies before anything comes of it.
async fn decided_only(stage: &Stage, approval: &Approval, approve: bool) {
    let violation = Violation::new(ViolationKind::ApprovalRejected, "operator said no: not today");
    let row = DecisionRow {
        id: approval.id.clone(),
        approve,
        by: operator(),
        reason: None,
        outcome: (!approve).then_some(ApprovalOutcome::Refused { violation }),
    };
    assert!(matches!(stage.registry.decide_approval(row).await.unwrap(), Decided::Now(_)));
}

fn intent(approval: &Approval) -> Entry {
    Entry::Intent(Intent {
        time: Timestamp::now(),
        call: approval.call,
        caller: approval.caller.clone(),
        tool: approval.tool.clone(),
        arguments_sha256: approval.arguments_sha256.clone(),
        approval: Some(approval.id.clone()),
    })
}

fn ended(approval: &Approval, result: CallResult) -> Entry {
    Entry::Call(Box::new(CallRecord {
        time: Timestamp::now(),
        call: approval.call,
        caller: approval.caller.clone(),
        tool: approval.tool.clone(),
        asked_as: None,
        arguments: approval.arguments.clone(),
        arguments_sha256: approval.arguments_sha256.clone(),
        verdicts: Vec::new(),
        result,
        label: None,
        approval: Some(approval.id.clone()),
        proof: None,
        micros: 0,
    }))
}

#[tokio::test]
async fn what_waits_still_waits() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let stage = stage.restarted().await;
    assert_eq!(stage.ask("one").await.id, asked.id);
    stage.approve(&asked.id).await.unwrap();
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Executed);
    let stage = stage.restarted().await;
    assert_eq!(stage.state(&asked.id).await, ApprovalState::Executed);
    assert!(stage.call("one").await.unwrap().pending.is_none(), "the answer outlives the node");
    assert_eq!(stage.deeds(), ["one"]);
}

#[tokio::test]
async fn between_the_yes_and_the_run() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    decided_only(&stage, &asked, true).await;
    let stage = stage.restarted().await;
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Executed);
    assert_eq!(stage.deeds(), ["one"]);
    assert!(stage.notes().await.contains(&"approval-resumed".to_owned()));
    let stage = stage.restarted().await;
    assert_eq!(stage.deeds(), ["one"]);
    assert_eq!(stage.calls().await.len(), 1);
}

#[tokio::test]
async fn between_the_intent_and_the_outcome() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    decided_only(&stage, &asked, true).await;
    stage.plane.audit().record_durable(&intent(&asked)).await.unwrap();
    let stage = stage.restarted().await;
    let settled = stage.settled(&asked.id).await;
    assert_eq!(settled.state, ApprovalState::Failed);
    let Some(ApprovalOutcome::Refused { violation }) = settled.outcome else { panic!("it has no answer") };
    assert!(violation.message.starts_with("unknown: the node stopped while it ran"), "{}", violation.message);
    assert!(stage.deeds().is_empty(), "it is never begun again");
    assert!(matches!(stage.calls().await[..], [CallRecord { result: CallResult::Unknown, .. }]));
    // The requester learns it once, and may then ask anew.
    assert_eq!(kind(stage.call("one").await), ViolationKind::InternalError);
    assert!(stage.call("one").await.unwrap().pending.is_some());
}

#[tokio::test]
async fn between_the_outcome_and_the_row() {
    for (result, state) in [
        (CallResult::Done { bytes: 3 }, ApprovalState::Executed),
        (CallResult::Failed { kind: "X".into(), message: "m".into() }, ApprovalState::Failed),
    ] {
        let stage = Stage::new().await;
        let asked = stage.ask("one").await;
        decided_only(&stage, &asked, true).await;
        stage.plane.audit().record_durable(&intent(&asked)).await.unwrap();
        stage.plane.audit().record_durable(&ended(&asked, result)).await.unwrap();
        let stage = stage.restarted().await;
        let settled = stage.settled(&asked.id).await;
        assert_eq!(settled.state, state);
        assert!(stage.deeds().is_empty());
        assert_eq!(stage.calls().await.len(), 1);
    }
}

#[tokio::test]
async fn a_no_that_was_not_recorded_is_recorded_then() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    decided_only(&stage, &asked, false).await;
    assert!(stage.calls().await.is_empty());
    let stage = stage.restarted().await;
    assert_eq!(stage.calls().await.len(), 1);
    let stage = stage.restarted().await;
    assert_eq!(stage.calls().await.len(), 1, "once");
    assert_eq!(kind(stage.call("one").await), ViolationKind::ApprovalRejected);
}

#[tokio::test]
async fn an_old_copy_of_the_registry_runs_nothing_twice() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    decided_only(&stage, &asked, true).await;
    let copy = stage.dir.path().join("copy.db");
    let kept = copy.clone();
    // The copy says: agreed to, and not begun.
    let stage = stage
        .restarted_after(|data| {
            std::fs::copy(data.join("registry.db"), &kept).unwrap();
        })
        .await;
    stage.settled(&asked.id).await;
    assert_eq!(stage.deeds(), ["one"]);
    let stage = stage
        .restarted_after(|data| {
            for suffix in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(data.join(format!("registry.db{suffix}")));
            }
            std::fs::copy(&copy, data.join("registry.db")).unwrap();
        })
        .await;
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Executed);
    assert_eq!(stage.deeds(), ["one"]);
}
