use std::{collections::HashMap, time::Duration};

use aegis_core::{
    ApprovalState, Door, Label, TrustClass, ViolationKind,
    config::ApprovalsConfig,
    quantity::{Size, Span},
    record::CallResult,
};
use aegis_plane::approvals::{ApprovalFilter, Decision};
use serde_json::{Value, json};

use crate::stage::{Stage, contexts, kind, operator};

#[tokio::test]
async fn approved_twice_at_once_runs_once() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let deciders: Vec<_> = (0..8)
        .map(|_| {
            let (plane, id) = (stage.plane.clone(), asked.id.clone());
            tokio::spawn(async move { plane.approvals().decide(&id, Decision::Approve, &operator()).await })
        })
        .collect();
    for decider in deciders {
        decider.await.unwrap().unwrap();
    }
    stage.settled(&asked.id).await;
    assert!(stage.approve(&asked.id).await.is_ok(), "the same decision again is the same answer");
    assert_eq!(stage.deeds(), ["one"]);
    let decided = stage.notes().await.iter().filter(|note| *note == "approval-decided").count();
    assert_eq!(decided, 1);
}

#[tokio::test]
async fn yes_and_no_at_once_one_of_them_stands() {
    let stage = Stage::new().await;
    for round in 0..8 {
        let asked = stage.ask(&round.to_string()).await;
        let (yes, no) = tokio::join!(stage.approve(&asked.id), stage.reject(&asked.id));
        assert_ne!(yes.is_ok(), no.is_ok());
        let loser = if yes.is_ok() { no } else { yes };
        assert_eq!(kind(loser), ViolationKind::ApprovalDecided);
        let ended = stage.settled(&asked.id).await;
        let ran = stage.deeds().contains(&round.to_string());
        assert_eq!(ran, ended.state == ApprovalState::Executed);
    }
}

#[tokio::test]
async fn decided_too_late() {
    let short = ApprovalsConfig { expiry: Span(Duration::ZERO), ..ApprovalsConfig::default() };
    let stage = Stage::with(short).await;
    let asked = stage.ask("one").await;
    assert_eq!(kind(stage.approve(&asked.id).await), ViolationKind::ApprovalExpired);
    // The clock ends it by itself.
    let ended = stage.settled(&asked.id).await;
    assert_eq!(ended.state, ApprovalState::Expired);
    assert_eq!(kind(stage.reject(&asked.id).await), ViolationKind::ApprovalExpired);
    let collected = stage.plane.approvals().collect(&asked.id, &stage.asker()).await;
    assert_eq!(kind(collected), ViolationKind::ApprovalExpired);
    assert!(stage.deeds().is_empty());
    let calls = stage.calls().await;
    let own: Vec<_> = calls.iter().filter(|call| call.call == asked.call).collect();
    assert_eq!(own.len(), 1);
    assert!(matches!(&own[0].result, CallResult::Refused { kind, .. } if kind == "ApprovalExpired"));
}

#[tokio::test]
async fn nobody_decides_their_own_and_strangers_decide_nothing() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let decide = async |caller| stage.plane.approvals().decide(&asked.id, Decision::Approve, &caller).await;
    // Entitled as they may be: another credential of the same person.
    let mut same_user = operator();
    same_user.user = stage.asker().user;
    same_user.credential = "tok_other".into();
    let mut lowered = operator();
    lowered.context = "asks".into();
    let mut foreign = stage.caller("rita", "reviewers").await;
    foreign.tenant = "elsewhere".into();
    for nobody in [
        stage.asker(),
        same_user,
        lowered,
        foreign,
        stage.caller("eve", "asks").await,
        // Who may call everything is not thereby an approver.
        stage.caller("eve", "anything").await,
        stage.caller("ann", "reviewers").await,
    ] {
        assert_eq!(kind(decide(nobody.clone()).await), ViolationKind::NotAnApprover, "{nobody:?}");
    }
    assert_eq!(stage.state(&asked.id).await, ApprovalState::Pending);
    assert!(decide(stage.caller("rita", "reviewers").await).await.is_ok());
    let unknown =
        stage.plane.approvals().decide(&"approval:none".into(), Decision::Approve, &operator()).await;
    assert_eq!(kind(unknown), ViolationKind::ApprovalNotFound);
}

