use std::time::Duration;

use aegis_core::{
    ApprovalState, Asker, Gate, ViolationKind,
    approval::ApprovalOutcome,
    record::{CallResult, Entry},
};
use aegis_plane::approvals::{ApprovalFilter, Decision};
use serde_json::{Value, json};

use crate::stage::{Stage, kind, operator};

#[tokio::test]
async fn asked_approved_ran_once_and_collected_once() {
    let stage = Stage::new().await;
    let done = stage.call("one").await.unwrap();
    let envelope: Value = serde_json::from_str(&done.json).unwrap();
    assert_eq!(envelope["pendingApproval"], true);
    assert_eq!(envelope["state"], "pending");
    assert_eq!(envelope["toolId"], "test.change");
    let asked = done.pending.unwrap();
    assert_eq!(envelope["approvalRequestId"], asked.id.as_str());
    assert!(asked.id.as_str().starts_with("approval:") && asked.intent.starts_with("intent:"));
    assert_eq!(asked.asks[0].by, Asker::Context);
    assert_eq!(asked.arguments["act"], "one");
    assert!(stage.deeds().is_empty(), "nothing runs before a person agrees");
    assert!(stage.calls().await.is_empty(), "its one record comes at its end");

    assert_eq!(stage.approve(&asked.id).await.unwrap().state, ApprovalState::Approved);
    let ended = stage.settled(&asked.id).await;
    assert_eq!(ended.state, ApprovalState::Executed);
    assert_eq!(ended.decided_by.as_ref().unwrap().user.as_str(), "operator");
    assert!(matches!(&ended.outcome, Some(ApprovalOutcome::Ran { value, .. }) if value["text"] == "one"));
    assert_eq!(stage.deeds(), ["one"]);

    // The very same call again fetches the answer, once; after that it is a new question.
    let fetched = stage.call("one").await.unwrap();
    assert!(fetched.pending.is_none());
    assert_eq!(fetched.json, json!({"text": "one"}).to_string());
    assert!(stage.call("one").await.unwrap().pending.is_some());
    assert_eq!(stage.deeds(), ["one"]);

    let calls = stage.calls().await;
    let ran: Vec<_> = calls.iter().filter(|call| call.call == asked.call).collect();
    assert_eq!(ran.len(), 1, "one call, one record");
    assert_eq!(ran[0].approval.as_ref(), Some(&asked.id));
    assert!(matches!(ran[0].result, CallResult::Done { .. }));
    assert!(ran[0].verdicts.iter().any(|verdict| verdict.gate == Gate::Approval && verdict.passed()));
    let notes = stage.notes().await;
    assert_eq!(notes[..2], ["approval-requested", "approval-decided"]);
}

#[tokio::test]
async fn the_same_call_is_one_question() {
    let stage = Stage::new().await;
    let first = stage.ask("one").await;
    assert_eq!(stage.ask("one").await.id, first.id);
    let repeated = stage.calls().await;
    assert_eq!(repeated.len(), 1, "asking again is a call of its own, and leaves its record");
    assert!(matches!(&repeated[0].result, CallResult::Refused { kind, .. } if kind == "ApprovalPending"));
    assert_ne!(repeated[0].call, first.call);
    let other = stage.ask("two").await;
    assert_ne!(other.id, first.id);
    // Another credential of the same person is another requester.
    let twin = stage.caller("ann", "asks").await;
    let theirs = stage.call_as(&twin, "test.change", json!({"act": "one"})).await.unwrap();
    assert_ne!(theirs.pending.unwrap().id, first.id);
    let all = stage.plane.approvals().list(&ApprovalFilter { limit: 10, ..ApprovalFilter::default() }).await;
    assert_eq!(all.unwrap().approvals.len(), 3);
}

