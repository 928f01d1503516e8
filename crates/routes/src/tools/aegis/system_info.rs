use std::sync::Arc;

use aegis_core::{Failure, caller::Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{NodeFacts, example, facts, tags};
use crate::{Answer, Facts, Run, Tool};

#[derive(Debug)]
pub struct SystemInfo {
    node: Arc<NodeFacts>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    version: &'static str,
    status: Status,
    /// Subsystems that this node has.
    capabilities: Vec<&'static str>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Status {
    Healthy,
    Unhealthy,
}

impl SystemInfo {
    pub fn new(node: &Arc<NodeFacts>) -> Self {
        Self { node: node.clone() }
    }
}

impl Tool for SystemInfo {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            tier: Tier::Operator,
            tags: tags(["node"]),
            examples: vec![example("The node's state", json!({}))],
            ..facts(
                "aegis.system.info",
                "Node information",
                "system",
                "Return the node's version, health and subsystems.",
            )
        }
    }

    async fn run(&self, _: &Run<'_>, _: Input) -> Result<Answer<Output>, Failure> {
        let status = if (self.node.healthy)() { Status::Healthy } else { Status::Unhealthy };
        Ok(Output { version: self.node.version, status, capabilities: self.node.capabilities.clone() }.into())
    }
}
