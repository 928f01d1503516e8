use std::{sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    harness::{legacy, modern},
    server::{ACCEPT, JSON, Server, VERSION},
};

#[tokio::test]
async fn without_a_credential_there_is_only_a_challenge() {
    let server = Server::new().await;
    let body = modern(&json!(1), "server/discover", json!({})).to_string();
    let bare = server.send("POST", "/mcp", &[JSON], body.as_bytes()).await;
    assert_eq!(bare.status, 401);
    let metadata = format!("http://{}/.well-known/oauth-protected-resource/mcp", server.address);
    assert_eq!(
        bare.header("www-authenticate"),
        Some(format!("Bearer realm=\"aegis\", resource_metadata=\"{metadata}\"").as_str())
    );
    assert_eq!(bare.json()["error"]["data"]["violation"], "Unauthenticated");
    for (verb, body) in [("POST", "not json"), ("GET", ""), ("DELETE", "")] {
        let wrong = server
            .send(verb, "/mcp", &[("Authorization", "Bearer aegis_wrong"), JSON], body.as_bytes())
            .await;
        assert_eq!(wrong.status, 401, "{verb}");
        assert!(wrong.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));
    }
}

#[tokio::test]
async fn metadata_is_open_and_names_this_address() {
    let server = Server::new().await;
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let reply = server.send("GET", path, &[], b"").await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json()["resource"], format!("http://{}/mcp", server.address));
        assert_eq!(reply.json()["bearer_methods_supported"], json!(["header"]));
        assert!(reply.json().get("authorization_servers").is_none());
    }
}

#[tokio::test]
async fn discover_says_who_we_are() {
    let server = Server::new().await;
    let reply = server.modern("server/discover", json!({})).await;
    let result = &reply.json()["result"];
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("mcp-session-id"), None);
    assert_eq!(result["resultType"], "complete");
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
    );
    assert_eq!(result["cacheScope"], "private");
    assert!(result["ttlMs"].is_u64());
    assert_eq!(
        result["_meta"]["io.modelcontextprotocol/serverInfo"],
        json!({"name": "aegis", "title": "testing", "version": "0.0.0"})
    );
}

#[tokio::test]
async fn the_list_has_what_the_caller_may_call() {
    let server = Server::new().await;
    let reply = server.modern("tools/list", json!({})).await.json();
    let names: Vec<_> =
        reply["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["test.break", "test.echo", "test.shout", "test.wait"]);
    assert_eq!(reply["result"]["resultType"], "complete");
    assert!(reply["result"].get("nextCursor").is_none());
    let bad = server.modern("tools/list", json!({"cursor": "nonsense"})).await;
    assert_eq!(bad.error(), (200, -32602));
}

#[tokio::test]
async fn a_call_is_answered_with_text_structure_and_label() {
    let server = Server::new().await;
    let text = "line\n\"quoted\" \u{1F980}";
    let reply = server.modern("tools/call", json!({"name": "test.echo", "arguments": {"text": text}})).await;
    let result = &reply.json()["result"];
    assert_eq!(result["structuredContent"], json!({"text": text}));
    let shown: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(shown, json!({"text": text}));
    assert_eq!(result["isError"], false);
    assert_eq!(result["resultType"], "complete");
    assert_eq!(
        result["_meta"]["aegis/label"],
        json!({"trust": "EXTERNAL_UNTRUSTED", "source": "filesystem", "origin": "/workspace/a"})
    );
    assert!(result["_meta"]["aegis/call"].is_string());
    assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());

    let reply =
        server.modern("tools/call", json!({"name": "test.shout", "arguments": {"text": "a\"b"}})).await;
    let result = &reply.json()["result"];
    assert_eq!(result["content"][0]["text"], "A\"B");
    assert_eq!(result["structuredContent"], json!({"text": "A\"B"}));
}

