//! A server behind an address, written for the test.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use aegis_core::{
    config::{McpServer, SecretRef},
    upstream::ServerState,
};
use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, HeaderValue, Method, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::Stage;

async fn serve(
    answer: impl Fn(&Method, &HeaderMap, &Value) -> Response + Clone + Send + Sync + 'static,
) -> McpServer {
    let handler = move |method: Method, headers: HeaderMap, body: Bytes| {
        let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
        std::future::ready(answer(&method, &headers, &message))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut server = McpServer::named("far");
    server.url = Some(format!("http://{}/mcp", listener.local_addr().unwrap()));
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await.unwrap() });
    server
}

fn answer(message: &Value, result: &Value) -> Response {
    axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

fn tools() -> Value {
    let region = json!({"type": "string", "x-mcp-header": "Region"});
    json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": [{"name": "look", "description": "Looks",
        "inputSchema": {"type": "object", "properties": {"region": region}}}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_called_with_credentials_and_marks() {
    let mut server = serve(|_, headers, message| {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        if header("x-key") != "key-of-nobody" || header("aegis-via") != "this-node" {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        match message["method"].as_str() {
            Some("server/discover") => answer(message, &json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})),
            Some("tools/list") => answer(message, &tools()),
            Some("tools/call") => {
                let seen = json!({"region": header("mcp-param-region"), "name": header("mcp-name"),
                    "trace": message["params"]["_meta"]["traceparent"], "authorization": header("authorization")});
                answer(message, &json!({"resultType": "complete", "content": [], "structuredContent": seen}))
            }
            _ => StatusCode::NOT_FOUND.into_response(),
        }
    })
    .await;
    server.credentials = [("X-Key".to_owned(), SecretRef::parse("secret:key"))].into();
    let stage = Stage::with(vec![server]).await;
    stage.tool("far.look").await;
    let seen = stage.call("far.look", json!({"region": "eu"})).await.value;
    assert_eq!(
        (&seen["region"], &seen["name"], &seen["authorization"]),
        (&json!("eu"), &json!("look"), &json!(""))
    );
    assert!(seen["trace"].as_str().unwrap().starts_with("00-"), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_session_is_begun_anew_under_the_call() {
    let sessions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sessions);
    let server = serve(move |method, headers, message| {
        let session = headers.get("mcp-session-id").and_then(|id| id.to_str().ok()?.parse::<usize>().ok());
        match (method, message["method"].as_str(), session) {
            (&Method::POST, Some("initialize"), _) => {
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let mut response = answer(
                    message,
                    &json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "far", "version": "1"}}),
                );
                response
                    .headers_mut()
                    .insert("mcp-session-id", HeaderValue::try_from(number.to_string()).unwrap());
                response
            }
            (&Method::POST, Some("notifications/initialized"), _) => StatusCode::ACCEPTED.into_response(),
            (&Method::POST, Some("tools/list"), Some(_)) => answer(message, &tools()),
            // The first session is forgotten when something is to be done.
            (&Method::POST, Some("tools/call"), Some(1)) => StatusCode::NOT_FOUND.into_response(),
            (&Method::POST, Some("tools/call"), Some(_)) => {
                answer(message, &json!({"content": [{"type": "text", "text": "looked"}]}))
            }
            (&Method::GET, ..) => StatusCode::METHOD_NOT_ALLOWED.into_response(),
            _ => StatusCode::BAD_REQUEST.into_response(),
        }
    })
    .await;
    let stage = Stage::with(vec![server]).await;
    stage.tool("far.look").await;
    tokio::time::sleep(std::time::Duration::from_millis(600)).await;
    assert_eq!(stage.call("far.look", json!({})).await.value, json!("looked"));
    assert_eq!(sessions.load(Ordering::SeqCst), 2);
    stage.state("far", ServerState::Running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_secret_and_a_redirect_are_told() {
    let mut server = serve(|_, _, _| StatusCode::OK.into_response()).await;
    server.credentials = [("X-Key".to_owned(), SecretRef::parse("secret:missing"))].into();
    let stage = Stage::with(vec![server]).await;
    stage.state("far", ServerState::Stopped).await;
    assert!(stage.status("far").reason.unwrap().contains("aegis secret set missing"));

    let away = [("location", "http://127.0.0.1:9/elsewhere")];
    let server = serve(move |_, _, _| (StatusCode::FOUND, away).into_response()).await;
    let stage = Stage::with(vec![server]).await;
    stage.state("far", ServerState::Stopped).await;
    assert!(stage.status("far").reason.unwrap().contains("redirects to http://127.0.0.1:9"));
}
