//! A tool as the discovery tools show it.

use std::sync::Arc;

use aegis_core::{ToolSpec, mode::SWITCH_MODE, tool::Text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Run;

/// Where a tool comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum Source {
    Builtin,
    McpServer,
    SealGateway,
}

impl Source {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::McpServer => "mcp_server",
            Self::SealGateway => "seal_gateway",
        }
    }
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    name: String,
    description: Text,
    source: Source,
    /// Whether the inner-loop judge is skipped.
    #[serde(rename = "skip_judge")]
    skip_judge: bool,
    category: Text,
    tags: Vec<Text>,
    /// JSON Schema of the arguments.
    #[schemars(with = "Map<String, Value>")]
    input_schema: Value,
    /// The tool that this name is another name of.
    #[serde(rename = "alias_of", skip_serializing_if = "Option::is_none")]
    alias_of: Option<String>,
}

/// What the caller may call, one row for every name it can be called by. The switch of modes is for lists that have
/// a mode.
pub(super) fn visible(run: &Run<'_>) -> Vec<Row> {
    let tools = run.directory.visible(run.permit.caller());
    tools.iter().filter(|spec| spec.name != SWITCH_MODE).flat_map(rows).collect()
}

fn rows(spec: &Arc<ToolSpec>) -> Vec<Row> {
    spec.names()
        .map(|name| Row {
            name: name.to_owned(),
            description: spec.description.clone(),
            // Everything a node without upstream servers has is its own.
            source: Source::Builtin,
            skip_judge: spec.skip_judge,
            category: spec.category.clone(),
            tags: spec.tags.clone(),
            input_schema: spec.input_schema.clone(),
            alias_of: (name != spec.name).then(|| spec.name.to_string()),
        })
        .collect()
}

impl Row {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn description(&self) -> &str {
        &self.description
    }

    pub(super) fn is_from(&self, source: &str) -> bool {
        self.source.as_str() == source
    }

    pub(super) fn is_in(&self, category: &str) -> bool {
        self.category.eq_ignore_ascii_case(category)
    }

    pub(super) fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|own| own.eq_ignore_ascii_case(tag))
    }
}
