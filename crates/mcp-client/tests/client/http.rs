//! Servers over HTTP, written for the test: real sockets, answers as each test wants them.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aegis_mcp_client::{
    Client, Credentials, Endpoint, Error, Handler, Http, Limits, Listed, Preference, Version, http::Body,
};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header},
    response::IntoResponse,
};
use futures::{StreamExt, future::BoxFuture};
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy, rt::TokioExecutor};
use serde_json::{Value, json};
use url::Url;

use super::{Heard, call, identity, said};

struct Direct(legacy::Client<legacy::connect::HttpConnector, Full<Bytes>>);

impl Direct {
    fn new() -> Arc<Self> {
        Arc::new(Self(legacy::Client::builder(TokioExecutor::new()).build_http()))
    }
}

impl Http for Direct {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, String>> {
        Box::pin(async move {
            let response = self.0.request(request.map(Full::new)).await.map_err(|error| error.to_string())?;
            Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()))
        })
    }
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(Method, HeaderMap, Value)>>>);

type Answer = Arc<dyn Fn(&Method, &HeaderMap, &Value) -> axum::response::Response + Send + Sync>;

#[derive(Clone)]
struct Served {
    seen: Seen,
    answer: Answer,
}

async fn serve(
    answer: impl Fn(&Method, &HeaderMap, &Value) -> axum::response::Response + Send + Sync + 'static,
) -> (Url, Seen) {
    let seen = Seen::default();
    let state = Served { seen: seen.clone(), answer: Arc::new(answer) };
    let app = Router::new().fallback(handle).with_state(state);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, seen)
}

async fn handle(
    State(served): State<Served>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> axum::response::Response {
    let message = serde_json::from_slice(&body).unwrap_or(Value::Null);
    served.seen.0.lock().unwrap().push((method.clone(), headers.clone(), message.clone()));
    (served.answer)(&method, &headers, &message)
}

fn endpoint(url: &Url) -> Endpoint {
    Endpoint {
        url: url.clone(),
        http: Direct::new(),
        credentials: Arc::new(()),
        headers: vec![(header::HeaderName::from_static("aegis-via"), HeaderValue::from_static("node-1"))],
        preference: Preference::Any,
    }
}

async fn connect(url: &Url) -> Result<Client, Error> {
    let handler: Arc<dyn Handler> = Arc::new(Heard::default());
    let limits = Limits { message: 1 << 20, handshake: Duration::from_secs(10), ..Limits::default() };
    Client::connect(&endpoint(url), &identity(), &limits, &handler).await
}

#[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
fn answer(message: &Value, result: Value) -> axum::response::Response {
    axum::Json(json!({"jsonrpc": "2.0", "id": message["id"], "result": result})).into_response()
}

fn events(text: String) -> axum::response::Response {
    ([(header::CONTENT_TYPE, "text/event-stream")], text).into_response()
}

fn text(text: &str) -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": text}]})
}

fn discovered() -> Value {
    json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
        "ttlMs": 0, "cacheScope": "private"})
}

fn initialized(message: &Value) -> axum::response::Response {
    let mut response = answer(
        message,
        json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"}}),
    );
    response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("session-1"));
    response
}

