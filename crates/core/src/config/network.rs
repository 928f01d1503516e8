use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Size, Span};

/// A body is held in memory while its call is in work.
const LARGEST_BODY: u64 = 1 << 30;
const SMALLEST_BODY: u64 = 1 << 10;
const LONGEST_BODY_SECONDS: u64 = 3600;

/// Where the node listens and whom it answers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// Address and port. A non-loopback address needs TLS in front and is refused without it.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// `Host` headers that are answered besides the loopback names and the listen address. Guards against DNS
    /// rebinding.
    pub allowed_hosts: Vec<String>,
    /// `Origin` headers that browsers may send, e.g. `https://console.example`. Requests without one are from
    /// programs and are answered.
    pub allowed_origins: Vec<String>,
    /// The largest request body.
    pub max_body: Size,
    /// How long a request body may take to arrive whole; a slower one is answered 408.
    pub body_timeout: Span,
    /// Requests in work at once; further ones are answered 503.
    #[schemars(range(min = 1, max = 65536))]
    pub max_concurrent_requests: u32,
    /// MCP sessions (2025-11-25 and older) kept at once; the longest idle one makes room.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_sessions: u32,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8088)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body: Size(16 << 20),
            body_timeout: Span::seconds(30),
            max_concurrent_requests: 1024,
            max_sessions: 10_000,
        }
    }
}

impl NetworkConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = Vec::new();
        let mut wrong = |member: &str, message: String| {
            mistakes.push((format!("/spec/network/{member}"), message));
        };
        if !(SMALLEST_BODY..=LARGEST_BODY).contains(&self.max_body.0) {
            wrong("max_body", format!("write a size from {} to {}", Size(SMALLEST_BODY), Size(LARGEST_BODY)));
        }
        if self.body_timeout.0.is_zero() || self.body_timeout > Span::seconds(LONGEST_BODY_SECONDS) {
            wrong("body_timeout", format!("write a time above 0 and up to {LONGEST_BODY_SECONDS}s"));
        }
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_bounds() {
        assert!(NetworkConfig::default().check().is_empty());
        let wild = NetworkConfig {
            max_body: Size(1 << 40),
            body_timeout: Span::seconds(0),
            ..NetworkConfig::default()
        };
        assert_eq!(wild.check().len(), 2);
        let tiny = NetworkConfig { max_body: Size(10), ..NetworkConfig::default() };
        assert_eq!(tiny.check()[0].0, "/spec/network/max_body");
    }

    #[test]
    fn survives_a_round_trip() {
        let text = r#"{"listen":"127.0.0.1:9","allowed_hosts":["a.example"],"allowed_origins":["https://b.example"],
            "max_body":"1Mi","body_timeout":"5s","max_concurrent_requests":7,"max_sessions":8}"#;
        let config: NetworkConfig = serde_json::from_str(text).unwrap();
        let again = serde_json::to_value(&config).unwrap();
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(text).unwrap());
    }
}
