use std::sync::Arc;

use aegis_core::{Failure, FailureKind, caller::Tier};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{NodeFacts, example, facts, tags};
use crate::{Answer, Facts, Run, Tool};

#[derive(Debug)]
pub struct SystemConfig {
    node: Arc<NodeFacts>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// Where it was read from.
    config_path: String,
    /// What is in force now, defaults included; literal secrets are masked.
    content_yaml: String,
}

impl SystemConfig {
    pub fn new(node: &Arc<NodeFacts>) -> Self {
        Self { node: node.clone() }
    }
}

impl Tool for SystemConfig {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            tier: Tier::Operator,
            tags: tags(["node"]),
            examples: vec![example("The configuration in force", json!({}))],
            ..facts(
                "aegis.system.config",
                "Node configuration",
                "system",
                "Return the node configuration that is in force, as YAML. Literal secrets are masked.",
            )
        }
    }

    async fn run(&self, _: &Run<'_>, _: Input) -> Result<Answer<Output>, Failure> {
        let (config_path, content_yaml) = (self.node.config)();
        if content_yaml.is_empty() {
            let message = format!("the configuration ({config_path}) can't be shown; see the node's log");
            return Err(Failure::new(FailureKind::ConfigUnavailable, message));
        }
        Ok(Output { config_path, content_yaml }.into())
    }
}