#[tokio::test]
async fn what_a_model_can_mend_is_a_result_and_what_it_cannot_is_an_error() {
    let server = Server::new().await;
    let call = |name: &'static str, arguments: Value| {
        let server = &server;
        async move { server.modern("tools/call", json!({"name": name, "arguments": arguments})).await }
    };
    let failed = call("test.break", json!({"text": "x"})).await;
    let result = &failed.json()["result"];
    assert_eq!(result["isError"], true);
    assert!(result.get("structuredContent").is_none());
    assert_eq!(result["_meta"]["aegis/error_kind"], "NOT_FOUND");
    let shown: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(shown["error_kind"], "NOT_FOUND");

    let invalid = call("test.echo", json!({"txt": 1})).await;
    let result = &invalid.json()["result"];
    assert_eq!((invalid.status, &result["isError"]), (200, &json!(true)));
    assert_eq!(result["_meta"]["aegis/error_kind"], "InvalidArguments");
    assert!(result["content"][0]["text"].as_str().unwrap().contains("InvalidArguments"));

    let unknown = call("test.ecko", json!({})).await;
    assert_eq!(unknown.error(), (200, -32602));
    assert_eq!(unknown.json()["error"]["data"]["violation"], "ToolNotFound");
    assert!(unknown.json()["error"]["data"]["call"].is_string());
    for denied in ["test.hidden", "other.echo"] {
        let denied = call(denied, json!({"text": ""})).await;
        assert_eq!(denied.error(), (200, -32000));
    }
    for params in [json!({}), json!({"name": 1}), json!({"name": "test.echo", "arguments": []})] {
        assert_eq!(server.modern("tools/call", params).await.error(), (200, -32602));
    }
    let twice = modern(&json!(1), "tools/call", json!({"name": "test.echo", "arguments": {"text": 1}}))
        .to_string()
        .replace("\"text\":1", "\"text\":\"a\",\"text\":\"b\"");
    let headers = [VERSION, ("Mcp-Method", "tools/call"), ("Mcp-Name", "test.echo")];
    assert_eq!(server.post(&headers, twice.as_bytes()).await.error(), (200, -32602));
}

#[tokio::test]
async fn stateless_requests_climb_the_ladder() {
    let server = Server::new().await;
    for gone in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "prompts/list"] {
        assert_eq!(server.modern(gone, json!({})).await.error(), (404, -32601), "{gone}");
    }
    let list = modern(&json!("a"), "tools/list", json!({})).to_string();
    let mismatch = server.post(&[VERSION, ("Mcp-Method", "tools/call")], list.as_bytes()).await;
    assert_eq!(mismatch.error(), (400, -32020));
    assert_eq!(mismatch.json()["id"], "a");
    let plain = legacy(&json!(1), "tools/list", &json!({})).to_string();
    assert_eq!(server.post(&[VERSION], plain.as_bytes()).await.error(), (400, -32602));
    for verb in ["GET", "DELETE", "PUT", "PATCH"] {
        let bearer = format!("Bearer {}", server.harness.token.expose());
        let reply = server.send(verb, "/mcp", &[("Authorization", &bearer), VERSION], b"").await;
        assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")), "{verb}");
    }
    let response = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(server.post(&[VERSION], response).await.error(), (400, -32600));
    let note = br#"{"jsonrpc":"2.0","method":"notifications/whatever"}"#;
    let noted = server.post(&[VERSION], note).await;
    assert_eq!((noted.status, noted.body.as_str()), (202, ""));
}

