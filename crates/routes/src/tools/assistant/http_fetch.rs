//! `tool.http-fetch`: GET one address under the egress rules; any status is an answer.

use std::{collections::BTreeMap, time::Duration};

use aegis_core::{
    Failure, Label, Tier, TrustClass,
    label::Provenance,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    egress::{Egress, Limit, Request, WebAddress, is_credential_header},
    tool::{Answer, Facts, Run, Tool},
    tools::web::fetch::read_text,
};

/// Longer bodies are cut here.
const LONGEST_BODY: usize = 1 << 20;
/// Headers beyond these are dropped.
const MOST_HEADERS: usize = 32;
const LONGEST_HEADER: usize = 4096;

const LABEL: Label = Label::new(TrustClass::ExternalUntrusted, "remote-http");

#[derive(Debug)]
pub struct HttpFetch {
    egress: Egress,
}

impl HttpFetch {
    pub fn new(egress: Egress) -> Self {
        Self { egress }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// The address to fetch.
    url: WebAddress,
    /// Only GET.
    #[serde(default)]
    #[allow(dead_code, reason = "there is one method; the argument is part of the contract")]
    method: Method,
    /// Extra request headers; headers that carry credentials or steer the connection are dropped.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The time limit in milliseconds.
    #[serde(default = "twelve_seconds")]
    #[schemars(range(min = 1, max = 30_000))]
    timeout_ms: u64,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
enum Method {
    #[default]
    #[serde(rename = "GET")]
    Get,
}

fn twelve_seconds() -> u64 {
    12_000
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Where the body came from, after redirects.
    url: String,
    status: u16,
    /// As the server said; empty when it said nothing.
    content_type: String,
    body: String,
    /// The body was longer than what is returned.
    truncated: bool,
    /// Names of request headers that were not sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dropped_headers: Vec<String>,
    provenance: Provenance,
}

impl Tool for HttpFetch {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.http-fetch".into(),
            aliases: Vec::new(),
            title: "GET an address".into(),
            category: "web".into(),
            description:
                "GET one http(s) address under the egress rules and return status, type and body as text. \
                          Any status is an answer. A body over 1 MiB is cut and marked as truncated."
                    .into(),
            tags: vec!["web".into(), "http".into(), "read".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: Mutability::ReadOnly,
            idempotent: true,
            approval: ApprovalRule::NotRequired,
            route: Route::Upstream,
            targets: vec![Target::Url { argument: "url".into() }],
            label: LABEL,
            examples: vec![Example {
                title: "Ask an API for JSON".into(),
                arguments: json!({"url": "https://example.org/api", "headers": {"Accept": "application/json"}}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let mut request = Request::get(input.url, Duration::from_millis(input.timeout_ms));
        let mut dropped_headers = Vec::new();
        for (index, (name, value)) in input.headers.into_iter().enumerate() {
            match header(&name, &value).filter(|_| index < MOST_HEADERS) {
                Some((name, value)) => request = request.header(name, value),
                None => dropped_headers.push(name.chars().take(64).collect()),
            }
        }
        let reply = self.egress.get(run, request).await?;
        let url = reply.address().to_string();
        let status = reply.status().as_u16();
        let content_type = reply.content_type().map(|content_type| content_type.essence().to_owned());
        let limit = Limit::First(self.egress.max_body().min(LONGEST_BODY as u64));
        let text = read_text(reply, limit).await?;
        // Decoding can make more bytes than there were.
        let end = text.content.floor_char_boundary(LONGEST_BODY);
        let output = Output {
            truncated: text.truncated || end < text.content.len(),
            body: text.content[..end].to_owned(),
            url: url.clone(),
            status,
            content_type: content_type.unwrap_or_default(),
            dropped_headers,
            provenance: Provenance::from(&LABEL),
        };
        Ok(Answer::from(output, url))
    }
}

/// A header that may be sent. Left out are those that let someone in, that belong to the connection, that the node
/// sets itself, that claim another origin, or that would make something else of a GET.
fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    const NODE_SETS: [&str; 19] = [
        "host",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "http2-settings",
        "content-length",
        "content-encoding",
        "expect",
        "accept-encoding",
        "user-agent",
        "origin",
        "referer",
        "forwarded",
        "via",
        "x-real-ip",
        "x-method-override",
    ];
    const PREFIXES: [&str; 5] = ["proxy-", "sec-", "x-forwarded-", "x-http-method", "x-original-"];
    if value.len() > LONGEST_HEADER {
        return None;
    }
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    let closed = NODE_SETS.contains(&name.as_str())
        || PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix))
        || is_credential_header(&name);
    let value = HeaderValue::from_str(value.trim()).ok()?;
    (!closed).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_may_be_sent() {
        for name in ["Accept", "accept-language", "If-None-Match", "X-Request-Id", "range", " accept "] {
            assert!(header(name, "x").is_some(), "{name}");
        }
        for name in [
            "Authorization",
            "PROXY-Authorization",
            "cookie",
            "Cookie2",
            "Set-Cookie",
            "X-Api-Key",
            "x-auth-token",
            "Host",
            "Connection",
            "Transfer-Encoding",
            "TE",
            "Upgrade",
            "X-HTTP-Method-Override",
            "X-Forwarded-For",
            "Forwarded",
            "Sec-Fetch-Mode",
            "",
            "bad name",
            "bad\r\nname",
            "a:b",
        ] {
            assert!(header(name, "x").is_none(), "{name}");
        }
        for value in ["a\r\nHost: evil", "a\nb", "a\0b"] {
            assert!(header("accept", value).is_none(), "{value:?}");
        }
        assert!(header("accept", &"x".repeat(5000)).is_none());
    }
}
