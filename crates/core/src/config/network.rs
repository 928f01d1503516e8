use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Size;

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
            max_concurrent_requests: 1024,
            max_sessions: 10_000,
        }
    }
}