/// Changes what a row says was asked, behind the node's back.
fn tamper(stage: &Stage, change: impl Fn(&mut Value)) {
    let database = rusqlite::Connection::open(stage.dir.path().join("data/registry.db")).unwrap();
    database.busy_timeout(Duration::from_secs(10)).unwrap();
    for (table, column) in [("approvals", "request"), ("approval_bodies", "body")] {
        let select = format!("SELECT {column} FROM {table}");
        let text: String = database.query_row(&select, [], |row| row.get(0)).unwrap();
        let mut request: Value = serde_json::from_str(&text).unwrap();
        change(&mut request);
        database.execute(&format!("UPDATE {table} SET {column} = ?1"), [request.to_string()]).unwrap();
    }
}

#[tokio::test]
async fn other_arguments_than_were_approved_do_not_run() {
    for change in [
        (|request: &mut Value| request["arguments"]["act"] = "evil".into()) as fn(&mut Value),
        |request| request["arguments"]["times"] = 3.into(),
        |request| request["arguments"] = json!({}),
        |request| request["tool"] = "test.other".into(),
    ] {
        let stage = Stage::new().await;
        let asked = stage.ask("one").await;
        tamper(&stage, change);
        stage.approve(&asked.id).await.unwrap();
        void(&stage, &asked.id).await;
    }
}

/// It ended without running, and says so everywhere.
async fn void(stage: &Stage, id: &aegis_core::id::ApprovalId) {
    let ended = stage.settled(id).await;
    assert_eq!(ended.state, ApprovalState::Cancelled, "{:?}", ended.outcome);
    assert!(stage.deeds().is_empty(), "{:?}", stage.deeds());
    let collected = stage.plane.approvals().collect(id, &stage.asker()).await;
    assert_eq!(kind(collected), ViolationKind::ApprovalVoid);
    let calls = stage.calls().await;
    let own: Vec<_> = calls.iter().filter(|call| call.approval.as_ref() == Some(id)).collect();
    assert_eq!(own.len(), 1);
    assert!(matches!(&own[0].result, CallResult::Refused { kind, .. } if kind == "ApprovalVoid"));
}

#[tokio::test]
async fn other_rules_than_when_it_was_asked() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let mut changed = contexts();
    let own = changed.iter_mut().find(|context| context.name.as_str() == "asks").unwrap();
    own.capabilities[0].max_concurrent = Some(7);
    stage.plane.policy().replace(&changed).await.unwrap();
    stage.approve(&asked.id).await.unwrap();
    void(&stage, &asked.id).await;
}

#[tokio::test]
async fn refused_by_policy_meanwhile() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let changed: Vec<_> = contexts().into_iter().filter(|context| context.name.as_str() != "asks").collect();
    stage.plane.policy().replace(&changed).await.unwrap();
    stage.approve(&asked.id).await.unwrap();
    void(&stage, &asked.id).await;
}

#[tokio::test]
async fn the_session_has_read_something_else_meanwhile() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    let label = Label::new(TrustClass::ExternalUntrusted, "remote-http").from("https://example.org/");
    stage.plane.policy().observe(&stage.asker(), &label).await.unwrap();
    stage.approve(&asked.id).await.unwrap();
    void(&stage, &asked.id).await;
}

#[tokio::test]
async fn the_credential_is_gone() {
    let stage = Stage::new().await;
    let asked = stage.ask("one").await;
    stage.registry.revoke(&stage.asker().credential).await.unwrap();
    stage.approve(&asked.id).await.unwrap();
    void(&stage, &asked.id).await;
}

#[tokio::test]
async fn the_signed_session_is_gone() {
    let stage = Stage::new().await;
    let mut caller = stage.asker();
    (caller.door, caller.session) = (Door::Seal, Some("session-1".into()));
    let live = stage.call_as(&caller, "test.change", json!({"act": "live"})).await.unwrap().pending.unwrap();
    stage.approve(&live.id).await.unwrap();
    assert_eq!(stage.settled(&live.id).await.state, ApprovalState::Executed);
    let asked = stage.call_as(&caller, "test.change", json!({"act": "dead"})).await.unwrap().pending.unwrap();
    stage.sessions.end(caller.session.as_ref().unwrap());
    stage.approve(&asked.id).await.unwrap();
    assert_eq!(stage.settled(&asked.id).await.state, ApprovalState::Cancelled);
    assert_eq!(stage.deeds(), ["live"]);
}

