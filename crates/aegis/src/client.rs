//! A small HTTP client for the node on this machine.

use std::time::Duration;

use aegis_core::{Secret, Violation, ViolationKind};
use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// For answers that take no work.
const BRIEF: Duration = Duration::from_secs(10);
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

    /// As [`Client::get`], for an answer that the node may hold back for so long.
    pub async fn wait(&self, path: &str, for_long: Duration) -> anyhow::Result<Answer> {
        self.within(for_long + BRIEF, Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        self.within(BRIEF, Method::POST, path, Some(body)).await
    }

    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.within(BRIEF, Method::DELETE, path, None).await
    }

    /// Any request that takes no work.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
        self.within(BRIEF, method, path, body).await
    }

    /// As [`Client::post`], for a call that may take as long as the node lets it.
    pub async fn call(&self, path: &str, arguments: &Value) -> anyhow::Result<Answer> {
        self.within(PATIENT, Method::POST, path, Some(arguments)).await
    }

    async fn within(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        tokio::time::timeout(limit, self.send(method, path, body)).await.with_context(|| {
            format!("the node at {} did not answer within {} s", self.address, limit.as_secs())
        })?
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<Answer> {
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
        let body = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
        let status = response.status();
        let text = response.into_body().collect().await?.to_bytes();
        connection.abort();
        read(status, &text)
    }
}

/// What an answer of the HTTP doors means.
pub fn read(status: StatusCode, text: &[u8]) -> anyhow::Result<Answer> {
    let Ok(value) = serde_json::from_slice::<Value>(text) else {
        bail!("the node answered {status} with something that is no JSON");
    };
    if let Some(error) = value.get("error") {
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
