use std::net::SocketAddr;

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream},
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

use super::*;
use crate::mcp::tests::harness::{Harness, legacy, modern};

/// Serves the harness at an address, or at any. Aborting the task ends every connection, as if the node had died.
async fn listen(harness: &Harness, address: Option<SocketAddr>) -> (SocketAddr, JoinHandle<()>) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TcpListener::bind(address.unwrap_or(any)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = TowerToHyperService::new(harness.router());
    let serving = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service.clone();
            connections.spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    (address, serving)
}

struct Client {
    to: DuplexStream,
    from: tokio::io::Lines<BufReader<DuplexStream>>,
    carrying: JoinHandle<Result<(), BridgeError>>,
}

impl Client {
    fn new(address: SocketAddr, token: &Secret) -> Self {
        let (to, input) = tokio::io::duplex(1 << 16);
        let (output, from) = tokio::io::duplex(1 << 16);
        let (url, token) = (format!("http://{address}/mcp"), token.clone());
        let carrying = tokio::spawn(async move { run(&url, &token, None, input, output).await });
        Self { to, from: BufReader::new(from).lines(), carrying }
    }

    async fn say(&mut self, message: &Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        serde_json::from_str(&self.from.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.say(message).await;
        self.hear().await
    }

    async fn close(self) {
        let Self { to, mut from, carrying } = self;
        drop(to);
        assert_eq!(from.next_line().await.unwrap(), None);
        carrying.await.unwrap().unwrap();
    }
}

fn shout(text: &str) -> Value {
    json!({"name": "test.shout", "arguments": {"text": text}})
}

fn wait(millis: u64) -> Value {
    json!({"name": "test.wait", "arguments": {"millis": millis}})
}

#[tokio::test]
async fn both_eras_reach_the_node() {
    let harness = Harness::new().await;
    let (address, _) = listen(&harness, None).await;
    let mut client = Client::new(address, &harness.token);
    let found = client.ask(&modern(&json!("d"), "server/discover", json!({}))).await;
    assert_eq!(found["result"]["resultType"], "complete");
    let called = client.ask(&modern(&json!(1), "tools/call", shout("hi"))).await;
    assert_eq!(called["result"]["content"][0]["text"], "HI");
    let odd = client.ask(&modern(&json!(1), "tools/call", json!({"name": " naïve\n"}))).await;
    assert_eq!(odd["error"]["data"]["violation"], "ToolNotFound");
    let refused = client.ask(&modern(&json!(2), "nosuch", json!({}))).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32601)));

    let begun = client.ask(&legacy(&json!(0), "initialize", &json!({"protocolVersion": "2025-06-18"}))).await;
    assert_eq!(begun["result"]["protocolVersion"], "2025-06-18");
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let called = client.ask(&legacy(&json!("x"), "tools/call", &shout("ho"))).await;
    assert_eq!((&called["id"], &called["result"]["content"][0]["text"]), (&json!("x"), &json!("HO")));
    assert_eq!(client.ask(&legacy(&json!(1), "ping", &json!({}))).await["result"], json!({}));
    client.to.write_all(b"nonsense\n").await.unwrap();
    assert_eq!(client.hear().await["error"]["code"], -32700);
    client.close().await;
}

#[tokio::test]
async fn progress_comes_through() {
    let harness = Harness::new().await;
    let (address, _) = listen(&harness, None).await;
    let mut client = Client::new(address, &harness.token);
    let mut params = wait(400);
    params["_meta"]["progressToken"] = json!(5);
    client.say(&modern(&json!(5), "tools/call", params)).await;
    let first = client.hear().await;
    assert_eq!(
        (&first["method"], &first["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!(5))
    );
    loop {
        let next = client.hear().await;
        if next["id"] == 5 {
            assert_eq!(next["result"]["structuredContent"]["millis"], 400);
            break;
        }
    }
    client.close().await;
}

#[tokio::test]
async fn requests_can_be_withdrawn_in_both_eras() {
    let harness = Harness::new().await;
    let (address, _) = listen(&harness, None).await;
    let mut client = Client::new(address, &harness.token);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}});
    client.say(&modern(&json!(9), "tools/call", wait(600_000))).await;
    harness.until_in_flight(1).await;
    client.say(&cancel).await;
    harness.until_cancelled(1).await;
    harness.until_in_flight(0).await;

    client.ask(&legacy(&json!(0), "initialize", &json!({"protocolVersion": "2025-11-25"}))).await;
    client.say(&legacy(&json!(9), "tools/call", &wait(600_000))).await;
    harness.until_in_flight(1).await;
    client.say(&cancel).await;
    harness.until_cancelled(2).await;
    assert_eq!(client.ask(&legacy(&json!(1), "ping", &json!({}))).await["id"], 1);
    client.close().await;
}

#[tokio::test]
async fn a_wrong_token_is_told_to_the_client() {
    let harness = Harness::new().await;
    let (address, _) = listen(&harness, None).await;
    let mut client = Client::new(address, &Secret::new("aegis_wrong"));
    let refused =
        client.ask(&legacy(&json!(3), "initialize", &json!({"protocolVersion": "2025-11-25"}))).await;
    assert_eq!(
        (&refused["id"], &refused["error"]["data"]["violation"]),
        (&json!(3), &json!("Unauthenticated"))
    );
    let refused = client.ask(&modern(&json!("a"), "tools/list", json!({}))).await;
    assert_eq!(refused["id"], "a");
    client.close().await;
}

#[tokio::test]
async fn a_node_that_comes_back_is_used_again() {
    let harness = Harness::new().await;
    let (address, serving) = listen(&harness, None).await;
    let mut client = Client::new(address, &harness.token);
    client.ask(&legacy(&json!(0), "initialize", &json!({"protocolVersion": "2025-11-25"}))).await;
    client.say(&legacy(&json!(1), "tools/call", &wait(600_000))).await;
    harness.until_in_flight(1).await;
    serving.abort();
    let _ = serving.await;
    let lost = client.hear().await;
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!(1), &json!(-32603)));
    let lost = client.ask(&legacy(&json!(2), "ping", &json!({}))).await;
    assert!(lost["error"]["message"].as_str().unwrap().contains("does not answer"), "{lost}");

    // The new node knows nothing of the session.
    let (_, _serving) = listen(&harness, Some(address)).await;
    let called = client.ask(&legacy(&json!(3), "tools/call", &shout("back"))).await;
    assert_eq!(called["result"]["content"][0]["text"], "BACK");
    assert!(called["result"]["structuredContent"].is_object());
    client.close().await;
}

#[tokio::test]
async fn only_addresses_of_nodes_are_taken() {
    let token = Secret::new("t");
    for url in ["", "nonsense", "ftp://127.0.0.1/mcp", "/mcp", "http://"] {
        assert!(matches!(Node::new(url, &token, None), Err(BridgeError::Address(_))), "{url}");
    }
    assert!(matches!(Node::new("https://127.0.0.1/mcp", &token, None), Err(BridgeError::Https)));
    assert!(matches!(
        Node::new("http://127.0.0.1:1/mcp", &Secret::new("a\nb"), None),
        Err(BridgeError::Unsendable("token"))
    ));
}
