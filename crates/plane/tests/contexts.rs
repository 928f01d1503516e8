//! Contexts that an operator applies: stored, recorded, in force, and never in the way of the file.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::sync::Arc;

use aegis_core::{
    Caller, Door, Tier,
    config::{AuditConfig, SecurityContext, security_context},
};
use aegis_gates::{
    PolicyGate,
    policy::{LabelBook, Rules},
};
use aegis_plane::contexts::{ContextError, Contexts, Layers, Over, Source};
use aegis_stores::{AuditLog, DataDir, Registry, registry::read_applied_contexts};

struct Stage {
    contexts: Contexts,
    policy: Arc<PolicyGate>,
    registry: Registry,
    audit: AuditLog,
    data: DataDir,
}

async fn stage(home: &std::path::Path, own: Vec<SecurityContext>) -> Stage {
    let data = DataDir::open(home).unwrap();
    let registry = Registry::open(&data).unwrap();
    let audit = AuditLog::open(&data, &AuditConfig::default()).unwrap();
    let layers = Layers::load(&registry, None, own).await.unwrap();
    let policy = PolicyGate::open(
        &layers.contexts(),
        Rules::none(),
        LabelBook::forgetful(),
        registry.clone(),
        Default::default(),
    )
    .await;
    let policy = Arc::new(policy.unwrap());
    let contexts = Contexts::new(layers, Arc::clone(&policy), registry.clone(), audit.clone());
    Stage { contexts, policy, registry, audit, data }
}

fn context(text: &str) -> SecurityContext {
    security_context::parse(text).unwrap().pop().unwrap()
}

fn operator() -> Caller {
    Caller {
        tenant: "local".into(),
        user: "op".into(),
        tier: Tier::Operator,
        context: security_context::OPERATOR_CONTEXT.into(),
        credential: "tok_op".into(),
        door: Door::Rest,
        session: None,
        pinned: None,
    }
}

#[tokio::test]
async fn the_file_wins_and_what_was_applied_comes_back_without_it() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path(), Vec::new()).await;
    let source = || async { stage.contexts.show("editors").await.map(|found| found.source).ok() };
    let deny_list = || stage.policy.contexts().get("editors").map(|found| found.source.deny_list.len());
    stage
        .contexts
        .apply(context("{name: editors, deny_list: [fs.read]}"), &Over::Anything, &operator())
        .await
        .unwrap();
    assert_eq!((source().await, deny_list()), (Some(Source::Applied), Some(1)));

    let file = home.path().join("config.yaml");
    stage.contexts.replace_own(file.clone(), vec![context("name: editors")]).await.unwrap();
    assert_eq!((source().await, deny_list()), (Some(Source::File), Some(0)));
    let refused = stage
        .contexts
        .apply(context("{name: editors, deny_list: [fs.list]}"), &Over::Anything, &operator())
        .await;
    assert!(matches!(refused, Err(ContextError::InFile { .. })), "{refused:?}");
    let refused = stage.contexts.withdraw("editors", &operator()).await;
    assert!(matches!(refused, Err(ContextError::InFile { .. })), "{refused:?}");

    stage.contexts.replace_own(file, Vec::new()).await.unwrap();
    assert_eq!((source().await, deny_list()), (Some(Source::Applied), Some(1)));
}

#[tokio::test]
async fn one_that_ships_is_laid_over_and_comes_back() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path(), Vec::new()).await;
    let shipped = stage.contexts.show("read-only").await.unwrap();
    let changed =
        stage.contexts.apply(context("name: read-only"), &Over::Anything, &operator()).await.unwrap();
    assert_eq!(changed.old.as_ref(), Some(&shipped.version));
    let stored = read_applied_contexts(&stage.data.registry_database()).unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].name.as_str(), stored[0].applied_by.as_str()), ("read-only", "op"));
    let versions = stage.contexts.versions("read-only", 10).await.unwrap();
    assert_eq!(versions.len(), 2);
    let changed = stage.contexts.withdraw("read-only", &operator()).await.unwrap();
    assert_eq!(changed.new, Some(shipped.version));
    let refused = stage.contexts.withdraw("read-only", &operator()).await;
    assert!(matches!(refused, Err(ContextError::NotApplied(_))), "{refused:?}");
    let own = SecurityContext { name: operator().context, ..context("name: x") };
    let refused = stage.contexts.apply(own, &Over::Anything, &operator()).await;
    assert!(matches!(refused, Err(ContextError::Own(_))), "{refused:?}");
}

#[tokio::test]
async fn what_can_not_be_recorded_does_not_take_effect() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path(), Vec::new()).await;
    stage
        .contexts
        .apply(context("{name: one, deny_list: [fs.read]}"), &Over::Anything, &operator())
        .await
        .unwrap();
    stage.audit.close().await.unwrap();
    for text in ["{name: one, deny_list: [fs.list]}", "name: two"] {
        let refused = stage.contexts.apply(context(text), &Over::Anything, &operator()).await;
        assert!(matches!(refused, Err(ContextError::Unrecordable(_))), "{refused:?}");
    }
    let refused = stage.contexts.withdraw("one", &operator()).await;
    assert!(matches!(refused, Err(ContextError::Unrecordable(_))), "{refused:?}");
    let stored = stage.registry.applied_contexts().await.unwrap();
    assert_eq!(stored.len(), 1);
    assert!(stored[0].text.contains("fs.read"), "{}", stored[0].text);
    assert!(stage.policy.contexts().get("two").is_none());
    assert_eq!(stage.policy.contexts().get("one").unwrap().source.deny_list[0].to_string(), "fs.read");
}

#[tokio::test]
async fn a_change_of_what_was_read_does_not_undo_what_came_in_between() {
    let home = tempfile::tempdir().unwrap();
    let stage = stage(home.path(), Vec::new()).await;
    let apply = async |text: &str, over: &Over| stage.contexts.apply(context(text), over, &operator()).await;
    let first = apply("{name: desk, deny_list: [fs.read]}", &Over::Nothing).await.unwrap().new.unwrap();
    let again = apply("{name: desk, deny_list: [fs.list]}", &Over::Nothing).await;
    assert!(matches!(again, Err(ContextError::Moved { found: Some(_), .. })), "{again:?}");

    let read = Over::Version(first);
    apply("{name: desk, deny_list: [fs.read, fs.list]}", &read).await.unwrap();
    let late = apply("{name: desk, deny_list: [fs.read, fs.write]}", &read).await;
    assert!(matches!(late, Err(ContextError::Moved { .. })), "{late:?}");
    let kept = stage.contexts.show("desk").await.unwrap();
    assert_eq!(kept.context.deny_list.len(), 2);
    assert_eq!(kept.context.deny_list[1].to_string(), "fs.list");

    stage.contexts.withdraw("desk", &operator()).await.unwrap();
    let gone = apply("{name: desk}", &Over::Version(kept.version)).await;
    assert!(matches!(gone, Err(ContextError::Moved { found: None, .. })), "{gone:?}");
}
