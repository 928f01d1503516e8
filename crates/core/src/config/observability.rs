use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SecretRef;
use crate::{quantity::Span, redact};

const LONGEST_SECONDS: u64 = 300;

/// What the node tells others about itself. `/metrics` is always there.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ObservabilityConfig {
    /// Sends a trace of every call to an OpenTelemetry collector. Arguments and answers are not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<OtlpConfig>,
}

/// Where traces go: OTLP over HTTP, in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OtlpConfig {
    /// The collector's address, such as `http://127.0.0.1:4318`; `/v1/traces` is added to it.
    pub endpoint: String,
    /// Headers that are no secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers that are: `env:NAME`, `file:/path` or `secret:name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub credentials: BTreeMap<String, SecretRef>,
    /// The node's name in traces; `metadata.name` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// How many of a hundred calls are traced, where the caller's own trace does not decide it.
    #[serde(default = "all")]
    #[schemars(range(min = 0, max = 100))]
    pub sample_percent: u8,
    /// Calls that wait to be sent; more are dropped and counted.
    #[serde(default = "queue")]
    #[schemars(range(min = 1, max = 100_000))]
    pub queue: u32,
    /// How long calls are gathered before they are sent together.
    #[serde(default = "interval")]
    pub interval: Span,
    /// How long the collector may take.
    #[serde(default = "timeout")]
    pub timeout: Span,
}

impl ObservabilityConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let Some(otlp) = &self.otlp else { return Vec::new() };
        let mut mistakes = Vec::new();
        let mut wrong = |member: &str, message: String| {
            mistakes.push((format!("/spec/observability/otlp/{member}"), message));
        };
        if !otlp.endpoint.starts_with("http://") && !otlp.endpoint.starts_with("https://") {
            wrong("endpoint", "write an address that starts with https:// or http://".into());
        }
        for (member, span) in [("interval", otlp.interval), ("timeout", otlp.timeout)] {
            if span.0.is_zero() || span > Span::seconds(LONGEST_SECONDS) {
                wrong(member, format!("write a time above 0 and up to {LONGEST_SECONDS}s"));
            }
        }
        if let Some(name) = otlp.headers.iter().find(|(name, value)| redact::looks_secret(name, value)) {
            wrong(
                "headers",
                format!("`{}` looks like a secret in plain text: name it among the `credentials`", name.0),
            );
        }
        for (name, reference) in &otlp.credentials {
            let literal = matches!(reference, SecretRef::Literal(_));
            let mistake = reference.mistake().or_else(|| {
                (literal || reference.is_per_principal())
                    .then(|| "write env:NAME, file:/path or secret:name".to_owned())
            });
            if let Some(mistake) = mistake {
                wrong("credentials", format!("`{name}`: {mistake}"));
            }
        }
        mistakes
    }
}

fn all() -> u8 {
    100
}

fn queue() -> u32 {
    2048
}

fn interval() -> Span {
    Span::seconds(2)
}

fn timeout() -> Span {
    Span::seconds(10)
}
