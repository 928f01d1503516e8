use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Size, Span};

/// Bounds on what one node takes on.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Tool calls in work at once; further ones are refused as Overloaded.
    #[schemars(range(min = 1, max = 65536))]
    pub max_concurrent_calls: u32,
    /// The longest any call may run.
    pub call_timeout: Span,
    /// The largest answer of a tool, where a context sets no smaller one.
    pub max_response: Size,
    /// How long a stopping node waits for calls in work.
    pub drain_timeout: Span,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_concurrent_calls: 512,
            call_timeout: Span::seconds(300),
            max_response: Size(32 << 20),
            drain_timeout: Span::seconds(20),
        }
    }
}