/// Wherever the approver's connection breaks, what was approved runs, or can be approved again.
#[tokio::test]
async fn an_approver_who_hangs_up_leaves_nothing_stuck() {
    let stage = Stage::new().await;
    for polls in 0..12 {
        let asked = stage.ask(&format!("deed {polls}")).await;
        let approver = operator();
        let mut deciding = Box::pin(stage.plane.approvals().decide(&asked.id, Decision::Approve, &approver));
        for _ in 0..polls {
            if futures::poll!(&mut deciding).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(deciding);
        stage.approve(&asked.id).await.unwrap();
        assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Executed, "{polls}");
    }
    assert_eq!(stage.deeds().len(), 12);
}

#[tokio::test]
async fn a_no_reaches_the_model_with_its_reason() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    stage.reject(&asked.id).await.unwrap();
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Rejected);
    let refused = stage.call("one").await.unwrap_err();
    assert_eq!(refused.kind, ViolationKind::ApprovalRejected);
    assert!(refused.message.contains("use the staging copy"), "{}", refused.message);
    let collected = stage.plane.approvals().collect(&asked.id, &stage.asker()).await;
    assert_eq!(kind(collected), ViolationKind::ApprovalRejected);
    assert!(stage.deeds().is_empty());
    let calls = stage.calls().await;
    let own = calls.iter().find(|call| call.call == asked.call).unwrap();
    assert!(matches!(&own.result, CallResult::Refused { kind, .. } if kind == "ApprovalRejected"));
}

#[tokio::test]
async fn a_failure_of_the_tool_is_a_result_too() {
    let stage = Stage::new().await;
    for (act, expected) in [("fail", "NOT_FOUND"), ("panic", "InternalError")] {
        let asked = stage.ask(act).await;
        stage.approve(&asked.id).await.unwrap();
        assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Failed, "{act}");
        let calls = stage.calls().await;
        let own = calls.iter().find(|call| call.call == asked.call).unwrap();
        assert!(matches!(&own.result, CallResult::Failed { kind, .. } if kind == expected), "{own:?}");
    }
    let fetched = stage.call("fail").await.unwrap();
    assert_eq!(fetched.outcome.failure, Some(aegis_core::FailureKind::NotFound));
    assert_eq!(kind(stage.call("panic").await), ViolationKind::InternalError);
}

#[tokio::test]
async fn a_read_that_needed_approval_leaves_an_intent() {
    let stage = Stage::new().await;
    let done = stage.call_as(&stage.asker(), "test.look", json!({"act": "peek"})).await.unwrap();
    let asked = done.pending.unwrap();
    stage.approve(&asked.id).await.unwrap();
    stage.settled(&asked.id).await;
    let intents: Vec<_> = stage
        .entries()
        .await
        .into_iter()
        .filter_map(|entry| if let Entry::Intent(intent) = entry { intent.approval } else { None })
        .collect();
    assert_eq!(intents, [asked.id]);
}

#[tokio::test]
async fn the_requester_may_take_it_back() {
    let stage = Stage::new().await;
    let approvals = stage.plane.approvals();
    let asked = stage.ask("one").await;
    let stranger = stage.caller("bob", "asks").await;
    assert_eq!(kind(approvals.cancel(&asked.id, &stranger).await), ViolationKind::ApprovalNotFound);
    assert_eq!(approvals.cancel(&asked.id, &stage.asker()).await.unwrap().state, ApprovalState::Cancelled);
    assert_eq!(approvals.cancel(&asked.id, &stage.asker()).await.unwrap().state, ApprovalState::Cancelled);
    assert_eq!(kind(stage.approve(&asked.id).await), ViolationKind::ApprovalDecided);
    let run = stage.ask("two").await;
    stage.approve(&run.id).await.unwrap();
    stage.settled(&run.id).await;
    assert_eq!(kind(approvals.cancel(&run.id, &stage.asker()).await), ViolationKind::ApprovalDecided);
    assert_eq!(stage.deeds(), ["two"]);
}

