use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What an agent is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// What the agent is told, as it stands: not a template.
    #[schemars(regex(pattern = r"\S"), extend("patternErrorMessage" = "say what the agent is to do"))]
    pub instruction: String,
    /// A Handlebars template of the whole prompt, over `instruction`, `intent`, `input`, `iteration_number`,
    /// `previous_error`, `agentskills` and `context`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_template: Option<String>,
    /// Structured defaults for the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_data: Option<Map<String, Value>>,
    /// Skills to give it, as `namespace:skill`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("items" = {
        "type": "string",
        "pattern": r"^[A-Za-z0-9_.-]+:[A-Za-z0-9_./-]+$",
        "patternErrorMessage": "write namespace:skill",
    }))]
    pub agentskills: Vec<String>,
}

/// Material for the agent, joined into the template's `context`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ContextItem {
    /// The text itself.
    Text {
        /// The text.
        content: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// One file.
    File {
        /// Where it lies.
        #[schemars(length(min = 1))]
        path: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// The files of a directory.
    Directory {
        /// Where it lies.
        #[schemars(length(min = 1))]
        path: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// A page.
    Url {
        /// Its address.
        #[schemars(regex(pattern = r"^https?://"), extend("patternErrorMessage" = "write an http or https URL"))]
        url: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
}
