//! `kind: Agent`: what an agent is, may use, and how its work is judged.

mod check;
mod delivery;
mod execution;
mod runtime;
mod schedule;
mod security;
mod task;
mod tools;
mod validation;
mod volume;

use std::{collections::BTreeMap, sync::LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::command::{Command, CommandRules};
pub use delivery::{Channel, Delivery, DeliveryCondition, Destination, Recipients, Transform};
pub use execution::{Execution, ExecutionMode};
pub use runtime::{ImagePullPolicy, Isolation, RuntimeSource, RuntimeSpec};
pub use schedule::Schedule;
pub use security::{FilesystemPolicy, NetworkMode, NetworkPolicy, NetworkTarget, Resources, Security};
pub use task::{ContextItem, Task};
pub use tools::{BuiltinDispatcher, DispatcherCapability, Executor, ToolBinding, ToolConfig, ToolEntry};
pub use validation::{
    JudgeWeight, OnUnavailable, OutputFormat, OutputRules, ScriptRules, SemanticRules, SystemRules,
    Validation, ValidationRules, Validator,
};
pub use volume::{StorageClass, Volume, VolumeSource, VolumeType};
pub(super) use volume::{is_volume_id, mount_path};

use super::{AgentMetadata, Checked, EmbeddedSchema, OutputHandler};
use crate::{
    config::ApiVersion,
    document::{DNS_LABEL, Diagnostic, Shape},
    runtimes::Runtime,
};

/// An agent: a model with a task, in a runtime, with tools it may use.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentManifest {
    /// `100monkeys.ai/v1`.
    #[schemars(extend("errorMessage" = super::API_VERSION_MESSAGE))]
    pub api_version: ApiVersion,
    /// `Agent`.
    pub kind: AgentKind,
    /// Who the agent is.
    pub metadata: AgentMetadata,
    /// What the agent does.
    pub spec: AgentSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum AgentKind {
    Agent,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AgentSpec {
    /// Where the agent runs and which model it uses.
    pub runtime: RuntimeSpec,
    /// What the agent is to do.
    pub task: Task,
    /// Material that is given to the agent with every task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextItem>,
    /// How often and how long it may try, and how its work is judged.
    #[serde(default)]
    pub execution: Execution,
    /// What it may reach. Nothing, when left out.
    #[serde(default)]
    pub security: Security,
    /// Tools it may call: `fs.read`, `web.*`, every tool of a server (`mcp:web-search`), or an entry with limits.
    /// A tool that is not named here is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolEntry>,
    /// A second place to open `cmd.run`; with both, a command must be allowed by both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub builtin_dispatchers: Vec<BuiltinDispatcher>,
    /// The SecurityContext it runs under; the caller's when left out. `aegis-system-*` is for operators to give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = DNS_LABEL))]
    pub security_context: Option<String>,
    /// Environment variables: plain text, `env:NAME`, `secret:path` or `config:key`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Storage that is mounted for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// When it runs by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Where its results are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
    /// What happens with its output when it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_handler: Option<OutputHandler>,
    /// A JSON Schema that the input of a task must fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<EmbeddedSchema>,
    /// Settings that few agents need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advanced: Option<Advanced>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advanced {
    /// The bootstrap program inside a custom image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_path: Option<String>,
    /// Containers kept ready.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub warm_pool_size: u32,
    /// Runs in the container before the agent does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup_script: Option<String>,
    /// How its health is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Whether it may start agents of its own.
    #[serde(default)]
    pub swarm_enabled: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HealthCheck {
    /// The path that is asked.
    pub path: String,
    /// How often, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub interval_seconds: Option<u64>,
    /// How long an answer may take, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub timeout_seconds: Option<u64>,
}

pub(super) fn shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of::<AgentManifest>);
    &SHAPE
}

/// Reads an agent manifest and checks all that can be checked without knowing the node.
pub fn parse(text: &str) -> Result<Checked<AgentManifest>, Vec<Diagnostic>> {
    read(text, None)
}

/// Reads an agent manifest for a node with these runtimes: the one it declares must be among them.
pub fn parse_for(text: &str, runtimes: &[Runtime]) -> Result<Checked<AgentManifest>, Vec<Diagnostic>> {
    read(text, Some(runtimes))
}

fn read(text: &str, runtimes: Option<&[Runtime]>) -> Result<Checked<AgentManifest>, Vec<Diagnostic>> {
    let parsed = shape().parse::<AgentManifest>(text)?;
    let findings = check::check(&parsed, runtimes);
    findings.settle(parsed).map(|mut checked| {
        // One place from here on, whichever of the two it was written in.
        let spec = &mut checked.value.spec;
        if let Some(delivery) = spec.execution.delivery.take() {
            spec.delivery = Some(delivery);
        }
        checked
    })
}
