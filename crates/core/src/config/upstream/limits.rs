//! How a server is looked after: checks, new starts, and bounds on what it may take or give.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Size, Span};

/// How it is found out whether a server still works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HealthCheck {
    #[schemars(range(min = 1, max = 86_400))]
    pub interval_seconds: u32,
    #[schemars(range(min = 1, max = 600))]
    pub timeout_seconds: u32,
    pub method: HealthMethod,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { interval_seconds: 60, timeout_seconds: 5, method: HealthMethod::ToolsList }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum HealthMethod {
    /// Also finds out whether definitions have changed.
    #[default]
    #[serde(rename = "tools/list")]
    ToolsList,
    #[serde(rename = "ping")]
    Ping,
}

/// What happens when a server ends or can't be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RestartConfig {
    /// The wait before the first new start; it doubles with each.
    pub backoff: Span,
    /// The longest wait.
    pub max_backoff: Span,
    /// Failures in a row after which no more starts are tried until `pause` is over.
    #[schemars(range(min = 1, max = 1000))]
    pub max_failures: u32,
    /// How long.
    pub pause: Span,
}

impl Default for RestartConfig {
    fn default() -> Self {
        Self {
            backoff: Span(std::time::Duration::from_millis(500)),
            max_backoff: Span::seconds(30),
            max_failures: 5,
            pause: Span::seconds(60),
        }
    }
}

/// Bounds on what one server may take or give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ServerLimits {
    /// How long it may take until it has answered `initialize` and listed what it has.
    pub start_timeout: Span,
    /// The longest a call may take; `spec.limits.call_timeout` holds as well.
    pub call_timeout: Span,
    /// Calls in work at once, on one connection.
    #[schemars(range(min = 1, max = 65_536))]
    pub max_concurrent_calls: u32,
    /// The largest message it may send.
    pub max_message: Size,
    /// The most tools it may offer; as many resources, templates and prompts.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_tools: u32,
    /// The largest definition of a tool, with its schemas.
    pub max_definition: Size,
    /// Connections, where each principal has its own.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_connections: u32,
    /// How long a principal's connection may be idle before it is closed.
    pub idle_timeout: Span,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            start_timeout: Span::seconds(30),
            call_timeout: Span::seconds(300),
            max_concurrent_calls: 1024,
            max_message: Size(16 << 20),
            max_tools: 1000,
            max_definition: Size(256 << 10),
            max_connections: 64,
            idle_timeout: Span::seconds(600),
        }
    }
}