#[tokio::test]
async fn the_newest_version_says_everything_in_headers_too() {
    let (url, seen) = serve(|_, _, message| match message["method"].as_str() {
        Some("server/discover") => answer(message, discovered()),
        Some("tools/call") => answer(message, text("ok")),
        _ => StatusCode::NOT_FOUND.into_response(),
    })
    .await;
    let client = connect(&url).await.unwrap();
    assert_eq!(client.version(), Version::V2026_07_28);
    assert_eq!(said(&call(&client, "grüße", json!({})).await.unwrap()), "ok");
    let seen = seen.0.lock().unwrap();
    let (_, headers, body) = seen.last().unwrap();
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(header("mcp-method"), "tools/call");
    assert_eq!(header("mcp-name"), "=?base64?Z3LDvMOfZQ==?=");
    assert_eq!(header("aegis-via"), "node-1");
    assert!(!headers.contains_key("mcp-session-id"));
    assert_eq!(body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
}

#[tokio::test]
async fn sessions_are_kept_and_their_loss_is_noticed() {
    let (url, seen) = serve(|method, headers, message| {
        let session = headers.get("mcp-session-id").is_some();
        match (method, message["method"].as_str()) {
            (&Method::POST, Some("initialize")) => initialized(message),
            (&Method::POST, Some("notifications/initialized")) if session => {
                StatusCode::ACCEPTED.into_response()
            }
            (&Method::POST, Some("tools/call")) if session && message["params"]["name"] == "lost" => {
                (StatusCode::NOT_FOUND, "no such session").into_response()
            }
            (&Method::POST, Some("tools/call")) if session => events(format!(
                ": hi\n\ndata: {}\n\ndata: {}\n\n",
                json!({"jsonrpc": "2.0", "id": 4711, "result": text("not yours")}),
                json!({"jsonrpc": "2.0", "id": message["id"], "result": text("streamed")}),
            )),
            (&Method::GET, _) => StatusCode::METHOD_NOT_ALLOWED.into_response(),
            _ => StatusCode::BAD_REQUEST.into_response(),
        }
    })
    .await;
    let client = connect(&url).await.unwrap();
    assert_eq!(client.version(), Version::V2025_06_18);
    assert_eq!(said(&call(&client, "x", json!({})).await.unwrap()), "streamed");
    {
        let seen = seen.0.lock().unwrap();
        let (_, headers, _) = seen.last().unwrap();
        assert_eq!(headers["mcp-protocol-version"], "2025-06-18");
        assert!(!headers.contains_key("mcp-method"));
    }
    assert!(matches!(call(&client, "lost", json!({})).await, Err(Error::SessionLost)));
    assert!(matches!(client.end().await, Error::SessionLost));
}

#[tokio::test]
async fn a_broken_stream_is_taken_up_again() {
    let (url, seen) = serve(|method, headers, message| match (method, message["method"].as_str()) {
        (&Method::POST, Some("initialize")) => initialized(message),
        (&Method::POST, Some("tools/call")) => {
            events(format!("id: e1-{}\nretry: 1\ndata: \n\n", message["id"]))
        }
        (&Method::GET, _) => match headers.get("last-event-id") {
            Some(id) => {
                let id: u64 = id.to_str().unwrap().trim_start_matches("e1-").parse().unwrap();
                events(format!(
                    "data: {}\n\n",
                    json!({"jsonrpc": "2.0", "id": id, "result": text("resumed")})
                ))
            }
            None => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        },
        _ => StatusCode::ACCEPTED.into_response(),
    })
    .await;
    let client = connect(&url).await;
    // The newest question is answered with 202 there, which is no answer; the older one works.
    let client = client.unwrap();
    assert_eq!(said(&call(&client, "x", json!({})).await.unwrap()), "resumed");
    assert!(seen.0.lock().unwrap().iter().any(|(_, headers, _)| headers.contains_key("last-event-id")));
}

#[tokio::test]
async fn a_stream_that_ends_early_is_an_error() {
    let (url, _) = serve(|_, _, message| match message["method"].as_str() {
        Some("server/discover") => answer(message, discovered()),
        Some("tools/list") => answer(&json!({"id": 999}), json!({"tools": []})),
        Some("tools/call") if message["params"]["name"] == "html" => "<html>".into_response(),
        Some("tools/call") if message["params"]["name"] == "large" => {
            answer(message, text(&"x".repeat(2 << 20)))
        }
        Some("tools/call") if message["params"]["name"] == "large-event" => {
            events(format!("data: {}\n\n", "x".repeat(2 << 20)))
        }
        _ => events("id: 1\ndata: \n\n".into()),
    })
    .await;
    let client = connect(&url).await.unwrap();
    assert!(matches!(call(&client, "x", json!({})).await, Err(Error::Closed(_))));
    assert!(matches!(call(&client, "html", json!({})).await, Err(Error::Protocol(_))));
    assert!(matches!(call(&client, "large", json!({})).await, Err(Error::TooLarge { .. })));
    assert!(matches!(call(&client, "large-event", json!({})).await, Err(Error::TooLarge { .. })));
    assert!(matches!(client.list(Listed::Tools).await, Err(Error::Protocol(_))));
    assert!(client.ended().is_none());
    assert_eq!(client.pending(), 0);
}

#[tokio::test]
async fn redirects_elsewhere_are_not_followed() {
    let (victim, stolen) = serve(|_, _, _| StatusCode::OK.into_response()).await;
    let (url, _) = serve(move |_, _, _| {
        (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, victim.to_string())]).into_response()
    })
    .await;
    let error = connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::Redirected { .. }), "{error}");
    assert!(stolen.0.lock().unwrap().is_empty());

    let (url, seen) = serve(|_, headers, message| {
        if headers.contains_key("x-again") || message["method"] == "server/discover" {
            return (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "/mcp/")]).into_response();
        }
        StatusCode::OK.into_response()
    })
    .await;
    assert!(connect(&url).await.is_err());
    assert!(seen.0.lock().unwrap().len() >= 2);
}