#[tokio::test]
async fn whoever_waits_is_told() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let waiters: Vec<_> = (0..8)
        .map(|_| {
            let (plane, id) = (stage.plane.clone(), asked.id.clone());
            tokio::spawn(async move { plane.approvals().wait(&id, Duration::from_secs(60)).await.unwrap() })
        })
        .collect();
    let early = stage.plane.approvals().wait(&asked.id, Duration::ZERO).await.unwrap();
    assert_eq!(early.state, ApprovalState::Pending);
    stage.approve(&asked.id).await.unwrap();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().state, ApprovalState::Executed);
    }
}

#[tokio::test]
async fn approvers_see_everything_and_requesters_their_own() {
    let stage = Stage::new().await;
    let approvals = stage.plane.approvals();
    let earlier = stage.ask("earlier").await;
    stage.reject(&earlier.id).await.unwrap();
    let asked = stage.ask("one").await;
    let seen = approvals.view(&asked.id, &operator()).await.unwrap();
    assert_eq!(seen.similar.len(), 1);
    assert_eq!(seen.similar[0].state, ApprovalState::Rejected);
    assert_eq!(seen.similar[0].reason.as_deref(), Some("use the staging copy"));
    assert!(!seen.similar[0].same_arguments);
    assert!(approvals.view(&asked.id, &stage.asker()).await.unwrap().similar.is_empty());
    let stranger = stage.caller("bob", "asks").await;
    assert_eq!(kind(approvals.view(&asked.id, &stranger).await), ViolationKind::ApprovalNotFound);
    assert_eq!(kind(approvals.collect(&asked.id, &operator()).await), ViolationKind::ApprovalNotFound);
    assert!(approvals.collect(&asked.id, &stage.asker()).await.unwrap().is_none());
    stage.approve(&asked.id).await.unwrap();
    stage.settled(&asked.id).await;
    let done = approvals.collect(&asked.id, &stage.asker()).await.unwrap().unwrap();
    assert_eq!(done.json, json!({"text": "one"}).to_string());
    // It has been delivered: the same call is a new question.
    assert!(stage.call("one").await.unwrap().pending.is_some());
}

#[tokio::test]
async fn a_question_without_a_call() {
    let stage = Stage::new().await;
    let tool = "tool.approval-request";
    let ask = |arguments: Value| stage.call_as(&stage.asker, tool, arguments);
    let asked = ask(json!({"summary": "Delete the cache", "urgency": "high"})).await.unwrap();
    let asked: Value = serde_json::from_str(&asked.json).unwrap();
    assert_eq!(asked["state"], "pending");
    let (id, intent) = (asked["approvalRequestId"].as_str().unwrap(), &asked["intentId"]);
    let shown = stage.plane.approvals().show(&id.into()).await.unwrap().unwrap();
    assert!(!shown.runs);
    assert_eq!(shown.arguments["summary"], "Delete the cache");
    stage.approve(&shown.id).await.unwrap();
    assert_eq!(stage.settled(&shown.id).await.state, ApprovalState::Approved);
    let again = ask(json!({"summary": "?", "intentId": intent})).await.unwrap();
    let again: Value = serde_json::from_str(&again.json).unwrap();
    assert_eq!((&again["state"], &again["summary"]), (&json!("approved"), &json!("Delete the cache")));
    let unknown = ask(json!({"summary": "?", "intentId": "intent:none"})).await.unwrap();
    assert_eq!(unknown.outcome.failure, Some(aegis_core::FailureKind::NotFound));
    // Nobody reads another's.
    let stranger = stage.caller("bob", "asks").await;
    let theirs = stage.call_as(&stranger, tool, json!({"summary": "?", "intentId": intent})).await.unwrap();
    assert_eq!(theirs.outcome.failure, Some(aegis_core::FailureKind::NotFound));
    assert!(stage.deeds().is_empty());
}

#[tokio::test]
async fn a_reason_is_needed_to_say_no() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    for reason in [String::new(), "  ".into(), "x".repeat(501)] {
        let refused =
            stage.plane.approvals().decide(&asked.id, Decision::Reject { reason }, &operator()).await;
        assert_eq!(kind(refused), ViolationKind::MalformedRequest);
    }
    assert_eq!(stage.state(&asked.id).await, ApprovalState::Pending);
}
