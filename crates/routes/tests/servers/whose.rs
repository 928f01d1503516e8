use std::sync::Arc;

use aegis_core::{
    FailureKind, ViolationKind, config::upstream::Identity, progress::Silence, secret::Principal,
    upstream::Upstreams,
};
use aegis_routes::upstream::Notice;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Stage, program};

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_its_owners() {
    let stage = Stage::running("--era newest", |_| {}).await;
    stage.call_as("anna", "fix.task", json!({})).await;
    let task = json!({"server": "fix", "taskId": "t1"});
    let own = stage.call_as("anna", "mcp.tasks.get", task.clone()).await;
    assert_eq!((own.failure, &own.value["status"]), (None, &json!("working")));
    for tool in ["mcp.tasks.get", "mcp.tasks.cancel"] {
        let foreign = stage.call_as("bert", tool, task.clone()).await;
        assert_eq!(foreign.failure, Some(FailureKind::NotFound), "{tool}: {foreign:?}");
    }
    let unknown = stage.call_as("anna", "mcp.tasks.get", json!({"server": "fix", "taskId": "t2"})).await;
    assert_eq!(unknown.failure, Some(FailureKind::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_ends_the_watch_of_another() {
    let stage = Stage::running("--era older", |_| {}).await;
    let mut notices = stage.servers.notices();
    // This server tells of a resource whenever it is told to watch it, or to stop.
    let memo = |name: &str| json!({"server": "fix", "uri": format!("memo://{name}")});
    stage.call_as("anna", "mcp.resources.subscribe", memo("one")).await;
    let ended = stage.call_as("bert", "mcp.resources.unsubscribe", memo("one")).await;
    assert_eq!(ended.failure, None);
    stage.call_as("bert", "mcp.resources.subscribe", memo("two")).await;
    let mut updated = Vec::new();
    while updated.last().is_none_or(|uri| uri != "memo://two") {
        if let Notice::ResourceUpdated { uri, .. } = notices.recv().await.unwrap() {
            updated.push(uri);
        }
    }
    assert_eq!(updated, ["memo://one", "memo://two"]);
    stage.call_as("anna", "mcp.resources.unsubscribe", memo("one")).await;
    let told = notices.recv().await.unwrap();
    assert!(matches!(&told, Notice::ResourceUpdated { uri, .. } if uri == "memo://one"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_on_a_connection_of_ones_own_says_whose_it_is() {
    let stage = Stage::running("--era older", |server| server.identity = Identity::PerPrincipal).await;
    let mut notices = stage.servers.notices();
    let memo = json!({"server": "fix", "uri": "memo://one"});
    stage.call_as("anna", "mcp.resources.subscribe", memo).await;
    let anna = Principal { tenant: "anna".into(), user: "someone".into() };
    let told = Notice::ResourceUpdated { server: "fix".into(), uri: "memo://one".into(), whose: Some(anna) };
    assert_eq!(notices.recv().await.unwrap(), told);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_does_not_get_a_call_that_was_decided_for_this_one() {
    let stage = Stage::running("--era older", |_| {}).await;
    let decided = stage.catalog.resolve("fix.echo").unwrap();
    stage.servers.replace(vec![program("fix", "--era newest")]).await;
    stage.until(|| stage.catalog.resolve("fix.echo").is_some_and(|now| !Arc::ptr_eq(&now, &decided))).await;
    let (text, stay) = (json!({"text": "x"}), CancellationToken::new());
    let refused = stage.carry_out("local", &decided, text.clone(), &Silence, &stay).await.unwrap_err();
    assert_eq!(refused.kind, ViolationKind::ToolNotFound);
    // The same server with another limit is the same server.
    let decided = stage.catalog.resolve("fix.echo").unwrap();
    let mut same = program("fix", "--era newest");
    same.limits.max_concurrent_calls += 1;
    stage.servers.replace(vec![same]).await;
    stage.until(|| stage.catalog.resolve("fix.echo").is_some_and(|now| !Arc::ptr_eq(&now, &decided))).await;
    let said = stage.carry_out("local", &decided, text, &Silence, &stay).await.unwrap();
    assert_eq!(said.value, json!("x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_nobody_holds_go() {
    let Stage { catalog, servers, .. } = Stage::with(Vec::new()).await;
    drop(servers);
    assert_eq!(Arc::strong_count(&catalog), 1);
}
