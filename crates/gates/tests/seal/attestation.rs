//! Who gets a session, and who does not.

use std::time::Duration;

use aegis_core::{Timestamp, ViolationKind, caller::Tier};
use aegis_gates::identity::seal::{Attestation, NewEnrolment};
use ed25519_dalek::SigningKey;
use serde_json::json;

use crate::stage::{BEGIN, Stage, call, enrolment, reason, version, wanted};

fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

#[tokio::test]
async fn identity_comes_from_the_enrolment() {
    let stage = Stage::new().await;
    let new =
        NewEnrolment { tenant: "acme".into(), user: "bot".into(), ..enrolment(&["research", "writing"]) };
    let (enrolled, workload) = stage.gate.enroll(new).await.unwrap();
    // All of this is what a caller says of itself.
    let wishes = json!({
        "user_id": "root", "zaru_tier": "enterprise", "principal_subject": "root", "agent_id": "a", "execution_id": "b",
        "container_id": "c", "task_summary": "d", "tier": "operator",
    });
    let body = wanted(&key(1), Some(workload.expose()), Some("writing"), &wishes);
    let attested = stage.attest(&body, None).await.unwrap();
    let session = &attested.session;
    assert_eq!(session.tenant.as_str(), "acme");
    assert_eq!(session.user.as_str(), "bot");
    assert_eq!(session.tier, Tier::User);
    assert_eq!(session.context.as_str(), "writing");
    assert_eq!(session.credential, enrolled.id);
    assert_eq!(session.pinned.as_ref().unwrap().as_str(), "writing@0123");
    assert_eq!(session.expires, at(BEGIN + 3600));
    let shown = serde_json::to_string(session).unwrap();
    assert!(!shown.contains(workload.expose()) && !shown.contains(attested.token.expose()), "{shown}");

    let other_tenant =
        wanted(&key(1), Some(workload.expose()), Some("writing"), &json!({"tenant_id": "local"}));
    assert_eq!(reason(stage.attest(&other_tenant, None).await), (ViolationKind::TenantMismatch, None));
    let same_tenant =
        wanted(&key(1), Some(workload.expose()), Some("writing"), &json!({"tenant_id": "acme"}));
    assert!(stage.attest(&same_tenant, None).await.is_ok());
}

#[tokio::test]
async fn only_enrolled_contexts_that_exist() {
    let stage = Stage::new().await;
    let (_, workload) = stage.enrol(&["research", "gone"]).await;
    let ask = async |context| {
        reason(stage.attest(&wanted(&key(1), Some(workload.expose()), context, &json!({})), None).await)
    };
    assert_eq!(ask(Some("writing")).await, (ViolationKind::AttestationFailed, Some(3000)));
    assert_eq!(ask(Some("gone")).await, (ViolationKind::AttestationFailed, Some(3001)));
    assert_eq!(ask(Some("nowhere")).await, (ViolationKind::AttestationFailed, Some(3000)));
    assert_eq!(ask(None).await, (ViolationKind::AttestationFailed, Some(3001)));
    assert_eq!(ask(Some(" ")).await, (ViolationKind::AttestationFailed, Some(3001)));
}

#[tokio::test]
async fn names_that_belong_to_others_are_kept_from_everybody_else() {
    let stage = Stage::new().await;
    assert!(stage.gate.enroll(enrolment(&["tenant-acme-lab"])).await.is_err());
    assert!(stage.gate.enroll(enrolment(&["aegis-system-operator"])).await.is_err());
    assert!(
        stage.gate.enroll(NewEnrolment { tier: Tier::System, ..enrolment(&["zaru-free"]) }).await.is_err()
    );
    let own = NewEnrolment { tenant: "acme".into(), ..enrolment(&["tenant-acme-lab"]) };
    let (_, workload) = stage.gate.enroll(own).await.unwrap();
    let body = wanted(&key(1), Some(workload.expose()), Some("tenant-acme-lab"), &json!({}));
    assert!(stage.attest(&body, None).await.is_ok());

    let stranger = stage.bearer(Tier::User, "tenant-acme-lab", None).await;
    let body = wanted(&key(1), None, Some("tenant-acme-lab"), &json!({}));
    assert_eq!(
        reason(stage.attest(&body, Some(&stranger)).await),
        (ViolationKind::AttestationFailed, Some(3000))
    );
}

