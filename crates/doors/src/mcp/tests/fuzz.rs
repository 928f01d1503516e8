//! Whatever a client writes, every line it gets back is a message, and the conversation goes on.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{super::stdio, harness::Harness};

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        select(vec!["2.0", "2026-07-28", "2025-03-26", "test.echo", "test.shout", "tools/call"])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((member(), inner), 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn member() -> impl Strategy<Value = String> {
    let known = select(vec![
        "_meta",
        "name",
        "arguments",
        "cursor",
        "text",
        "requestId",
        "protocolVersion",
        "progressToken",
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => any::<String>()]
}

/// Something close to a message.
fn message() -> impl Strategy<Value = Value> {
    let method = select(vec![
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "tools/call",
        "notifications/cancelled",
        "nosuch",
    ]);
    let methods = prop_oneof![8 => method.prop_map(Value::from), 1 => any_json()];
    let version = prop_oneof![8 => Just(json!("2.0")), 1 => any_json()];
    (version, any_json(), methods, any_json(), any::<[bool; 3]>()).prop_map(
        |(version, id, method, params, [has_id, has_params, named])| {
            let mut message = json!({"jsonrpc": version, "method": method});
            if has_id {
                message["id"] = id;
            }
            if has_params {
                message["params"] = params;
                if named && message["params"].is_object() {
                    message["params"]["name"] = "test.echo".into();
                }
            }
            message
        },
    )
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => message().prop_map(|message| message.to_string().into_bytes()),
        1 => vec(message(), 0..3).prop_map(|batch| Value::from(batch).to_string().into_bytes()),
        1 => any_json().prop_map(|value| value.to_string().into_bytes()),
        1 => vec(any::<u8>(), 0..60),
        1 => (message(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(message, at, byte)| {
            let mut text = message.to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            text
        }),
    ]
}

async fn conversation(harness: &Harness, lines: &[Vec<u8>]) -> Vec<u8> {
    let (mut to, input) = tokio::io::duplex(1 << 20);
    let (output, mut from) = tokio::io::duplex(1 << 20);
    let serving = tokio::spawn(stdio::serve(Arc::clone(&harness.doors), harness.caller(), input, output));
    for line in lines {
        to.write_all(line).await.unwrap();
        to.write_all(b"\n").await.unwrap();
    }
    to.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":\"the last\",\"method\":\"ping\"}\n").await.unwrap();
    drop(to);
    let mut heard = Vec::new();
    from.read_to_end(&mut heard).await.unwrap();
    serving.await.unwrap().unwrap();
    heard
}

#[test]
fn any_conversation_stays_a_conversation() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let harness = runtime.block_on(Harness::new());
    proptest!(ProptestConfig::with_cases(150), |(lines in vec(line(), 0..12))| {
        let heard = runtime.block_on(conversation(&harness, &lines));
        let mut last = false;
        for answer in heard.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let answer: Value = serde_json::from_slice(answer).expect("each line is JSON");
            for answer in answer.as_array().map_or(std::slice::from_ref(&answer), Vec::as_slice) {
                prop_assert_eq!(&answer["jsonrpc"], "2.0");
                let is_error = answer["error"]["code"].is_i64() && answer["error"]["message"].is_string();
                let is_progress = answer["method"] == "notifications/progress";
                prop_assert!(is_progress || answer["result"].is_object() != is_error, "{}", answer);
                last |= answer["id"] == "the last";
            }
        }
        prop_assert!(last);
    });
}
