use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Span;

/// Calls that wait for a person.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    /// How long a request waits for a decision, and an approved one to run.
    pub expiry: Span,
    /// The most requests of one tenant that wait at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_pending: u32,
    /// How long a request that has ended, with its result, can be looked up.
    pub keep: Span,
}

impl Default for ApprovalsConfig {
    fn default() -> Self {
        Self { expiry: Span::seconds(15 * 60), max_pending: 10_000, keep: Span::seconds(7 * 24 * 3600) }
    }
}