#[tokio::test]
async fn progress_is_told_and_the_answer_comes_last() {
    let server = Server::new().await;
    let params = json!({"name": "test.wait", "arguments": {"millis": 400}, "_meta": {"progressToken": "p"}});
    let reply = server.modern("tools/call", params).await;
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let events = reply.events();
    let (answer, progress) = events.split_last().unwrap();
    assert_eq!(answer["result"]["structuredContent"], json!({"millis": 400}));
    assert!(!progress.is_empty());
    assert!(progress.iter().all(|event| event["params"]["progressToken"] == "p"));
    let numbers: Vec<_> =
        progress.iter().map(|event| event["params"]["progress"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    let bearer = format!("Bearer {}", server.harness.token.expose());
    let body = modern(
        &json!(1),
        "tools/call",
        json!({"name": "test.wait", "arguments": {"millis": 100}, "_meta": {"progressToken": 1}}),
    );
    let headers = [
        ("Authorization", bearer.as_str()),
        JSON,
        ("Accept", "application/json"),
        VERSION,
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "test.wait"),
    ];
    let reply = server.send("POST", "/mcp", &headers, body.to_string().as_bytes()).await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn closing_the_connection_cancels_a_stateless_call() {
    let server = Server::new().await;
    let bearer = format!("Bearer {}", server.harness.token.expose());
    let headers = [
        ("Authorization", bearer.as_str()),
        JSON,
        VERSION,
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "test.wait"),
    ];
    // Before anything was answered, and in the middle of events.
    for (accept, meta) in [("application/json", json!({})), ("*/*", json!({"progressToken": 1}))] {
        let before = server.harness.cancelled.load(Ordering::SeqCst);
        let params = json!({"name": "test.wait", "arguments": {"millis": 600_000}, "_meta": meta});
        let body = modern(&json!(1), "tools/call", params).to_string();
        let all = [&headers[..], &[("Accept", accept)]].concat();
        let mut stream = server.open("POST", "/mcp", &all, body.as_bytes()).await;
        server.harness.until_in_flight(1).await;
        if accept == "*/*" {
            stream.read_u8().await.unwrap();
        }
        drop(stream);
        server.harness.until_cancelled(before + 1).await;
        server.harness.until_in_flight(0).await;
    }
}

#[tokio::test]
async fn plain_names_are_listed_and_understood() {
    let server = Server::new().await;
    let bearer = format!("Bearer {}", server.harness.token.expose());
    let headers = [("Authorization", bearer.as_str()), JSON, ACCEPT];
    let send = |target: &'static str, body: Value| {
        let (server, headers) = (&server, &headers);
        async move { server.send("POST", target, headers, body.to_string().as_bytes()).await }
    };
    let list = send("/mcp?names=plain", legacy(&json!(1), "tools/list", &json!({}))).await.json();
    assert_eq!(list["result"]["tools"][0]["name"], "test_break");
    let call =
        |name: &str| legacy(&json!(1), "tools/call", &json!({"name": name, "arguments": {"text": "x"}}));
    for name in ["test_shout", "test.shout"] {
        let called = send("/mcp/?names=plain", call(name)).await.json();
        assert_eq!(called["result"]["content"][0]["text"], "X", "{name}");
    }
    assert_eq!(send("/mcp", call("test_shout")).await.error(), (200, -32602));
    assert_eq!(send("/mcp?names=plain", call("other_echo")).await.error(), (200, -32000));
    assert_eq!(send("/mcp?names=odd", call("x")).await.error(), (400, -32600));
}

#[tokio::test]
async fn bad_bodies_and_headers_are_refused_clearly() {
    let server = Server::new().await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"test.echo","arguments":{}1{}}}}}"#,
        "{\"a\":".repeat(1000),
        "}".repeat(1000)
    );
    assert_eq!(server.post(&[], deep.as_bytes()).await.error(), (200, -32602));
    for (body, code) in [
        (&b""[..], -32700),
        (b"nonsense", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}", -32700),
        (b"\xef\xbb\xbf{}", -32700),
        (b"null", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", -32600),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}", -32600),
    ] {
        let reply = server.post(&[], body).await;
        assert_eq!(reply.error(), (400, code), "{body:?}");
        assert_eq!(reply.json().get("id"), Some(&json!(null)), "{body:?}");
    }
    let bearer = format!("Bearer {}", server.harness.token.expose());
    let auth = ("Authorization", bearer.as_str());
    let ping = legacy(&json!(1), "ping", &json!({})).to_string();
    for kind in ["text/plain", "application/jsonx", ""] {
        let reply = server.send("POST", "/mcp", &[auth, ("Content-Type", kind)], ping.as_bytes()).await;
        assert_eq!(reply.status, 415, "{kind}");
    }
    let charset = ("Content-Type", "Application/JSON; charset=utf-8");
    assert_eq!(server.send("POST", "/mcp", &[auth, charset], ping.as_bytes()).await.status, 200);
    let html = ("Accept", "text/html");
    assert_eq!(server.send("POST", "/mcp", &[auth, JSON, html], ping.as_bytes()).await.status, 406);
}

#[tokio::test]
async fn a_body_that_breaks_off_harms_nobody() {
    let server = Server::new().await;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{\"jsonrpc\"",
        server.harness.token.expose()
    );
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(server.modern("server/discover", json!({})).await.status, 200);
}
