use aegis_core::{
    FailureKind,
    config::{SecretRef, upstream::Identity},
    label::TrustClass,
    quantity::{Size, Span},
    tool::Mutability,
    upstream::{ServerState, Upstreams},
};
use serde_json::json;

use super::{Stage, program};

#[tokio::test(flavor = "multi_thread")]
async fn tools_come_into_the_catalog_and_are_called() {
    for era in ["older", "newest"] {
        let stage = Stage::running(&format!("--era {era}"), |_| {}).await;
        let echo = stage.catalog.resolve("fix.echo").unwrap();
        assert_eq!(
            (echo.mutability, echo.label.trust),
            (Mutability::SaidReadOnly, TrustClass::ExternalUntrusted)
        );
        // Of a tool that nobody speaks for, the worst is assumed.
        assert_eq!(stage.catalog.resolve("fix.slow").unwrap().mutability, Mutability::Destructive);
        let said = stage.call("fix.echo", json!({"text": "hi"})).await;
        assert_eq!((said.value, said.failure), (json!("hi"), None));
        assert_eq!(said.label.source, "mcp:fix");
        let lied = stage.call("fix.lies", json!({})).await;
        assert_eq!(lied.failure, Some(FailureKind::UpstreamError), "{:?}", lied.value);
        stage.servers.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_is_started_again_and_everyone_is_answered() {
    let stage =
        Stage::running("", |server| server.restart.backoff = Span(std::time::Duration::from_millis(20)))
            .await;
    let calls = (0..300).map(|number| {
        let stage = &stage;
        async move {
            match number {
                150 => stage.call("fix.die", json!({})).await.failure,
                _ => stage.call("fix.slow", json!({"ms": 5})).await.failure,
            }
        }
    });
    let failures = futures::future::join_all(calls).await;
    assert!(failures.iter().flatten().all(|kind| *kind == FailureKind::UpstreamUnavailable), "{failures:?}");
    assert!(failures.iter().flatten().count() > 0);
    stage.until(|| stage.status("fix").restarts == 1).await;
    stage.state("fix", ServerState::Running).await;
    assert_eq!(stage.call("fix.echo", json!({"text": "again"})).await.value, json!("again"));
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_failures_open_the_circuit() {
    let mut server = program("fix", "--at-start die");
    server.restart.backoff = Span(std::time::Duration::from_millis(1));
    server.restart.max_failures = 3;
    server.restart.pause = Span::seconds(600);
    let stage = Stage::with(vec![server]).await;
    stage
        .until(|| stage.status("fix").reason.is_some_and(|reason| reason.contains("after repeated failures")))
        .await;
    assert_eq!(stage.status("fix").restarts, 2);
    // A person need not wait for the pause to end.
    stage.servers.restart("fix").await.unwrap();
    stage.until(|| stage.status("fix").restarts > 2).await;
    assert!(stage.servers.restart("other").await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_a_start_is_answered_when_the_server_is_replaced() {
    let silent = || {
        let mut server = program("fix", "--at-start silent");
        server.limits.start_timeout = Span::seconds(600);
        server
    };
    let stage = Stage::with(vec![silent()]).await;
    stage.servers.restart("fix").await.unwrap();
    let replaced = async {
        stage.until(|| stage.status("fix").reason.is_some()).await;
        stage.servers.replace(vec![program("fix", "")]).await;
    };
    let waited = async { tokio::join!(stage.servers.started("fix"), replaced) };
    tokio::time::timeout(std::time::Duration::from_secs(60), waited).await.unwrap();
    assert!(stage.catalog.resolve("fix.echo").is_some(), "{:?}", stage.status("fix"));
    // One that is removed is not waited for.
    stage.servers.replace(vec![silent()]).await;
    let waited = async { tokio::join!(stage.servers.started("fix"), stage.servers.replace(Vec::new())) };
    tokio::time::timeout(std::time::Duration::from_secs(60), waited).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_definitions_are_withheld() {
    let words = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(words.path(), "before").unwrap();
    let stage = Stage::running(&format!("--description {}", words.path().display()), |_| {}).await;
    std::fs::write(words.path(), "after").unwrap();
    stage.call("fix.changed", json!({})).await;
    stage.until(|| stage.catalog.resolve("fix.echo").is_none()).await;
    assert!(stage.catalog.withheld("fix.echo").unwrap().contains("aegis upstream diff fix"));
    assert_eq!(stage.status("fix").quarantined, 1);
    stage.pins.0.lock().unwrap().clear();
    stage.servers.pins_changed("fix").await;
    stage.tool("fix.echo").await;
    assert!(stage.catalog.resolve("fix.echo").unwrap().description.contains("after"));
}

/// Whoever removes a server forgets what was accepted of it: nothing of it may be written down after.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_gone_when_nobody_asks_any_more_what_is_accepted_of_it() {
    let stage = Stage::running("", |_| {}).await;
    let held = stage.pins.1.lock().await;
    let mut asking = std::pin::pin!(stage.servers.pins_changed("fix"));
    assert!(futures::poll!(&mut asking).is_pending());
    let mut replacing = std::pin::pin!(stage.servers.replace(Vec::new()));
    assert!(futures::poll!(&mut replacing).is_pending(), "somebody is still asking");
    assert!(stage.servers.list().is_empty());
    drop(held);
    tokio::join!(asking, replacing);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_principal_has_a_connection_where_identity_matters() {
    let stage = Stage::running("", |server| {
        server.identity = Identity::PerPrincipal;
        server.credentials = [("WHO".to_owned(), SecretRef::parse("secret:keys/{user}"))].into();
        server.limits.max_connections = 1;
    })
    .await;
    // `key-of-someone`, and not the node's own `key-of-aegis`.
    let length = stage.call("fix.env", json!({"name": "WHO"})).await;
    assert_eq!(length.value, json!(format!("{} bytes", "key-of-someone".len())));
    assert_eq!(stage.status("fix").connections, 2);
    assert_eq!(stage.call("fix.env", json!({"name": "WHO"})).await.failure, None);
    assert_eq!(stage.status("fix").connections, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_was_given_does_not_come_back() {
    let stage = Stage::running("", |_| {}).await;
    let said = stage.call("fix.echo", json!({"text": "here is key-of-someone, plainly"})).await;
    assert_eq!(said.value, json!("here is [redacted], plainly"));
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold() {
    let stage = Stage::running("", |server| {
        server.limits.call_timeout = Span(std::time::Duration::from_millis(200));
        server.limits.max_message = Size(1 << 20);
        server.limits.max_concurrent_calls = 1;
    })
    .await;
    assert_eq!(stage.call("fix.hang", json!({})).await.failure, Some(FailureKind::Timeout));
    assert_eq!(
        stage.call("fix.huge", json!({"bytes": 3 << 20})).await.failure,
        Some(FailureKind::ResponseTooLarge)
    );
    let (cancel, silence) = (tokio_util::sync::CancellationToken::new(), aegis_core::progress::Silence);
    let first = stage.call_heard("fix.hang", json!({}), &silence, &cancel);
    let second = async {
        stage.until(|| stage.status("fix").calls_in_work == 1).await;
        let refused = stage.call_heard("fix.echo", json!({"text": "x"}), &silence, &cancel).await;
        cancel.cancel();
        refused
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!(first.unwrap().failure, Some(FailureKind::Timeout));
    assert!(second.unwrap_err().message.contains("which is its limit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_changed_restarts() {
    let stage = Stage::with(vec![program("fix", ""), program("other", "")]).await;
    stage.tool("fix.echo").await;
    stage.tool("other.echo").await;
    let (fix, other) = (stage.status("fix").pid, stage.status("other").pid);
    stage.servers.replace(vec![program("fix", ""), program("other", "--era older")]).await;
    stage.until(|| stage.status("other").pid.is_some_and(|pid| Some(pid) != other)).await;
    assert_eq!(stage.status("fix").pid, fix);
    stage.servers.replace(vec![program("fix", "")]).await;
    assert!(stage.catalog.resolve("other.echo").is_none());
    stage.servers.replace(Vec::new()).await;
    assert!(stage.catalog.specs().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_server_starts_nothing() {
    let stage = Stage::with(Vec::new()).await;
    let report = stage.servers.test(&program("fix", "--list broken")).await;
    assert!(report.works, "{report:?}");
    assert_eq!((report.resources, report.prompts), (1, 1));
    assert!(report.tools.iter().any(|tool| tool == "echo"));
    assert!(report.tools.iter().any(|tool| tool.contains("leads out of it")));
    let mut missing = program("gone", "");
    missing.executable = Some("/no/such/program".into());
    assert!(stage.servers.test(&missing).await.error.unwrap().contains("can't be started"));
    assert!(stage.servers.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_most_exact_claim_has_the_name() {
    let claiming = |name: &str, claim: &str| {
        let mut server = program(name, "");
        server.capabilities = vec![serde_json::from_value(json!(claim)).unwrap()];
        server.namespace = Some("web".into());
        server
    };
    let stage = Stage::with(vec![claiming("all", "web.*"), claiming("one", "web.echo")]).await;
    stage.tool("web.echo").await;
    stage.tool("web.structured").await;
    let source = |tool: &str| stage.catalog.resolve(tool).unwrap().label.source.clone().into_owned();
    stage.until(|| source("web.echo") == "mcp:one").await;
    assert_eq!(source("web.structured"), "mcp:all");
}