#[tokio::test]
async fn more_questions_than_people_can_answer() {
    let few = ApprovalsConfig { max_pending: 3, ..ApprovalsConfig::default() };
    let stage = Stage::with(few).await;
    let mut waiting = HashMap::new();
    for act in ["a", "b", "c"] {
        waiting.insert(act, stage.ask(act).await.id);
    }
    let refused = stage.call("d").await.unwrap_err();
    assert_eq!(refused.kind, ViolationKind::Overloaded);
    assert_eq!(refused.rule.as_deref(), Some("spec.approvals.max_pending"));
    // What waits already can still be asked for, and one that is decided makes room.
    assert_eq!(stage.ask("a").await.id, waiting["a"]);
    stage.reject(&waiting["a"]).await.unwrap();
    stage.ask("d").await;
}

#[tokio::test]
async fn more_than_a_person_can_read() {
    let small = ApprovalsConfig { max_arguments: Size(1 << 10), ..ApprovalsConfig::default() };
    let stage = Stage::with(small).await;
    let refused = stage.call(&"x".repeat(1 << 10)).await.unwrap_err();
    assert_eq!(refused.kind, ViolationKind::RequestTooLarge);
    assert_eq!(refused.rule.as_deref(), Some("spec.approvals.max_arguments"));
    let filter = ApprovalFilter { limit: 10, ..ApprovalFilter::default() };
    assert!(stage.plane.approvals().list(&filter).await.unwrap().approvals.is_empty(), "nothing waits");
    assert!(
        matches!(&stage.calls().await[0].result, CallResult::Refused { kind, .. } if kind == "RequestTooLarge")
    );
    // Nor does a question without a call.
    let asked = stage.call_as(&stage.asker, "tool.approval-request", json!({"summary": "x".repeat(1 << 10)}));
    assert!(asked.await.unwrap().outcome.failure.is_some());
    assert!(stage.plane.approvals().list(&filter).await.unwrap().approvals.is_empty());
    stage.ask(&"x".repeat(1000)).await;
}

#[tokio::test]
async fn a_flood_of_one_caller_is_its_own_problem() {
    let few = ApprovalsConfig { max_pending_per_caller: 2, ..ApprovalsConfig::default() };
    let stage = Stage::with(few).await;
    let first = stage.ask("a").await;
    stage.ask("b").await;
    let refused = stage.call("c").await.unwrap_err();
    assert_eq!(refused.rule.as_deref(), Some("spec.approvals.max_pending_per_caller"));
    let bob = stage.caller("bob", "asks").await;
    assert!(stage.call_as(&bob, "test.change", json!({"act": "c"})).await.unwrap().pending.is_some());
    stage.reject(&first.id).await.unwrap();
    stage.ask("c").await;
}

/// What ran was the whole; what is kept afterwards is what the log has.
#[tokio::test]
async fn long_arguments_run_whole_and_are_not_kept() {
    let stage = Stage::new().await;
    let long = "long ".repeat(1000);
    let (ran, rejected) = (stage.ask(&long).await, stage.ask(&format!("{long}2")).await);
    let stage = stage.restarted().await;
    assert_eq!(stage.plane.approvals().show(&ran.id).await.unwrap().unwrap().arguments["act"], long);
    stage.approve(&ran.id).await.unwrap();
    stage.reject(&rejected.id).await.unwrap();
    assert_eq!(stage.settled(&ran.id).await.state, ApprovalState::Executed);
    assert_eq!(stage.deeds(), [long.as_str()]);
    let stage = stage.restarted().await;
    for id in [&ran.id, &rejected.id] {
        let kept = stage.plane.approvals().show(id).await.unwrap().unwrap();
        assert!(kept.arguments_cut && kept.arguments["act"]["bytes"].as_u64() >= Some(5000), "{kept:?}");
    }
    let database = rusqlite::Connection::open(stage.dir.path().join("data/registry.db")).unwrap();
    let bodies: u64 =
        database.query_row("SELECT count(*) FROM approval_bodies", [], |row| row.get(0)).unwrap();
    assert_eq!(bodies, 0);
    // The record of the one that did not run has the same.
    let keyed = stage.plane.audit().keyed(&rejected.arguments_sha256);
    let records = stage.calls().await;
    let unrun = records.iter().find(|record| record.approval.as_ref() == Some(&rejected.id)).unwrap();
    assert!(unrun.arguments["act"]["sha256"].is_string(), "{unrun:?}");
    assert_eq!(unrun.arguments_sha256, keyed);
}
