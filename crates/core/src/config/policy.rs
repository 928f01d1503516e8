use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Span;

/// Cedar policies and the rules about labels.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// The directory of `*.cedar` files, read again whenever one changes; a relative one lies in DATA [default:
    /// DATA/policies].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<PathBuf>,
    /// What the shipped rules about labels do: a session that has read untrusted content needs approval for tools
    /// that change or send something.
    pub label_rules: LabelRules,
    /// How long a caller without a session keeps the labels of what it has read.
    pub label_memory: Span,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LabelRules {
    Off,
    /// Recorded as what they would have done, not enforced.
    #[default]
    Shadow,
    Enforce,
}

impl Default for PolicyConfig {
    fn default() -> Self {
        Self { directory: None, label_rules: LabelRules::default(), label_memory: Span::seconds(8 * 3600) }
    }
}