#[tokio::test]
async fn guessed_used_up_expired_and_revoked_ids_give_nothing() {
    let stage = Stage::new().await;
    let refused = (ViolationKind::AttestationFailed, Some(3000));
    let guess = format!("wl_{}", "A".repeat(43));
    let short = "wl_x".to_owned();
    for workload in [None, Some("exec-1"), Some(guess.as_str()), Some(short.as_str()), Some("")] {
        let body = wanted(&key(1), workload, Some("research"), &json!({}));
        assert_eq!(reason(stage.attest(&body, None).await), refused, "{workload:?}");
    }
    let (_, once) =
        stage.gate.enroll(NewEnrolment { uses: Some(1), ..enrolment(&["research"]) }).await.unwrap();
    assert!(stage.client_of(&once, 1).await.is_ok());
    assert_eq!(reason(stage.client_of(&once, 1).await), refused);

    let brief = NewEnrolment { expires: Some(at(BEGIN + 60)), ..enrolment(&["research"]) };
    let (_, brief) = stage.gate.enroll(brief).await.unwrap();
    stage.clock.set(BEGIN + 59);
    assert!(stage.client_of(&brief, 1).await.is_ok());
    stage.clock.set(BEGIN + 60);
    assert_eq!(reason(stage.client_of(&brief, 1).await), refused);

    let (taken, secret) = stage.enrol(&["research"]).await;
    stage.gate.revoke_enrolment(taken.id.as_str()).await.unwrap();
    assert_eq!(reason(stage.client_of(&secret, 1).await), refused);
    assert!(stage.gate.revoke_enrolment("enr_none").await.is_err());

    // The same after a restart.
    let stage = stage.killed().await;
    for workload in [&once, &brief, &secret] {
        assert_eq!(reason(stage.client_of(workload, 1).await), refused);
    }
}

#[tokio::test]
async fn a_bound_key_is_the_only_key() {
    let stage = Stage::new().await;
    let bound = NewEnrolment { key: Some(key(7).verifying_key().to_bytes()), ..enrolment(&["research"]) };
    let (_, workload) = stage.gate.enroll(bound).await.unwrap();
    assert_eq!(reason(stage.client_of(&workload, 8).await), (ViolationKind::AttestationFailed, Some(3000)));
    assert!(stage.client_of(&workload, 7).await.is_ok());
}

#[tokio::test]
async fn bad_enrolments_are_refused() {
    let stage = Stage::new().await;
    for new in [
        enrolment(&[]),
        enrolment(&["No Such Name"]),
        NewEnrolment { uses: Some(0), ..enrolment(&["research"]) },
        NewEnrolment { expires: Some(at(BEGIN)), ..enrolment(&["research"]) },
        NewEnrolment { tenant: "-".into(), ..enrolment(&["research"]) },
        NewEnrolment { user: "".into(), ..enrolment(&["research"]) },
        NewEnrolment { note: Some("\n".into()), ..enrolment(&["research"]) },
    ] {
        assert!(stage.gate.enroll(new).await.is_err());
    }
    assert!(stage.gate.enrolments(10).await.unwrap().is_empty());
}

#[tokio::test]
async fn five_uses_are_five_however_many_ask_at_once() {
    let stage = Stage::new().await;
    let (_, workload) =
        stage.gate.enroll(NewEnrolment { uses: Some(5), ..enrolment(&["research"]) }).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for seed in 0..32 {
        let gate = stage.gate.clone();
        let body = wanted(&key(seed), Some(workload.expose()), Some("research"), &json!({}));
        tasks.spawn(async move {
            let wanted = Attestation::parse(body.to_string().as_bytes()).unwrap();
            gate.attest(&wanted, None, version).await.is_ok()
        });
    }
    let attested = tasks.join_all().await.into_iter().filter(|attested| *attested).count();
    assert_eq!(attested, 5);
    let row = &stage.gate.enrolments(1).await.unwrap()[0];
    assert_eq!((row.uses_left, row.attested), (Some(0), 5));
    assert_eq!(stage.gate.sessions(None, 100).await.unwrap().len(), 5);
}

