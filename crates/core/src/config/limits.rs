use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Size, Span};

const LONGEST_CALL_SECONDS: u64 = 24 * 3600;
/// An answer is held in memory.
const LARGEST_RESPONSE: u64 = 1 << 30;
const SMALLEST_RESPONSE: u64 = 1 << 10;
const LONGEST_DRAIN_SECONDS: u64 = 3600;

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

impl LimitsConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = Vec::new();
        let mut wrong = |member: &str, message: String| {
            mistakes.push((format!("/spec/limits/{member}"), message));
        };
        if self.call_timeout.0.is_zero() || self.call_timeout > Span::seconds(LONGEST_CALL_SECONDS) {
            wrong("call_timeout", format!("write a time above 0 and up to {LONGEST_CALL_SECONDS}s"));
        }
        if !(SMALLEST_RESPONSE..=LARGEST_RESPONSE).contains(&self.max_response.0) {
            let (least, most) = (Size(SMALLEST_RESPONSE), Size(LARGEST_RESPONSE));
            wrong("max_response", format!("write a size from {least} to {most}"));
        }
        // No wait at all is a choice: calls in work then end as a kill would end them.
        if self.drain_timeout > Span::seconds(LONGEST_DRAIN_SECONDS) {
            wrong("drain_timeout", format!("write a time up to {LONGEST_DRAIN_SECONDS}s"));
        }
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_bounds() {
        assert!(LimitsConfig::default().check().is_empty());
        let wild = LimitsConfig {
            call_timeout: Span::seconds(0),
            max_response: Size(u64::MAX),
            drain_timeout: Span::seconds(1 << 40),
            ..LimitsConfig::default()
        };
        assert_eq!(wild.check().len(), 3);
    }
}
