use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::HttpMethod;

/// Where an agent's results are sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// Everyone who gets them.
    pub destinations: Vec<Destination>,
}

/// One receiver of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Destination {
    /// What the destination is called.
    #[schemars(length(min = 1))]
    pub name: String,
    #[serde(default)]
    pub condition: DeliveryCondition,
    /// A script that rewrites the result first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
    #[serde(flatten)]
    pub channel: Channel,
}

/// After which ends it is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryCondition {
    OnSuccess,
    OnFailure,
    #[default]
    Always,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Transform {
    /// The script's path.
    #[schemars(length(min = 1))]
    pub script: String,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// How long it may take, in seconds.
    #[serde(default = "half_a_minute")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Channel {
    Email {
        to: Recipients,
        /// The subject line; a template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// The text; a template. The result when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body_template: Option<String>,
        /// Paths of files to send along.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        attachments: Vec<String>,
    },
    Webhook {
        /// Where it is sent.
        #[schemars(length(min = 1))]
        url: String,
        #[serde(default)]
        method: HttpMethod,
        /// Values may be secret references.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// The request's body; a template. The result when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
    },
    Rest {
        /// Where it is sent.
        #[schemars(length(min = 1))]
        url: String,
        #[serde(default)]
        method: HttpMethod,
        /// Values may be secret references.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        headers: BTreeMap<String, String>,
        /// The request's body; a template. The result when left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
    },
    Sms {
        to: Recipients,
        /// The text; a template.
        message: String,
    },
}

/// One receiver or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Recipients {
    One(String),
    Several(Vec<String>),
}

fn half_a_minute() -> u64 {
    30
}
