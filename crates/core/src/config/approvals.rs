use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Size, Span};

/// Whoever decides reads the arguments, and they are kept in memory while they do.
const LARGEST_ARGUMENTS: u64 = 16 << 20;
const SMALLEST_ARGUMENTS: u64 = 1 << 10;
const LARGEST_PENDING: u64 = 1 << 40;

/// Calls that wait for a person.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    /// How long a request waits for a decision, and an approved one to run.
    pub expiry: Span,
    /// The largest arguments of one call that waits, as JSON. A larger call that needs approval is refused.
    pub max_arguments: Size,
    /// The most requests of one tenant that wait at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_pending: u32,
    /// How much the requests of one tenant that wait may take up together.
    pub max_pending_bytes: Size,
    /// The most requests of one credential that wait at once, so that one caller leaves room for the others.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_pending_per_caller: u32,
    /// How much the requests of one credential that wait may take up together.
    pub max_pending_bytes_per_caller: Size,
    /// How long a request that has ended, with its result, can be looked up. Its arguments are kept as the audit log
    /// has them.
    pub keep: Span,
    /// The most requests of one tenant that are kept after they have ended. Results that nobody has fetched go last.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_kept: u32,
}

impl Default for ApprovalsConfig {
    fn default() -> Self {
        Self {
            expiry: Span::seconds(15 * 60),
            max_arguments: Size(1 << 20),
            max_pending: 10_000,
            max_pending_bytes: Size(64 << 20),
            max_pending_per_caller: 1000,
            max_pending_bytes_per_caller: Size(16 << 20),
            keep: Span::seconds(7 * 24 * 3600),
            max_kept: 10_000,
        }
    }
}

impl ApprovalsConfig {
    pub(super) fn check(&self) -> Vec<(String, String)> {
        let sizes = [
            ("max_arguments", self.max_arguments, LARGEST_ARGUMENTS),
            ("max_pending_bytes", self.max_pending_bytes, LARGEST_PENDING),
            ("max_pending_bytes_per_caller", self.max_pending_bytes_per_caller, LARGEST_PENDING),
        ];
        sizes
            .into_iter()
            .filter(|(_, size, most)| !(SMALLEST_ARGUMENTS..=*most).contains(&size.0))
            .map(|(member, _, most)| {
                let (least, most) = (Size(SMALLEST_ARGUMENTS), Size(most));
                (format!("/spec/approvals/{member}"), format!("write a size from {least} to {most}"))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_bounds() {
        assert!(ApprovalsConfig::default().check().is_empty());
        let wild = ApprovalsConfig {
            max_arguments: Size(64 << 20),
            max_pending_bytes: Size(0),
            max_pending_bytes_per_caller: Size(u64::MAX),
            ..ApprovalsConfig::default()
        };
        assert_eq!(wild.check().len(), 3);
    }
}
