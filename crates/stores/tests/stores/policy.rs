//! What the policy gate keeps in the registry.

use std::time::Duration;

use aegis_core::{
    Label, Timestamp, TrustClass,
    id::{ContextName, ContextVersion},
};
use aegis_stores::{
    DataDir, Registry,
    registry::{LabelHolder, LabelRow, MOST_CONTEXT_VERSIONS},
};

use crate::common::format_five;

fn version(number: usize) -> (ContextName, ContextVersion, String) {
    ("work".into(), ContextVersion::new(format!("work@{number}")), format!("{{\"number\":{number}}}"))
}

#[tokio::test]
async fn versions_are_kept_once_bounded_and_the_one_in_force_stays() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(&DataDir::open(directory.path()).unwrap()).unwrap();
    let other = ("other".into(), ContextVersion::new("other@1"), "{}".to_owned());
    registry.keep_contexts(vec![other.clone(), version(0)]).await.unwrap();
    registry.keep_contexts(vec![other.clone(), version(0)]).await.unwrap();
    let kept = registry.contexts(Some(&"work".into()), 10).await.unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].text, "{\"number\":0}");

    let many = (1..=MOST_CONTEXT_VERSIONS + 50).map(version).collect();
    registry.keep_contexts(many).await.unwrap();
    registry.keep_contexts(vec![other.clone(), version(9999)]).await.unwrap();
    assert_eq!(registry.contexts(None, usize::MAX).await.unwrap().len(), MOST_CONTEXT_VERSIONS);
    assert!(registry.context(&other.1).await.unwrap().is_some(), "it is in force");
    assert!(registry.context(&version(0).1).await.unwrap().is_none());
    let newest = registry.contexts(Some(&"work".into()), 1).await.unwrap();
    assert_eq!(newest[0].version, version(9999).1);

    assert!(registry.retire_contexts(&"work".into(), &version(9999).1).await.unwrap() > 0);
    assert!(registry.context(&version(9999).1).await.unwrap().unwrap().retired.is_none());
    let earlier = registry.context(&version(500).1).await.unwrap().unwrap();
    assert!(earlier.retired.is_some());
    registry.keep_contexts(vec![version(500)]).await.unwrap();
    assert!(registry.context(&version(500).1).await.unwrap().unwrap().retired.is_none());
}

#[tokio::test]
async fn labels_are_kept_until_they_expire_and_never_shortened() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(&DataDir::open(directory.path()).unwrap()).unwrap();
    let now = Timestamp::now();
    let row = |holder: LabelHolder, trust, expires| LabelRow {
        tenant: "local".into(),
        holder,
        label: Label::new(trust, "remote-http").from("https://example.org/"),
        expires,
    };
    let hour = Duration::from_secs(3600);
    let session = || LabelHolder::Session("one".into());
    let credential = || LabelHolder::Credential { credential: "one".into(), context: "work".into() };
    let untrusted = TrustClass::ExternalUntrusted;
    registry.keep_label(row(session(), untrusted, now.plus(2 * hour))).await.unwrap();
    registry.keep_label(row(session(), untrusted, now.plus(hour))).await.unwrap();
    registry.keep_label(row(credential(), TrustClass::UserOwned, now.plus(hour))).await.unwrap();
    registry.keep_label(row(credential(), untrusted, now.minus(hour))).await.unwrap();
    let kept = registry.labels(10).await.unwrap();
    assert_eq!(
        kept,
        [
            row(session(), untrusted, now.plus(2 * hour)),
            row(credential(), TrustClass::UserOwned, now.plus(hour))
        ]
    );
    assert_eq!(registry.labels(1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_credential_had_read_by_format_five_counts_in_each_of_its_roles() {
    let directory = tempfile::tempdir().unwrap();
    let data = DataDir::open(directory.path()).unwrap();
    let sql = format_five(&data);
    let expires = Timestamp::now().plus(Duration::from_secs(3600)).millis();
    for (number, credential, tier, context) in
        [(1_u8, "tok_1", "user", "work"), (2, "tok_2", "operator", "home")]
    {
        sql.execute(
            "INSERT INTO tokens (id, hash, tenant, user, tier, context, created) VALUES (?1, ?2, 'local', 'a', ?3, ?4, 1)",
            (credential, [number], tier, context),
        )
        .unwrap();
    }
    sql.execute(
        "INSERT INTO contexts (version, name, text, first_seen) VALUES ('read@1', 'read', '{}', 1)",
        [],
    )
    .unwrap();
    for (kind, holder) in
        [("session", "s"), ("credential", "tok_1"), ("credential", "tok_2"), ("credential", "local")]
    {
        sql.execute(
            "INSERT INTO labels (tenant, kind, holder, trust, source, first_seen, expires)
             VALUES ('local', ?1, ?2, 'EXTERNAL_UNTRUSTED', 'remote-http', 1, ?3)",
            (kind, holder, expires),
        )
        .unwrap();
    }
    drop(sql);
    let registry = Registry::open(&data).unwrap();
    let mut holders: Vec<String> = registry
        .labels(100)
        .await
        .unwrap()
        .into_iter()
        .map(|row| match row.holder {
            LabelHolder::Session(session) => session.to_string(),
            LabelHolder::Credential { credential, context } => format!("{credential} in {context}"),
        })
        .collect();
    holders.sort();
    assert_eq!(
        holders,
        [
            "local in home",
            "local in read",
            "local in work",
            "s",
            "tok_1 in work",
            "tok_2 in home",
            "tok_2 in read",
            "tok_2 in work"
        ]
    );
}

#[tokio::test]
async fn a_version_that_came_back_came_last() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Registry::open(&DataDir::open(directory.path()).unwrap()).unwrap();
    let other = ("other".into(), ContextVersion::new("other@1"), "{}".to_owned());
    for number in [1, 2, 3, 1, 1, 3] {
        registry.keep_contexts(vec![other.clone(), version(number)]).await.unwrap();
    }
    let order: Vec<String> = registry
        .contexts(Some(&"work".into()), 10)
        .await
        .unwrap()
        .iter()
        .map(|row| row.version.to_string())
        .collect();
    assert_eq!(order, ["work@3", "work@1", "work@2"]);
    assert_eq!(registry.contexts(None, 10).await.unwrap().len(), 4);
    // However often one comes back, the others are still among the newest.
    for number in 0..MOST_CONTEXT_VERSIONS {
        registry.keep_contexts(vec![other.clone(), version(1 + number % 2)]).await.unwrap();
    }
    registry.keep_contexts(vec![other.clone(), version(4)]).await.unwrap();
    assert_eq!(registry.contexts(None, 10).await.unwrap().len(), 5);
}