struct Rotating(AtomicUsize);

impl Credentials for Rotating {
    fn headers(&self, refused: bool) -> BoxFuture<'_, Result<HeaderMap, String>> {
        Box::pin(async move {
            let now = if refused {
                self.0.fetch_add(1, Ordering::SeqCst) + 1
            } else {
                self.0.load(Ordering::SeqCst)
            };
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::try_from(format!("Bearer t{now}")).unwrap());
            Ok(headers)
        })
    }
}

#[tokio::test]
async fn refused_credentials_are_got_anew_once() {
    let (url, _) = serve(|_, headers, message| {
        match headers.get("authorization").and_then(|value| value.to_str().ok()) {
            Some("Bearer t1") => answer(message, discovered()),
            _ => StatusCode::UNAUTHORIZED.into_response(),
        }
    })
    .await;
    let handler: Arc<dyn Handler> = Arc::new(());
    let mut endpoint = endpoint(&url);
    endpoint.credentials = Arc::new(Rotating(AtomicUsize::new(0)));
    Client::connect(&endpoint, &identity(), &Limits::default(), &handler).await.unwrap();
    endpoint.credentials = Arc::new(());
    let refused = Client::connect(&endpoint, &identity(), &Limits::default(), &handler).await.unwrap_err();
    assert!(matches!(refused, Error::Unauthorised { status: 401 }), "{refused}");
}

#[tokio::test]
async fn the_first_transport_still_works() {
    let (sender, _) = tokio::sync::broadcast::channel::<String>(64);
    let out = sender.clone();
    let (url, _) = serve(move |method, _, message| {
        if method == Method::GET {
            let stream = tokio_stream(out.subscribe());
            return ([(header::CONTENT_TYPE, "text/event-stream")], axum::body::Body::from_stream(stream))
                .into_response();
        }
        let result = match message["method"].as_str() {
            Some("server/discover") => return StatusCode::NOT_FOUND.into_response(),
            Some("initialize") if message["via"].is_null() => {
                json!({"protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
                    "serverInfo": {"name": "old", "version": "0"}})
            }
            Some("tools/call") => text("by mail"),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        let event = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        // Without a stream that hears it there is no such transport here yet.
        if out.send(format!("event: message\ndata: {event}\n\n")).is_err() {
            return StatusCode::METHOD_NOT_ALLOWED.into_response();
        }
        StatusCode::ACCEPTED.into_response()
    })
    .await;
    let client = connect(&url).await.unwrap();
    assert_eq!(client.version(), Version::V2024_11_05);
    assert_eq!(said(&call(&client, "x", json!({})).await.unwrap()), "by mail");
    drop(sender);
}

fn tokio_stream(
    receiver: tokio::sync::broadcast::Receiver<String>,
) -> impl futures::Stream<Item = Result<String, Infallible>> {
    let first = futures::stream::iter([Ok("event: endpoint\ndata: /mcp?box=1\n\n".to_owned())]);
    let rest = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.ok().map(|text| (Ok(text), receiver))
    });
    first.chain(rest)
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
    drop(listener);
    assert!(matches!(connect(&url).await, Err(Error::Unreachable(_))));
}
