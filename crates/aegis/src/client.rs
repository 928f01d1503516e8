//! A small HTTP client for the node on this machine.

use std::time::Duration;

use aegis_core::{
    Secret, Violation, ViolationKind,
    progress::{Listener, Progress},
};
use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// For answers that take no work.
const BRIEF: Duration = Duration::from_secs(10);
/// For answers that wait for another program to start.
const UNHURRIED: Duration = Duration::from_secs(600);
/// For calls: the node's own limit ends them much earlier.
const PATIENT: Duration = Duration::from_secs(24 * 3600);

/// A running node and the credential to talk to it with.
#[derive(Debug, Clone)]
pub struct Client {
    pub address: String,
    pub token: Secret,
    /// Act as a user of this context (operators only).
    pub context: Option<String>,
}

/// What the node answered.
#[derive(Debug)]
pub enum Answer {
    Ok(Value),
    /// A tool ran and could not do its work.
    ToolFailed(Value),
    Refused(Violation),
}

impl Client {
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.within(BRIEF, Method::GET, path, None).await
    }

    /// As [`Client::get`], for an answer that the node may hold back for so long; `heard` is told what is said meanwhile.
    pub async fn wait(
        &self,
        path: &str,
        for_long: Duration,
        heard: Option<&dyn Listener>,
    ) -> anyhow::Result<Answer> {
        let answer = self.send(Method::GET, path, None, heard);
        tokio::time::timeout(for_long + BRIEF, answer).await.with_context(|| self.silent(for_long + BRIEF))?
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.within(BRIEF, Method::POST, path, Some(body)).await
    }

    /// As [`Client::post`], for work that may take its time, such as starting a server.
    pub async fn patient_post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.within(UNHURRIED, Method::POST, path, Some(body)).await
    }

    /// The same, with the whole of what is to stand there.
    pub async fn patient_put(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.within(UNHURRIED, Method::PUT, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.within(BRIEF, Method::DELETE, path, None).await
    }

    /// Any request that takes no work.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.within(BRIEF, method, path, body).await
    }

    /// As [`Client::post`], for a call that may take as long as the node lets it; `heard` is told what it says meanwhile.
    pub async fn call(
        &self,
        path: &str,
        arguments: &Value,
        heard: Option<&dyn Listener>,
    ) -> anyhow::Result<Answer> {
        let answer = self.send(Method::POST, path, Some(arguments), heard);
        tokio::time::timeout(PATIENT, answer).await.context("the node did not answer within a day")?
    }

    async fn within(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let answer = self.send(method, path, body, None);
        tokio::time::timeout(limit, answer).await.with_context(|| self.silent(limit))?
    }

    fn silent(&self, limit: Duration) -> String {
        format!("the node at {} did not answer within {} s", self.address, limit.as_secs())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        heard: Option<&dyn Listener>,
    ) -> anyhow::Result<Answer> {
        let stream = TcpStream::connect(&self.address)
            .await
            .with_context(|| format!("the node at {} does not answer", self.address))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.address)
            .header(AUTHORIZATION, format!("Bearer {}", self.token.expose()))
            .header(CONTENT_TYPE, "application/json");
        if let Some(context) = &self.context {
            request = request.header("Aegis-Context", context);
        }
        if heard.is_some() {
            request = request.header(ACCEPT, "application/json, text/event-stream");
        }
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        let status = response.status();
        let streams = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let answer = match heard {
            Some(heard) if streams => last_of(response.into_body(), heard).await,
            _ => read(status, &response.into_body().collect().await?.to_bytes()),
        };
        connection.abort();
        answer
    }
}

/// Hears a stream to its end, which is the answer.
async fn last_of(mut body: Incoming, heard: &dyn Listener) -> anyhow::Result<Answer> {
    let mut waiting = Vec::new();
    while let Some(frame) = body.frame().await {
        waiting.extend_from_slice(frame?.data_ref().map(AsRef::as_ref).unwrap_or_default());
        while let Some(end) = waiting.windows(2).position(|pair| pair == b"\n\n") {
            let event: Vec<u8> = waiting.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event);
            let field =
                |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
            let Some(data) = field("data:") else { continue };
            match field("event:") {
                Some("progress") => {
                    if let Ok(word) = serde_json::from_str::<Progress>(data) {
                        heard.progress(word);
                    }
                }
                Some("answer") => {
                    let last: Value = serde_json::from_str(data)?;
                    let status = last["status"].as_u64().and_then(|status| u16::try_from(status).ok());
                    let status = StatusCode::from_u16(status.unwrap_or(500))?;
                    return read(status, last["body"].to_string().as_bytes());
                }
                _ => {}
            }
        }
    }
    bail!("the node's answer broke off")
}

/// What an answer of the HTTP doors means.
pub fn read(status: StatusCode, text: &[u8]) -> anyhow::Result<Answer> {
    let Ok(value) = serde_json::from_slice::<Value>(text) else {
        bail!("the node answered {status} with something that is no JSON");
    };
    // A report may speak of an error in words; a refusal is always an object.
    if let Some(error) = value.get("error").filter(|error| error.is_object()) {
        return Ok(Answer::Refused(violation(error)));
    }
    if status.is_success() { Ok(Answer::Ok(value)) } else { Ok(Answer::ToolFailed(value)) }
}

/// The refusal as the node meant it; a kind this version does not know becomes an internal error with its text.
fn violation(error: &Value) -> Violation {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let data = &error["data"];
    let kind = serde_json::from_value(data["violation"].clone()).unwrap_or(ViolationKind::InternalError);
    Violation {
        kind,
        message: text(&error["message"]).unwrap_or_default(),
        rule: text(&data["rule"]),
        hint: text(&data["hint"]),
        retry_after_seconds: data["retry_after_seconds"].as_u64(),
    }
}
