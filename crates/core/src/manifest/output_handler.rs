use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::quantity::Span;

/// What happens with the output when the work is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OutputHandler {
    /// Hands it to another agent.
    Agent {
        /// Name or id of the agent.
        #[schemars(length(min = 1))]
        agent_id: String,
        /// What the agent is given; the output when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_template: Option<String>,
        /// How long it may take, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 3600))]
        timeout_seconds: Option<u64>,
        /// Whether its failure is a failure of the work.
        #[serde(default)]
        required: bool,
    },
    /// Sends it over HTTP.
    Webhook {
        /// Where it is sent.
        #[schemars(regex(pattern = r"^https?://"), extend("patternErrorMessage" = "write an http or https URL"))]
        url: String,
        #[serde(default)]
        method: HttpMethod,
        /// Values may be secret references (`env:NAME`, `secret:path`).
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// The request's body; the output when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body_template: Option<String>,
        /// How long it may take, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 3600))]
        timeout_seconds: Option<u64>,
        /// Whether it is tried again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry: Option<Retry>,
        /// Whether its failure is a failure of the work.
        #[serde(default)]
        required: bool,
    },
    /// Runs a container over it.
    Container {
        /// The image to run.
        #[schemars(length(min = 1))]
        image: String,
        /// The program and its arguments; templates.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        command: Vec<String>,
        /// Values are templates.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// How long it may take, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 3600))]
        timeout_seconds: Option<u64>,
        /// Whether its failure is a failure of the work.
        #[serde(default)]
        required: bool,
    },
    /// Calls a tool with it.
    McpTool {
        /// The tool's name.
        #[schemars(length(min = 1))]
        tool: String,
        /// The tool's arguments; texts in them are templates.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        arguments: Map<String, Value>,
        /// How long it may take, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1, max = 3600))]
        timeout_seconds: Option<u64>,
        /// Whether its failure is a failure of the work.
        #[serde(default)]
        required: bool,
    },
}

/// How a request is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpMethod {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

/// How often to try, and how long to wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Retry {
    /// All attempts together, the first one included.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 20))]
    pub max_attempts: u32,
    /// The wait before the second attempt; doubled before each further one.
    #[serde(default = "at_once")]
    pub backoff: Span,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_attempts: once(), backoff: at_once() }
    }
}

fn once() -> u32 {
    1
}

fn at_once() -> Span {
    Span::seconds(0)
}
