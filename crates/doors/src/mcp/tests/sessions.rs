use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::{
    harness::{legacy, modern},
    server::{ACCEPT, JSON, Server, VERSION, read},
};

#[tokio::test]
async fn sessions_negotiate_serve_and_end() {
    let server = Server::new().await;
    for (asked, agreed) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2024-11-05"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let body = legacy(&json!(0), "initialize", &json!({"protocolVersion": asked})).to_string();
        let reply = server.post(&[], body.as_bytes()).await;
        let result = &reply.json()["result"];
        assert_eq!(result["protocolVersion"], agreed);
        assert!(result.get("resultType").is_none() && result.get("_meta").is_none());
        let session = reply.header("mcp-session-id").unwrap();
        let called = server
            .legacy(session, "tools/call", json!({"name": "test.shout", "arguments": {"text": "a"}}))
            .await;
        let called = &called.json()["result"];
        assert_eq!(called["content"][0]["text"], "A");
        assert_eq!(called.get("structuredContent").is_some(), agreed >= "2025-06-18", "{agreed}");
        assert!(called.get("resultType").is_none());
        let listed = &server.legacy(session, "tools/list", json!({})).await.json()["result"]["tools"][0];
        assert_eq!(listed.get("outputSchema").is_some(), agreed >= "2025-06-18");
        assert_eq!(listed.get("annotations").is_some(), agreed >= "2025-03-26");
    }
    let session = server.begin_session("2025-11-25").await;
    assert_eq!(server.legacy(&session, "ping", json!({})).await.json()["result"], json!({}));
    assert_eq!(server.legacy(&session, "prompts/list", json!({})).await.error(), (200, -32601));
    let bearer = format!("Bearer {}", server.harness.token.expose());
    let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", session.as_str())];
    assert_eq!(server.send("DELETE", "/mcp", &headers, b"").await.status, 204);
    assert_eq!(server.send("DELETE", "/mcp", &headers, b"").await.status, 404);
    assert_eq!(server.legacy(&session, "ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_session_is_no_credential() {
    let server = Server::new().await;
    let session = server.begin_session("2025-11-25").await;
    let bearer = format!("Bearer {}", server.harness.other.expose());
    let body = legacy(&json!(1), "ping", &json!({})).to_string();
    let headers = [("Authorization", bearer.as_str()), ("Mcp-Session-Id", session.as_str()), JSON];
    assert_eq!(server.send("POST", "/mcp", &headers, body.as_bytes()).await.status, 404);
    assert_eq!(server.send("DELETE", "/mcp", &headers, b"").await.status, 404);
    assert_eq!(server.legacy(&session, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn without_a_session_older_requests_are_served_too() {
    let server = Server::new().await;
    let body = legacy(&json!(1), "tools/list", &json!(null)).to_string();
    let reply = server.post(&[], body.as_bytes()).await;
    assert_eq!(reply.json()["result"]["tools"].as_array().unwrap().len(), 4);
    assert!(reply.json()["result"]["tools"][0].get("outputSchema").is_none());
    let reply = server.post(&[("MCP-Protocol-Version", "2025-06-18")], body.as_bytes()).await;
    assert!(reply.json()["result"]["tools"][0].get("outputSchema").is_some());
    let note = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(server.post(&[], note).await.status, 202);
    assert_eq!(server.post(&[("Mcp-Session-Id", "nosuch")], note).await.status, 404);
}

#[tokio::test]
async fn arrays_are_for_the_revisions_that_have_them() {
    let server = Server::new().await;
    let batch = json!([
        legacy(&json!(1), "ping", &json!({})),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        legacy(&json!("two"), "tools/call", &json!({"name": "test.shout", "arguments": {"text": "x"}})),
        legacy(&json!(3), "nosuch", &json!({})),
    ])
    .to_string();
    let old = server.begin_session("2025-03-26").await;
    let reply = server.post(&[("Mcp-Session-Id", &old)], batch.as_bytes()).await;
    let answers = reply.json();
    assert_eq!(answers.as_array().unwrap().len(), 3);
    assert_eq!(answers[0], json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    assert_eq!(answers[1]["result"]["content"][0]["text"], "X");
    assert_eq!(answers[2]["error"]["code"], -32601);
    let new = server.begin_session("2025-06-18").await;
    assert_eq!(server.post(&[("Mcp-Session-Id", &new)], batch.as_bytes()).await.error(), (400, -32600));
    assert_eq!(server.post(&[VERSION], batch.as_bytes()).await.error(), (400, -32600));
    let notes = br#"[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":1,"result":{}}]"#;
    assert_eq!(server.post(&[], notes).await.status, 202);
    let begin =
        json!([legacy(&json!(1), "initialize", &json!({"protocolVersion": "2025-03-26"}))]).to_string();
    let claim = json!([modern(&json!(1), "tools/list", json!({}))]).to_string();
    let many = json!(vec![legacy(&json!(1), "ping", &json!({})); 33]).to_string();
    for wrong in ["[]", "[1]", "[{}]", "[[]]", begin.as_str(), claim.as_str(), many.as_str()] {
        assert_eq!(server.post(&[], wrong.as_bytes()).await.error(), (400, -32600), "{wrong}");
    }
    assert_eq!(server.post(&[], b"[").await.error(), (400, -32700));
}

#[tokio::test]
async fn with_a_session_a_notification_cancels_and_closing_does_not() {
    let server = Server::new().await;
    let session = server.begin_session("2025-11-25").await;
    let bearer = format!("Bearer {}", server.harness.token.expose());
    let headers = [("Authorization", bearer.as_str()), JSON, ACCEPT, ("Mcp-Session-Id", session.as_str())];
    let call = |id: Value, millis: u64| {
        legacy(&id, "tools/call", &json!({"name": "test.wait", "arguments": {"millis": millis}})).to_string()
    };
    let cancel = |id: Value| {
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
            .to_string()
    };

    let stream = server.open("POST", "/mcp", &headers, call(json!(7), 300).as_bytes()).await;
    server.harness.until_in_flight(1).await;
    drop(stream);
    server.harness.until_in_flight(0).await;
    assert_eq!(server.harness.cancelled.load(Ordering::SeqCst), 0);

    // What was left alone can still be withdrawn.
    let stream = server.open("POST", "/mcp", &headers, call(json!(6), 600_000).as_bytes()).await;
    server.harness.until_in_flight(1).await;
    drop(stream);
    let reply = server.post(&[("Mcp-Session-Id", &session)], cancel(json!(6)).as_bytes()).await;
    assert_eq!(reply.status, 202);
    server.harness.until_cancelled(1).await;
    server.harness.until_in_flight(0).await;

    let stream = server.open("POST", "/mcp", &headers, call(json!(7), 600_000).as_bytes()).await;
    server.harness.until_in_flight(1).await;
    // Neither a look-alike nor the same id in another session.
    let other = server.begin_session("2025-11-25").await;
    for (session, id) in [(&session, json!("7")), (&other, json!(7))] {
        let reply = server.post(&[("Mcp-Session-Id", session)], cancel(id).as_bytes()).await;
        assert_eq!(reply.status, 202);
    }
    assert_eq!(server.harness.doors.plane.meters().in_flight(), 1);
    let reply = server.post(&[("Mcp-Session-Id", &session)], cancel(json!(7)).as_bytes()).await;
    assert_eq!(reply.status, 202);
    server.harness.until_cancelled(2).await;
    let ended = read(stream).await;
    assert!(ended.status == 200 && !ended.body.contains("\"id\""), "{ended:?}");
}

#[tokio::test]
async fn a_session_has_one_stream_which_ends_with_it() {
    let server = Server::new().await;
    let session = server.begin_session("2025-11-25").await;
    let bearer = format!("Bearer {}", server.harness.token.expose());
    let auth = ("Authorization", bearer.as_str());
    let own = ("Mcp-Session-Id", session.as_str());
    let events = ("Accept", "text/event-stream");
    let mut first = server.open("GET", "/mcp", &[auth, own, events], b"").await;
    first.read_u8().await.unwrap();
    let mut second = server.open("GET", "/mcp", &[auth, own, events], b"").await;
    second.read_u8().await.unwrap();
    // The first is closed by the second, the second by the end of the session.
    first.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(server.send("DELETE", "/mcp", &[auth, own], b"").await.status, 204);
    second.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(server.send("GET", "/mcp", &[auth, own, events], b"").await.status, 404);
    assert_eq!(server.send("GET", "/mcp", &[auth, events], b"").await.status, 405);

    let session = server.begin_session("2025-11-25").await;
    let own = ("Mcp-Session-Id", session.as_str());
    assert_eq!(server.send("GET", "/mcp", &[auth, own, ("Accept", "text/html")], b"").await.status, 406);
    let mut last = server.open("GET", "/mcp", &[auth, own, events], b"").await;
    last.read_u8().await.unwrap();
    server.harness.doors.stopping.cancel();
    last.read_to_end(&mut Vec::new()).await.unwrap();
}
