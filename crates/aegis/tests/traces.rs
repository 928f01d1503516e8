//! What a trace collector is told of calls, by a real node over OTLP.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

#[path = "common/collector.rs"]
mod collector;
mod common;

use collector::{Collector, attribute};
use common::{TestNode, wait_until};
use serde_json::{Value, json};

#[test]
fn every_call_is_a_trace_with_its_parts() {
    let collector = Collector::start(&[200]);
    let node = TestNode::with_config(&collector.config());
    let stored = node.request(
        "POST",
        "/v1/secrets",
        Some(&node.token),
        Some(&json!({"name": "otlp/key", "value": "0123456789abcdef"})),
    );
    assert_eq!(stored.status, 201);
    let secret_content = "not-for-the-collector";
    node.call("fs.write", json!({"path": "a.txt", "content": secret_content}));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let parent = format!("00-{trace}-00f067aa0ba902b7-01");
    let headers =
        [("content-type", "application/json"), ("traceparent", parent.as_str()), ("tracestate", "v=1")];
    node.raw("POST", "/v1/tools/fs.list", Some(&node.token), &headers, br#"{"path": "/workspace"}"#);
    let agent = node.make_token("read-only");
    node.call_as(&agent, "fs.delete", json!({"path": "a.txt"}));
    wait_until(|| ["fs.write", "fs.list", "fs.delete"].iter().all(|tool| collector.of(tool).is_some()));

    let written = collector.of("fs.write").unwrap();
    assert_eq!(written["name"], "execute_tool fs.write");
    assert_eq!((&written["kind"], &written["status"]["code"]), (&json!(2), &json!(1)));
    assert_eq!(attribute(&written, "gen_ai.operation.name").as_deref(), Some("execute_tool"));
    // The trace leads to the audit log.
    let call = attribute(&written, "gen_ai.tool.call.id").unwrap();
    assert_eq!(written["traceId"], call.replace('-', ""));
    assert!(node.records().iter().any(|record| record["entry"]["call"] == call));
    let parts: Vec<Value> =
        collector.spans().into_iter().filter(|span| span["parentSpanId"] == written["spanId"]).collect();
    let names: Vec<&str> = parts.iter().filter_map(|span| span["name"].as_str()).collect();
    assert_eq!(names, ["gate catalog", "gate arguments", "gate policy", "gate approval", "route files"]);
    let time = |span: &Value, member: &str| span[member].as_str().unwrap().parse::<u128>().unwrap();
    for part in &parts {
        assert!(time(part, "startTimeUnixNano") <= time(part, "endTimeUnixNano"));
        assert!(time(part, "endTimeUnixNano") <= time(&written, "endTimeUnixNano"));
        assert_eq!(part["traceId"], written["traceId"]);
    }

    let listed = collector.of("fs.list").unwrap();
    assert_eq!((&listed["traceId"], &listed["parentSpanId"]), (&json!(trace), &json!("00f067aa0ba902b7")));
    assert_eq!(listed["traceState"], "v=1");
    let refused = collector.of("fs.delete").unwrap();
    assert_eq!(refused["status"]["code"], 2);
    assert_eq!(attribute(&refused, "error.type").as_deref(), Some("ToolNotAllowed"));

    let heads = collector.heads.lock().unwrap().clone();
    assert!(heads.iter().all(|head| head.starts_with("post /v1/traces ") && head.contains("x-team: tools")));
    assert!(heads.last().unwrap().contains("x-key: 0123456789abcdef"));
    let everything = Value::from(collector.spans()).to_string();
    assert!(!everything.contains(secret_content) && !everything.contains("0123456789abcdef"));
}

#[test]
fn a_collector_that_fails_holds_nobody_up() {
    let collector = Collector::start(&[503, 200]);
    let node = TestNode::with_config(&format!(
        "  observability: {{otlp: {{endpoint: '{}', interval: 10ms}}}}",
        collector.url
    ));
    assert_eq!(node.call("fs.list", json!({"path": "/workspace"})).status, 200);
    wait_until(|| collector.of("fs.list").is_some());
    assert!(collector.heads.lock().unwrap().len() >= 2, "it was tried again");
    let (code, dir) = node.stop();
    assert_eq!(code, Some(0));
    // Nobody there at all.
    common::write_config(
        dir.path(),
        "  observability: {otlp: {endpoint: 'http://127.0.0.1:1', interval: 10ms, timeout: 1s}}",
    );
    let node = TestNode::on(dir);
    for _ in 0..20 {
        assert_eq!(node.call("fs.list", json!({"path": "/workspace"})).status, 200);
    }
    assert_eq!(node.stop().0, Some(0));
}