#[tokio::test]
async fn a_token_stands_for_its_own_context() {
    let stage = Stage::new().await;
    let user = stage.bearer(Tier::User, "research", None).await;
    let own = wanted(&key(1), Some("my laptop"), Some("research"), &json!({}));
    let session = stage.attest(&own, Some(&user)).await.unwrap().session;
    assert_eq!(
        (session.user.as_str(), session.tier, session.workload.as_str()),
        ("ann", Tier::User, "my laptop")
    );
    let other = wanted(&key(1), None, Some("writing"), &json!({}));
    assert_eq!(
        reason(stage.attest(&other, Some(&user)).await),
        (ViolationKind::AttestationFailed, Some(3000))
    );

    let operator = stage.bearer(Tier::Operator, "aegis-system-operator", None).await;
    let session = stage.attest(&other, Some(&operator)).await.unwrap().session;
    assert_eq!(session.tier, Tier::User, "an operator who acts in another context is a user of it");
    let itself = wanted(&key(1), None, Some("aegis-system-operator"), &json!({}));
    assert_eq!(stage.attest(&itself, Some(&operator)).await.unwrap().session.tier, Tier::Operator);
    let elsewhere = wanted(&key(1), None, Some("nowhere"), &json!({}));
    assert_eq!(
        reason(stage.attest(&elsewhere, Some(&operator)).await),
        (ViolationKind::AttestationFailed, Some(3001))
    );
    let tenant = wanted(&key(1), None, Some("writing"), &json!({"tenant_id": "acme"}));
    assert_eq!(reason(stage.attest(&tenant, Some(&operator)).await), (ViolationKind::TenantMismatch, None));

    // Operator tier in another context opens no doors.
    let narrowed = stage.bearer(Tier::Operator, "research", None).await;
    assert_eq!(
        reason(stage.attest(&other, Some(&narrowed)).await),
        (ViolationKind::AttestationFailed, Some(3000))
    );
}

#[tokio::test]
async fn a_session_ends_with_the_token_it_was_opened_with() {
    let now = Timestamp::now();
    let stage = Stage::new().await;
    stage.clock.set(now.millis() / 1000);
    let brief = stage.bearer(Tier::User, "research", Some(now.plus(Duration::from_secs(600)))).await;
    let body = wanted(&key(1), None, Some("research"), &json!({}));
    let attested = stage.attest(&body, Some(&brief)).await.unwrap();
    assert!(attested.session.expires <= now.plus(Duration::from_secs(600)));

    let client = crate::stage::Client { key: key(1), attested };
    assert!(stage.send(&client.call("1", stage.clock.second())).await.is_ok());
    stage.registry.revoke(&brief.credential).await.unwrap();
    let refused = stage.send(&client.call("2", stage.clock.second())).await;
    assert_eq!(reason(refused), (ViolationKind::SessionInactive, Some(1006)));
    assert_eq!(
        reason(stage.attest(&body, Some(&brief)).await),
        (ViolationKind::AttestationFailed, Some(3000))
    );
}

#[tokio::test]
async fn attestation_is_limited_and_strangers_hold_nobody_up() {
    let stage = Stage::with(|config| config.attestations_per_minute = 3).await;
    let (_, workload) = stage.enrol(&["research"]).await;
    let (_, other) = stage.enrol(&["research"]).await;
    let unknown = wanted(&key(1), Some(&format!("wl_{}", "B".repeat(43))), Some("research"), &json!({}));
    let mut limited = 0;
    for _ in 0..10_000 {
        match stage.attest(&unknown, None).await.unwrap_err().violation.kind {
            ViolationKind::RateLimitExceeded => limited += 1,
            kind => assert_eq!(kind, ViolationKind::AttestationFailed),
        }
    }
    assert_eq!(limited, 9_997);
    for _ in 0..3 {
        assert!(stage.client_of(&workload, 1).await.is_ok());
    }
    let refusal = stage.client_of(&workload, 1).await.unwrap_err();
    assert_eq!(refusal.violation.kind, ViolationKind::RateLimitExceeded);
    assert_eq!(refusal.violation.retry_after_seconds, Some(20));
    assert!(stage.client_of(&other, 1).await.is_ok());
    stage.clock.set(BEGIN + 20);
    assert!(stage.client_of(&workload, 1).await.is_ok());
}

#[tokio::test]
async fn a_revoked_enrolment_ends_its_sessions_and_no_others() {
    let stage = Stage::new().await;
    let (one, other) = (stage.client().await, stage.client().await);
    assert!(stage.send(&one.call("1", BEGIN)).await.is_ok());
    stage.gate.revoke_enrolment(one.credential().as_str()).await.unwrap();
    let refused = stage.send(&one.call("2", BEGIN)).await;
    assert_eq!(reason(refused), (ViolationKind::SessionInactive, Some(1006)));
    assert!(!stage.gate.is_live(&one.attested.session.id));
    assert!(stage.gate.is_live(&other.attested.session.id));
    assert!(stage.send(&other.envelope(&call("3"), BEGIN)).await.is_ok());
}
