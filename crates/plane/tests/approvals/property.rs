use std::collections::BTreeSet;

use aegis_core::{
    ApprovalState,
    approval::{Approval, ApprovalOutcome},
    record::Entry,
};
use aegis_stores::registry::DecisionRow;
use proptest::prelude::*;

use crate::stage::{Stage, operator};

/// What can happen to one of a few requests, in any order.
#[derive(Debug, Clone, Copy)]
enum Step {
    Ask(usize),
    Approve(usize),
    /// The decision is kept and the node gets no further.
    ApproveOnly(usize),
    Reject(usize),
    Cancel(usize),
    Expire(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0_usize..3;
    prop_oneof![
        3 => which.clone().prop_map(Step::Ask),
        3 => which.clone().prop_map(Step::Approve),
        2 => which.clone().prop_map(Step::ApproveOnly),
        1 => which.clone().prop_map(Step::Reject),
        1 => which.clone().prop_map(Step::Cancel),
        1 => which.prop_map(Step::Expire),
        2 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_an_approval_runs_at_most_once(steps in prop::collection::vec(step(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(play(steps));
    }
}

async fn play(steps: Vec<Step>) {
    let mut stage = Stage::new().await;
    let mut asked: Vec<Approval> = Vec::new();
    let mut newest: [Option<usize>; 3] = [None; 3];
    for step in steps {
        let request = |which: usize| newest[which].map(|index| asked[index].clone());
        let approvals = stage.plane.approvals();
        match step {
            Step::Ask(which) => {
                // A no, or the answer of an earlier run, is an answer as well.
                if let Ok(done) = stage.call(&format!("act-{which}")).await
                    && let Some(approval) = done.pending
                {
                    newest[which] = Some(asked.len());
                    asked.push(*approval);
                }
            }
            Step::Approve(which) => {
                if let Some(request) = request(which) {
                    let (one, other) = tokio::join!(stage.approve(&request.id), stage.approve(&request.id));
                    assert_eq!(one.is_ok(), other.is_ok());
                }
            }
            Step::ApproveOnly(which) => {
                if let Some(request) = request(which) {
                    let (id, by) = (request.id, operator());
                    let row = DecisionRow { id, approve: true, by, reason: None, outcome: None };
                    stage.registry.decide_approval(row).await.unwrap();
                }
            }
            Step::Reject(which) => {
                if let Some(request) = request(which) {
                    let _ = stage.reject(&request.id).await;
                }
            }
            Step::Cancel(which) => {
                if let Some(request) = request(which) {
                    let _ = approvals.cancel(&request.id, &stage.asker()).await;
                }
            }
            Step::Expire(which) => {
                if let Some(request) = request(which) {
                    let violation =
                        aegis_core::Violation::new(aegis_core::ViolationKind::ApprovalExpired, "late");
                    let outcome = ApprovalOutcome::Refused { violation };
                    let (from, to) = (ApprovalState::Pending, ApprovalState::Expired);
                    stage.registry.end_approval(&request.id, from, to, outcome, false).await.unwrap();
                }
            }
            Step::Restart => stage = stage.restarted().await,
        }
    }
    // A last start settles what the last step left half-way.
    let stage = stage.restarted().await;
    let mut ran = 0;
    let mut seen = BTreeSet::new();
    for approval in asked.iter().filter(|approval| seen.insert(approval.id.clone())) {
        let state = stage.state(&approval.id).await;
        let settled =
            if state == ApprovalState::Pending { state } else { stage.settled(&approval.id).await.state };
        ran += usize::from(settled == ApprovalState::Executed);
        let entries = stage.entries().await;
        let intents = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::Intent(intent) if intent.approval.as_ref() == Some(&approval.id)))
            .count();
        let records = entries
            .iter()
            .filter(
                |entry| matches!(entry, Entry::Call(call) if call.approval.as_ref() == Some(&approval.id)),
            )
            .count();
        assert_eq!(intents, usize::from(settled == ApprovalState::Executed), "{settled:?}");
        assert_eq!(
            records,
            usize::from(settled != ApprovalState::Pending),
            "one call, one record: {settled:?}"
        );
    }
    assert_eq!(stage.deeds().len(), ran, "what ran is what was agreed to, once");
}
