use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::EmbeddedSchema;
use crate::document::DNS_LABEL;

const SEMVER: &str = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$";
const SEMVER_MESSAGE: &str = "write a semantic version such as 1.2.0";

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentMetadata {
    /// The agent's name: a DNS label, unique with the version within a tenant.
    #[schemars(regex(pattern = DNS_LABEL))]
    pub name: String,
    /// The version of this agent, as in semver (1.2.0).
    #[schemars(regex(pattern = SEMVER), extend("patternErrorMessage" = SEMVER_MESSAGE))]
    pub version: String,
    /// What the agent does, in a sentence; searches look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Facts to filter by, e.g. `role: worker`, `category: data`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Kept with the manifest, never interpreted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Words that searches look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// Who a workflow is, and what goes in and comes out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowMetadata {
    /// The workflow's name: a DNS label, unique with the version within its scope.
    #[schemars(regex(pattern = DNS_LABEL))]
    pub name: String,
    /// The version of this workflow, as in semver.
    #[serde(default = "first_version")]
    #[schemars(regex(pattern = SEMVER), extend("patternErrorMessage" = SEMVER_MESSAGE))]
    pub version: String,
    /// What the workflow does, in a sentence; searches look at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Facts to filter by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Kept with the manifest, never interpreted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Words that searches look at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// A JSON Schema that the input of a run must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<EmbeddedSchema>,
    /// A JSON Schema of `final_output`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<EmbeddedSchema>,
    /// Templates that make `final_output` out of the blackboard when a run ends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub output_template: BTreeMap<String, String>,
}

fn first_version() -> String {
    "1.0.0".to_owned()
}
