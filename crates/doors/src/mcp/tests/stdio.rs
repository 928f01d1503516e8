use std::{io, sync::Arc};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines},
    task::JoinHandle,
};

use super::{
    super::stdio,
    harness::{Harness, legacy, modern},
};

/// A client at its end of two pipes.
struct Client {
    harness: Harness,
    to: DuplexStream,
    from: Lines<BufReader<DuplexStream>>,
    serving: JoinHandle<io::Result<()>>,
}

impl Client {
    async fn new() -> Self {
        Self::of(Harness::new().await)
    }

    fn of(harness: Harness) -> Self {
        let (to, input) = tokio::io::duplex(1 << 16);
        let (output, from) = tokio::io::duplex(1 << 16);
        let (doors, caller) = (Arc::clone(&harness.doors), harness.caller());
        let serving = tokio::spawn(async move { stdio::serve(doors, caller, input, output).await });
        Self { harness, to, from: BufReader::new(from).lines(), serving }
    }

    async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.to.write_all(bytes).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = self.from.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.say(message).await;
        self.hear().await
    }

    /// Closes our end and gives what is said until the other ends.
    async fn close(self) -> Vec<String> {
        let Self { to, mut from, serving, .. } = self;
        drop(to);
        let mut rest = Vec::new();
        while let Some(line) = from.next_line().await.unwrap() {
            rest.push(line);
        }
        serving.await.unwrap().unwrap();
        rest
    }
}

#[tokio::test]
async fn both_eras_are_served_message_by_message() {
    let mut client = Client::new().await;
    let found = client.ask(&modern(&json!("d"), "server/discover", json!({}))).await;
    assert_eq!(found["result"]["supportedVersions"][0], "2026-07-28");
    let begun = client.ask(&legacy(&json!(0), "initialize", &json!({"protocolVersion": "2024-11-05"}))).await;
    assert_eq!(begun["result"]["protocolVersion"], "2024-11-05");
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let old = client.ask(&legacy(&json!(1), "tools/list", &json!({}))).await;
    assert!(old["result"]["tools"][0].get("annotations").is_none());
    let new = client.ask(&modern(&json!(2), "tools/list", json!({}))).await;
    assert!(new["result"]["tools"][0].get("outputSchema").is_some());
    let call = json!({"name": "test.shout", "arguments": {"text": "hi"}});
    let called = client.ask(&modern(&json!(3), "tools/call", call)).await;
    assert_eq!(called["result"]["content"][0]["text"], "HI");
    let bad = client.ask(&modern(&json!(4), "ping", json!({}))).await;
    assert_eq!((&bad["id"], &bad["error"]["code"]), (&json!(4), &json!(-32601)));
    let missing = client.ask(&legacy(&json!(5), "server/discover", &json!({}))).await;
    assert_eq!(missing["error"]["code"], -32602);
    let batch = json!([legacy(&json!(6), "ping", &json!({}))]);
    assert_eq!(client.ask(&batch).await, json!([{"jsonrpc": "2.0", "id": 6, "result": {}}]));
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn requests_run_side_by_side_and_can_be_withdrawn() {
    let mut client = Client::new().await;
    let wait = |id: Value, millis: u64| {
        modern(&id, "tools/call", json!({"name": "test.wait", "arguments": {"millis": millis}}))
    };
    client.say(&wait(json!(1), 600_000)).await;
    client.harness.until_in_flight(1).await;
    assert_eq!(client.ask(&wait(json!(2), 0)).await["id"], 2);
    client
        .say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
        .await;
    client.harness.until_cancelled(1).await;
    assert_eq!(client.ask(&wait(json!(3), 0)).await["id"], 3);
    assert!(client.close().await.is_empty());
}

#[tokio::test]
async fn what_is_in_work_at_the_end_is_still_answered() {
    let mut client = Client::new().await;
    for id in 0..20 {
        let params = json!({"name": "test.wait", "arguments": {"millis": 30}});
        client.say(&legacy(&json!(id), "tools/call", &params)).await;
    }
    assert_eq!(client.close().await.len(), 20);
}

#[tokio::test]
async fn bad_lines_are_answered_and_skipped() {
    let mut client =
        Client::of(Harness::with(|network| network.max_body = aegis_core::quantity::Size(1000)).await);
    client.write(b"\n  \nnot json\n").await;
    assert_eq!(client.hear().await["error"]["code"], -32700);
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}\n").await;
    assert_eq!(client.hear().await["error"]["code"], -32700);
    client.write(&vec![b'x'; 5000]).await;
    client.write(b"\n").await;
    let long = client.hear().await;
    assert_eq!(long["error"]["code"], -32600);
    assert!(long["error"]["message"].as_str().unwrap().contains("spec.network.max_body"));
    assert_eq!(client.ask(&legacy(&json!(1), "ping", &json!({}))).await["result"], json!({}));
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}").await;
    assert_eq!(client.close().await, [r#"{"jsonrpc":"2.0","id":2,"result":{}}"#]);
}

#[tokio::test]
async fn a_client_that_reads_no_more_ends_the_conversation() {
    let mut client = Client::new().await;
    let params = json!({"name": "test.wait", "arguments": {"millis": 600_000}});
    client.say(&legacy(&json!(1), "tools/call", &params)).await;
    client.harness.until_in_flight(1).await;
    let Client { harness, mut to, from, serving } = client;
    drop(from);
    to.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\n").await.unwrap();
    assert_eq!(serving.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    harness.until_cancelled(1).await;
}

#[tokio::test]
async fn a_stopping_node_ends_the_conversation() {
    let client = Client::new().await;
    client.harness.doors.stopping.cancel();
    client.serving.await.unwrap().unwrap();
}
