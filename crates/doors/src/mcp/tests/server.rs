//! The harness behind a socket, and a client that writes its requests by hand.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::harness::{Harness, legacy, modern};

/// A harness that listens.
pub(super) struct Server {
    pub(super) harness: Harness,
    pub(super) address: SocketAddr,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (its_name, value) = line.split_once(": ")?;
            its_name.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    /// The status and the code of the error in the body.
    pub(super) fn error(&self) -> (u16, i64) {
        (self.status, self.json()["error"]["code"].as_i64().unwrap())
    }

    pub(super) fn events(&self) -> Vec<Value> {
        self.body
            .split("\n\n")
            .filter_map(|event| event.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }
}

impl Server {
    pub(super) async fn new() -> Self {
        Self::of(Harness::new().await).await
    }

    pub(super) async fn of(harness: Harness) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = harness.router();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { harness, address }
    }

    /// Writes a request and leaves the connection open.
    pub(super) async fn open(
        &self,
        verb: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> TcpStream {
        let mut head = format!("{verb} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        stream
    }

    pub(super) async fn send(
        &self,
        verb: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        read(self.open(verb, target, headers, body).await).await
    }

    /// A POST with everything it needs but what `more` adds.
    pub(super) async fn post(&self, more: &[(&str, &str)], body: &[u8]) -> Reply {
        let bearer = format!("Bearer {}", self.harness.token.expose());
        self.send("POST", "/mcp", &[&[("Authorization", bearer.as_str()), JSON, ACCEPT], more].concat(), body)
            .await
    }

    /// A request of the stateless era with the right headers.
    pub(super) async fn modern(&self, method: &str, params: Value) -> Reply {
        let body = modern(&json!(1), method, params.clone()).to_string();
        let name = params["name"].as_str().unwrap_or("-");
        let headers = [VERSION, ("Mcp-Method", method), ("Mcp-Name", name)];
        self.post(&headers, body.as_bytes()).await
    }

    pub(super) async fn begin_session(&self, version: &str) -> String {
        let body = legacy(&json!(0), "initialize", &json!({"protocolVersion": version, "capabilities": {}}));
        let reply = self.post(&[], body.to_string().as_bytes()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.header("mcp-session-id").unwrap().to_owned()
    }

    pub(super) async fn legacy(&self, session: &str, method: &str, params: Value) -> Reply {
        let body = legacy(&json!("q"), method, &params).to_string();
        self.post(&[("Mcp-Session-Id", session)], body.as_bytes()).await
    }
}

pub(super) async fn read(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body =
        if head.to_lowercase().contains("transfer-encoding: chunked") { unchunk(body) } else { body.into() };
    Reply { status, head: head.to_owned(), body }
}

fn unchunk(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        text = &rest[(size + 2).min(rest.len())..];
    }
    whole
}

pub(super) const JSON: (&str, &str) = ("Content-Type", "application/json");
pub(super) const ACCEPT: (&str, &str) = ("Accept", "application/json, text/event-stream");
pub(super) const VERSION: (&str, &str) = ("MCP-Protocol-Version", "2026-07-28");
