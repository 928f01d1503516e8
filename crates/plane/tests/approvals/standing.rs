use std::time::Duration;

use aegis_core::{Gate, Timestamp, Verdict, ViolationKind};
use aegis_plane::approvals::NewStanding;
use serde_json::{Map, Value, json};

use crate::stage::{Stage, kind, operator};

#[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn always(arguments: Value) -> NewStanding {
    NewStanding {
        tenant: "local".into(),
        user: "ann".into(),
        tool: "test.change".into(),
        arguments: arguments.as_object().unwrap().clone(),
        until: Timestamp::now().plus(Duration::from_secs(3600)),
        covers_labels: false,
        note: Some("the nightly job".into()),
    }
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
    let shown = approvals.standing(None, 10).await.unwrap();
    assert_eq!(shown.len(), 1, "what was revoked is still seen");
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
    let fine = || always(json!({}));
    for new in [
        always(json!({"stranger": 1})),
        always(json!({"act": {"like": "x"}})),
        NewStanding { tool: "test.*".into(), ..fine() },
        NewStanding { until: Timestamp::now(), ..fine() },
        NewStanding { until: Timestamp::now().plus(Duration::from_secs(1 << 40)), ..fine() },
        NewStanding { note: Some("x".repeat(1000)), ..fine() },
    ] {
        assert_eq!(refused(new.clone()).await, ViolationKind::MalformedRequest, "{new:?}");
    }
    // Nobody settles their own questions, and who is no approver settles none.
    assert_eq!(
        refused(NewStanding { user: "operator".into(), ..fine() }).await,
        ViolationKind::NotAnApprover
    );
    for nobody in [stage.asker(), stage.caller("eve", "anything").await] {
        assert_eq!(kind(approvals.always(fine(), &nobody).await), ViolationKind::NotAnApprover);
    }
    assert!(approvals.standing(None, 10).await.unwrap().is_empty());
    assert_eq!(Map::new(), fine().arguments);
}
