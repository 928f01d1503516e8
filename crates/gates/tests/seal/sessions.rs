//! Sessions: kept, found, ended.

use aegis_core::{ViolationKind, id::SessionId};
use serde_json::json;

use crate::stage::{BEGIN, Stage, reason};

#[tokio::test]
async fn one_token_serves_many_calls_and_a_restart() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    for number in 0..100 {
        assert!(stage.send(&client.call(&number.to_string(), BEGIN)).await.is_ok());
    }
    let stage = stage.killed().await;
    let verified = stage.send(&client.call("100", BEGIN)).await.unwrap();
    assert_eq!(verified.caller.pinned, client.attested.session.pinned, "the version it attested with");
    assert_eq!(verified.caller.credential, *client.credential());
}

#[tokio::test]
async fn an_ended_session_stays_ended() {
    let mut stage = Stage::new().await;
    let client = stage.client().await;
    assert!(stage.send(&client.call("1", BEGIN)).await.is_ok());
    let ended = stage.gate.revoke_session(&client.attested.session.id, "a test").await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("a test"));
    stage.clock.set(BEGIN + 1);
    let again = stage.gate.revoke_session(&client.attested.session.id, "again").await.unwrap();
    assert_eq!(again, ended, "the first time counts");
    let inactive = (ViolationKind::SessionInactive, Some(1006));
    assert_eq!(reason(stage.send(&client.call("2", BEGIN)).await), inactive);
    let replayed = reason(stage.send(&client.call("2", BEGIN)).await);
    assert_eq!(replayed, (ViolationKind::SignatureVerificationFailed, Some(1003)));
    stage = stage.killed().await;
    assert_eq!(reason(stage.send(&client.call("3", BEGIN)).await), inactive);
    assert!(stage.gate.revoke_session(&SessionId::new("none"), "").await.is_err());
}

#[tokio::test]
async fn a_session_is_found_by_its_execution_too() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let session = &client.attested.session;
    let by_execution = SessionId::new(&session.execution);
    assert_eq!(&stage.gate.session(&by_execution).await.unwrap(), session);
    stage.gate.revoke_session(&by_execution, "its execution ended").await.unwrap();
    let refused = stage.send(&client.call("1", BEGIN)).await;
    assert_eq!(reason(refused), (ViolationKind::SessionInactive, Some(1006)));
}

#[tokio::test]
async fn lists_are_bounded_and_by_tenant() {
    let stage = Stage::new().await;
    for _ in 0..5 {
        stage.client().await;
    }
    assert_eq!(stage.gate.sessions(None, 3).await.unwrap().len(), 3);
    assert_eq!(stage.gate.sessions(Some(&"local".into()), 100).await.unwrap().len(), 5);
    assert!(stage.gate.sessions(Some(&"acme".into()), 100).await.unwrap().is_empty());
    let newest = &stage.gate.sessions(None, 1).await.unwrap()[0];
    let shown = serde_json::to_value(newest).unwrap();
    assert!(shown["public_key"].is_string());
    assert!(shown.get("token").is_none() && shown.get("hash").is_none(), "{shown}");
    let enrolments = json!(stage.gate.enrolments(100).await.unwrap());
    assert_eq!(enrolments.as_array().unwrap().len(), 5);
    assert!(!enrolments.to_string().contains("wl_"));
}

#[tokio::test]
async fn revoking_while_calls_are_under_way_lets_none_in_afterwards() {
    let stage = Stage::new().await;
    let client = stage.client().await;
    let mut stage = stage.killed().await;
    for round in 0..8 {
        let id = &client.attested.session.id;
        let envelope = client.call(&round.to_string(), BEGIN);
        let revoke = async {
            if round == 4 {
                stage.gate.revoke_session(id, "a test").await.unwrap();
            }
        };
        let (sent, ()) = tokio::join!(stage.send(&envelope), revoke);
        if round > 4 {
            assert_eq!(reason(sent), (ViolationKind::SessionInactive, Some(1006)));
        }
        stage = stage.killed().await;
    }
}
