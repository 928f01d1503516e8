use std::sync::Arc;

use aegis_core::{ApprovalState, Caller};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::{
    super::stdio,
    harness::{Harness, legacy},
    server::{ACCEPT, JSON, Server, VERSION},
};

fn shout() -> Value {
    json!({"name": "test.shout", "arguments": {"text": "hi"}})
}

/// As the user who needs an approver, with what a client declares.
async fn call(server: &Server, capabilities: &Value, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
    let bearer = format!("Bearer {}", server.harness.careful.expose());
    let headers = [
        ("Authorization", bearer.as_str()),
        JSON,
        ACCEPT,
        VERSION,
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "test.shout"),
    ];
    let reply = server.send("POST", "/mcp", &headers, body.as_bytes()).await;
    match reply.events().pop() {
        Some(last) => last,
        None => reply.json(),
    }
}

fn approval(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["aegis/approval"]["id"]
}

#[tokio::test]
async fn who_agreed_to_wait_is_not_asked_again_and_not_kept_for_ever() {
    let server = Server::new().await;
    let form = json!({"elicitation": {"form": {}}});
    let mut answer = call(&server, &form, shout()).await;
    let id = approval(&answer).clone();
    let mut params = shout();
    params["inputResponses"] = json!({"approval": {"action": "accept"}});
    let mut rounds = 0;
    while answer["result"]["resultType"] == "input_required" {
        params["requestState"] = answer["result"]["requestState"].clone();
        answer = call(&server, &form, params.clone()).await;
        params["inputResponses"] = json!({});
        rounds += 1;
        assert!(answer["result"].get("inputRequests").is_none(), "{answer}");
    }
    assert_eq!(rounds, 8);
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(server.harness.state(&id).await, ApprovalState::Pending);
    server.harness.approve(&id).await;
    let collected = call(&server, &form, params).await;
    assert_eq!(collected["result"]["content"][0]["text"], "HI", "{collected}");
}

#[tokio::test]
async fn a_call_asked_for_again_waits_without_another_question() {
    let server = Server::new().await;
    let form = json!({"elicitation": {}});
    let first = call(&server, &form, shout()).await;
    assert!(first["result"]["inputRequests"].is_object(), "{first}");
    let second = call(&server, &form, shout()).await;
    assert_eq!(approval(&second), approval(&first));
    assert!(second["result"].get("inputRequests").is_none(), "{second}");
    server.harness.approve(approval(&first)).await;
    let third = call(&server, &json!({}), shout()).await;
    assert_eq!(third["result"]["structuredContent"], json!({"text": "HI"}), "{third}");
}

#[tokio::test]
async fn a_user_who_looks_away_leaves_the_request_alone() {
    let server = Server::new().await;
    let form = json!({"elicitation": {}});
    let asked = call(&server, &form, shout()).await;
    let mut params = shout();
    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({"approval": {"action": "cancel"}});
    let told = call(&server, &form, params).await;
    assert_eq!(told["result"]["isError"], true, "{told}");
    assert_eq!(server.harness.state(approval(&asked)).await, ApprovalState::Pending);
}

#[tokio::test]
async fn arrays_and_clients_without_events_are_not_asked() {
    let server = Server::new().await;
    let bearer = format!("Bearer {}", server.harness.careful.expose());
    let begin = |version: &str| {
        let params = json!({"protocolVersion": version, "capabilities": {"elicitation": {}}});
        legacy(&json!(0), "initialize", &params).to_string()
    };
    let headers = [("Authorization", bearer.as_str()), JSON, ACCEPT];
    let begun = server.send("POST", "/mcp", &headers, begin("2025-03-26").as_bytes()).await;
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let own = ("Mcp-Session-Id", session.as_str());
    let batch = json!([legacy(&json!(1), "tools/call", &shout()), legacy(&json!(2), "tools/call", &shout())]);
    let reply =
        server.send("POST", "/mcp", &[headers[0], JSON, ACCEPT, own], batch.to_string().as_bytes()).await;
    assert_eq!(reply.json()[0]["result"]["isError"], true, "{reply:?}");
    assert_eq!(approval(&reply.json()[0]), approval(&reply.json()[1]));

    let begun = server.send("POST", "/mcp", &headers, begin("2025-11-25").as_bytes()).await;
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    let plain = ("Accept", "application/json");
    let body = legacy(&json!(1), "tools/call", &shout()).to_string();
    let reply = server
        .send("POST", "/mcp", &[headers[0], JSON, plain, ("Mcp-Session-Id", &session)], body.as_bytes())
        .await;
    assert_eq!(reply.json()["result"]["_meta"]["aegis/approval"]["state"], "pending", "{reply:?}");
}

#[tokio::test]
async fn a_pipe_carries_questions_and_withdrawals() {
    let harness = Harness::new().await;
    let (mut to, input) = tokio::io::duplex(1 << 16);
    let (output, from) = tokio::io::duplex(1 << 16);
    let caller = Caller { context: "careful".into(), ..harness.caller() };
    let doors = Arc::clone(&harness.doors);
    tokio::spawn(async move { stdio::serve(doors, caller, input, output).await });
    let mut lines = BufReader::new(from).lines();
    let mut hear =
        async || -> Value { serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap() };
    let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}});
    for message in [legacy(&json!(0), "initialize", &begin), legacy(&json!(1), "tools/call", &shout())] {
        to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    assert_eq!(hear().await["id"], 0);
    let question = hear().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    assert!(question["params"].get("mode").is_none(), "{question}");
    let accept = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}});
    to.write_all(format!("{accept}\n").as_bytes()).await.unwrap();
    let filter = aegis_plane::approvals::ApprovalFilter { limit: 10, ..Default::default() };
    let waiting = harness.doors.plane.approvals().list(&filter).await.unwrap();
    harness.approve(&json!(waiting.approvals[0].id)).await;
    let answer = hear().await;
    assert_eq!(answer["result"]["content"][0]["text"], "HI", "{answer}");

    // Who takes the call back takes the request back.
    let other = json!({"name": "test.shout", "arguments": {"text": "ho"}});
    to.write_all(format!("{}\n", legacy(&json!(2), "tools/call", &other)).as_bytes()).await.unwrap();
    assert_eq!(hear().await["method"], "elicitation/create");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
    to.write_all(format!("{cancel}\n").as_bytes()).await.unwrap();
    let waiting = harness.doors.plane.approvals().list(&filter).await.unwrap();
    let id = json!(waiting.approvals[0].id);
    while harness.state(&id).await == ApprovalState::Pending {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    assert_eq!(harness.state(&id).await, ApprovalState::Cancelled);
}
