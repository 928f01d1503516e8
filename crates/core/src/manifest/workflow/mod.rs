//! `kind: Workflow`: states that agents, containers and people work in, and how a run goes from one to the next.

mod check;
mod container;
mod graph;
mod state;
mod storage;
mod transition;

use std::{collections::BTreeMap, sync::LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use container::{
    Completion, ContainerResources, ContainerRunState, ContainerStep, ParallelContainerRunState, RunAsUser,
};
pub use state::{
    AgentState, HumanState, ParallelAgent, ParallelAgentsState, PreExecutionValidator, State,
    SubworkflowMode, SubworkflowState, SystemState, Work,
};
pub use storage::{Mount, SharedVolume, Storage, Workspace};
pub use transition::{Condition, ScoreAndConfidence, Transition};

use super::{Checked, WorkflowMetadata, straight};
use crate::{
    config::ApiVersion,
    document::{Diagnostic, Shape, schema_of},
};

/// A workflow: a state machine over agents, containers, people and other workflows.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowManifest {
    /// `100monkeys.ai/v1`.
    #[schemars(extend("errorMessage" = super::API_VERSION_MESSAGE))]
    pub api_version: ApiVersion,
    /// `Workflow`.
    pub kind: WorkflowKind,
    /// Who the workflow is.
    pub metadata: WorkflowMetadata,
    /// What the workflow does.
    pub spec: WorkflowSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum WorkflowKind {
    Workflow,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct WorkflowSpec {
    /// The state a run starts in.
    pub initial_state: String,
    /// The states by name, by custom in UPPER_SNAKE case. A state without transitions ends the run.
    #[schemars(extend("minProperties" = 1, "propertyNames" = {"minLength": 1}, "errorMessage" = STATES_MESSAGE))]
    pub states: BTreeMap<String, State>,
    /// Values that every state can read, as `workflow.context.KEY` or `blackboard.KEY`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// Storage that the states share.
    #[serde(default)]
    pub storage: Storage,
    /// Another place for `storage.shared_volumes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<SharedVolume>,
    /// How many transitions a run may take in all.
    #[serde(default = "fifty")]
    #[schemars(range(min = 1, max = 100))]
    pub max_total_transitions: u32,
}

const STATES_MESSAGE: &str = "write one or more states, each under its name; a list with `name:` inside is an older form that is not taken";

fn fifty() -> u32 {
    50
}

/// A mistyped key in a state could silently change where a run goes, so states take no unknown keys.
pub(super) fn shape() -> &'static Shape {
    static SHAPE: LazyLock<Shape> = LazyLock::new(|| {
        let mut schema = schema_of::<WorkflowManifest>();
        straight::close(&mut schema, "State");
        Shape::from_schema(schema)
    });
    &SHAPE
}

/// Reads a workflow manifest and checks all that can be checked without knowing the node.
pub fn parse(text: &str) -> Result<Checked<WorkflowManifest>, Vec<Diagnostic>> {
    let parsed = shape().parse::<WorkflowManifest>(text)?;
    let findings = check::check(&parsed);
    findings.settle(parsed).map(|mut checked| {
        // One place from here on, whichever of the two they were written in.
        let spec = &mut checked.value.spec;
        spec.storage.shared_volumes.append(&mut spec.volumes);
        checked
    })
}
