use std::time::Duration;

use aegis_core::{Gate, Timestamp, Verdict, ViolationKind};
use aegis_plane::approvals::{Covered, NewStanding, covers};
use serde_json::{Map, Value, json};

use crate::stage::{Stage, kind, operator};

#[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn always(arguments: Value) -> NewStanding {
    NewStanding {
        tenant: "local".into(),
        user: "ann".into(),
        tool: "test.change".into(),
        arguments: Covered::Like(arguments.as_object().unwrap().clone()),
        until: Timestamp::now().plus(Duration::from_secs(3600)),
        covers_labels: false,
        note: Some("the nightly job".into()),
    }
}

/// A pattern speaks of paths as they are written, and nobody looks where they lead.
#[tokio::test]
async fn what_is_settled_follows_no_link() {
    let stage = Stage::new().await;
    let free = stage.caller("ann", "anything").await;
    let free = stage.call_as(&free, "test.change", json!({"act": "links"})).await.unwrap();
    assert_eq!(free.outcome.value["text"], "followed");
    stage.plane.approvals().always(always(json!({"act": "links"})), &operator()).await.unwrap();
    let settled = stage.call("links").await.unwrap();
    assert!(settled.pending.is_none());
    assert_eq!(settled.outcome.value["text"], "not followed");
}

#[tokio::test]
async fn settled_until_revoked() {
    let stage = Stage::new().await;
    let row = stage.plane.approvals().always(always(json!({"act": {"prefix": "note-"}})), &operator()).await;
    let row = row.unwrap();
    assert!(stage.call("note-1").await.unwrap().pending.is_none());
    assert!(stage.call("other").await.unwrap().pending.is_some());
    let calls = stage.calls().await;
    let said = calls[0].verdicts.iter().find(|verdict| verdict.gate == Gate::Approval).unwrap();
    assert!(matches!(&said.verdict, Verdict::Pass { rule: Some(rule) } if *rule == row.id));

    let stage = stage.restarted().await;
    let approvals = stage.plane.approvals();
    assert!(stage.call("note-2").await.unwrap().pending.is_none(), "it outlives the node");
    let stranger = stage.caller("eve", "anything").await;
    assert_eq!(kind(approvals.revoke_standing(&row.id, &stranger).await), ViolationKind::ApprovalNotFound);
    assert!(approvals.revoke_standing(&row.id, &operator()).await.unwrap().revoked.is_some());
    assert!(approvals.revoke_standing(&row.id, &operator()).await.is_ok(), "again, and nothing changes");
    assert!(stage.call("note-3").await.unwrap().pending.is_some());
    assert!(approvals.standing(None, false, 10).await.unwrap().is_empty(), "it is not in force");
    let shown = approvals.standing(None, true, 10).await.unwrap();
    assert_eq!(shown.len(), 1, "what was revoked can still be seen");
    assert_eq!(shown[0].revoked_by.as_ref().unwrap().user.as_str(), "operator");
    assert_eq!(stage.deeds(), ["note-1", "note-2"]);
    let notes = stage.notes().await;
    assert!(notes.contains(&"approval-standing".into()));
    assert!(notes.contains(&"approval-standing-revoked".into()));
}

#[tokio::test]
async fn what_can_not_be_settled() {
    let stage = Stage::new().await;
    let approvals = stage.plane.approvals();
    let refused = async |new: NewStanding| kind(approvals.always(new, &operator()).await);
    let fine = || NewStanding { arguments: Covered::Any, ..always(json!({})) };
    for new in [
        // Nobody covers everything by leaving the pattern out.
        always(json!({})),
        always(json!({"stranger": 1})),
        always(json!({"act": {"like": "x"}})),
        NewStanding { until: Timestamp::now(), ..fine() },
        NewStanding { until: Timestamp::now().plus(Duration::from_secs(1 << 40)), ..fine() },
        NewStanding { note: Some("x".repeat(1000)), ..fine() },
    ] {
        assert_eq!(refused(new.clone()).await, ViolationKind::MalformedRequest, "{new:?}");
    }
    assert_eq!(refused(NewStanding { tool: "test.*".into(), ..fine() }).await, ViolationKind::UnknownName);
    // Nobody settles their own questions, and who is no approver settles none.
    assert_eq!(
        refused(NewStanding { user: "operator".into(), ..fine() }).await,
        ViolationKind::NotAnApprover
    );
    for nobody in [stage.asker(), stage.caller("eve", "anything").await] {
        assert_eq!(kind(approvals.always(fine(), &nobody).await), ViolationKind::NotAnApprover);
    }
    assert!(approvals.standing(None, true, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_covered_is_said_in_words_and_no_more_is() {
    let stage = Stage::new().await;
    let named: Map<String, Value> = json!({"act": {"equals": "note"}}).as_object().unwrap().clone();
    let exact = NewStanding { arguments: Covered::Only(named.clone()), ..always(json!({"act": "x"})) };
    let row = stage.plane.approvals().always(exact, &operator()).await.unwrap();
    let words = covers(&row);
    assert!(words.contains("test.change by ann of tenant local where act is \"note\""), "{words}");
    assert!(words.contains("no other arguments") && words.contains("but not when"), "{words}");
    let call = |arguments| stage.call_as(&stage.asker, "test.change", arguments);
    assert!(call(json!({"act": "note"})).await.unwrap().pending.is_none());
    assert!(call(json!({"act": "note", "times": 9})).await.unwrap().pending.is_some(), "something else");

    let open = NewStanding { arguments: Covered::Any, ..always(json!({"act": "x"})) };
    let row = stage.plane.approvals().always(open, &operator()).await.unwrap();
    assert!(covers(&row).contains("with any arguments whatever"), "{}", covers(&row));
    assert!(call(json!({"act": "else", "times": 9})).await.unwrap().pending.is_none());
}
