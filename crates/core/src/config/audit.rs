use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Span;

/// The audit log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// Sign a tree head after this many entries …
    #[schemars(range(min = 1, max = 1_000_000))]
    pub head_every_entries: u32,
    /// … or this long after the last one, when there are new entries.
    pub head_every: Span,
    /// Whether a call that changes nothing is answered before its record is on disk.
    pub reads: ReadDurability,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReadDurability {
    /// The record is queued; at most the last fraction of a second of reads is lost in a crash.
    #[default]
    Queued,
    /// The record is on disk before the answer.
    Durable,
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { head_every_entries: 1024, head_every: Span::seconds(60), reads: ReadDurability::Queued }
    }
}
