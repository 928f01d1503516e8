//! The caller's trace goes on at the server, and the collector sees both ends of it.

use std::{
    io::{BufReader, Write},
    net::TcpListener,
};

use serde_json::{Value, json};

use super::{
    collector::Collector,
    common::{self, TestNode},
    config, ready, server,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn traced(collector: &Collector, servers: &str) -> TestNode {
    let otlp = format!("  observability: {{otlp: {{endpoint: '{}', interval: 50ms}}}}\n", collector.url);
    TestNode::with_config(&format!("{servers}{otlp}"))
}

/// What the fixture was shown under `_meta`.
fn meta(answer: &common::Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let result = answer.result();
    serde_json::from_str(result.as_str().unwrap_or_default()).unwrap_or(result)
}

#[test]
fn the_trace_of_a_header_goes_on_in_the_servers_meta() {
    let collector = Collector::start(&[200]);
    let node = traced(&collector, &config(&[server("fix", "", &[])]));
    ready(&node);
    let headers = [("content-type", "application/json"), ("traceparent", PARENT), ("tracestate", "v=1")];
    let shown = meta(&node.raw("POST", "/v1/tools/fix.meta", Some(&node.token), &headers, b"{}"));
    common::wait_until(|| collector.of("fix.meta").is_some());
    let span = collector.of("fix.meta").unwrap();
    assert_eq!((&span["traceId"], &span["parentSpanId"]), (&json!(TRACE), &json!("00f067aa0ba902b7")));
    // The server stands below the call's own span.
    let told = format!("00-{TRACE}-{}-01", span["spanId"].as_str().unwrap());
    assert_eq!((&shown["traceparent"], &shown["tracestate"]), (&json!(told), &json!("v=1")), "{shown}");
}

#[test]
fn the_trace_of_a_message_goes_on_and_a_call_without_one_begins_its_own() {
    let collector = Collector::start(&[200]);
    let node = traced(&collector, &config(&[server("fix", "", &[])]));
    ready(&node);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "fix.meta", "arguments": {},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {}, "traceparent": PARENT}}});
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "fix.meta"),
    ];
    let answer = node.raw("POST", "/mcp", Some(&node.token), &headers, call.to_string().as_bytes());
    assert!(answer.body.contains(TRACE), "{}{}", answer.head, answer.body);
    common::wait_until(|| collector.of("fix.meta").is_some());
    assert_eq!(collector.of("fix.meta").unwrap()["traceId"], TRACE);

    let shown = meta(&node.call("fix.meta", json!({})));
    let own = shown["traceparent"].as_str().unwrap().split('-').nth(1).unwrap().to_owned();
    assert_ne!(own, TRACE);
    common::wait_until(|| collector.spans().iter().any(|span| span["traceId"] == own));
}

/// An MCP server over HTTP whose one tool says which `traceparent` its request bore in its head.
fn http_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut stream = stream;
                while let Some((head, body)) = common::read_request(&mut reader) {
                    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let (status, said) = answer(&asked, common::header(&head, "traceparent"));
                    let _ = write!(
                        stream,
                        "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{said}",
                        said.len()
                    );
                }
            });
        }
    });
    url
}

fn answer(asked: &Value, traceparent: Option<&str>) -> (u16, String) {
    if asked["method"].is_null() {
        return (405, String::new());
    }
    if asked["id"].is_null() {
        return (202, String::new());
    }
    let result = match asked["method"].as_str().unwrap_or_default() {
        "initialize" => {
            json!({"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "http", "version": "1"}})
        }
        "tools/list" => json!({"tools": [{"name": "head", "inputSchema": {"type": "object"}}]}),
        "tools/call" => json!({"content": [{"type": "text", "text": traceparent.unwrap_or_default()}]}),
        _ => {
            let error =
                json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}});
            return (200, error.to_string());
        }
    };
    (200, json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}).to_string())
}

#[test]
fn an_http_server_gets_the_trace_as_a_header() {
    let collector = Collector::start(&[200]);
    let one = format!("    - {{name: web, url: '{}', namespace: far}}\n", http_server());
    let node = traced(&collector, &config(&[one]));
    common::wait_until(|| node.call("far.head", json!({})).status == 200);
    let headers = [("content-type", "application/json"), ("traceparent", PARENT)];
    let said = node.raw("POST", "/v1/tools/far.head", Some(&node.token), &headers, b"{}");
    let said = said.result().as_str().unwrap_or_default().to_owned();
    common::wait_until(|| collector.spans().iter().any(|span| span["traceId"] == TRACE));
    let spans = collector.spans();
    let span =
        spans.iter().find(|span| span["traceId"] == TRACE && span["parentSpanId"] == "00f067aa0ba902b7");
    assert_eq!(said, format!("00-{TRACE}-{}-01", span.unwrap()["spanId"].as_str().unwrap()));
}
