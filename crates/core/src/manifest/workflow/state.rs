use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ContainerRunState, Mount, ParallelContainerRunState, Transition};
use crate::{
    manifest::{Consensus, Judge, OutputHandler, SemanticJudge, agent::Isolation},
    quantity::Span,
};

/// One state of a workflow: what is done in it, and where the run goes afterwards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct State {
    /// How long the state may take: 5 minutes when left out, without end for `Human`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// How often a run may enter the state.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 20))]
    pub max_state_visits: u32,
    /// Where the run goes: the first transition that holds. With none of them (`[]`) the state ends the run.
    pub transitions: Vec<Transition>,
    #[serde(flatten)]
    pub work: Work,
}

/// What is done in a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind")]
pub enum Work {
    /// An agent works on a task.
    Agent(AgentState),
    /// A command of the node itself; off unless an operator allows it, but for `echo`, `update_blackboard`,
    /// `update_context` and `finalize`, which run nothing.
    System(SystemState),
    /// A person is asked.
    Human(HumanState),
    /// Several agents work at once and come to one score.
    ParallelAgents(ParallelAgentsState),
    /// A container runs to its end.
    ContainerRun(ContainerRunState),
    /// Several containers run at once.
    ParallelContainerRun(ParallelContainerRunState),
    /// Another workflow runs.
    Subworkflow(SubworkflowState),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentState {
    /// Name or id of the agent, or a template.
    #[schemars(length(min = 1))]
    pub agent: String,
    /// What the agent is given; a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// What it is to achieve; a template. The run's intent when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// What separates it from the machine; its manifest decides when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    /// Agents that judge its output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judges: Vec<Judge>,
    /// How often it may try; its manifest decides when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 20))]
    pub max_iterations: Option<u32>,
    /// A judge for its tool calls in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_execution_validator: Option<PreExecutionValidator>,
    /// Volumes it sees, besides those of its manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Mount>,
    /// What happens with the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_handler: Option<OutputHandler>,
}

/// The name of a judge agent, or the judge with its rubric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum PreExecutionValidator {
    Name(String),
    Judge(SemanticJudge),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SystemState {
    /// The command; a template.
    #[schemars(length(min = 1))]
    pub command: String,
    /// Values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory it runs in.
    #[serde(default = "workspace")]
    pub workdir: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HumanState {
    /// What the person is asked; a template.
    #[schemars(length(min = 1))]
    pub prompt: String,
    /// What counts as the answer when nobody gives one in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_response: Option<String>,
    /// An older way to write `timeout`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_seconds: Option<u64>,
    /// An older way to write `default_response: rejected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_on_timeout: Option<bool>,
}

impl HumanState {
    /// What counts as the answer when nobody gives one in time, however it was written.
    pub fn default_response(&self) -> Option<&str> {
        self.default_response.as_deref().or((self.reject_on_timeout == Some(true)).then_some("rejected"))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ParallelAgentsState {
    /// The agents.
    #[schemars(length(min = 1, max = 100))]
    pub agents: Vec<ParallelAgent>,
    /// How their scores become one.
    #[serde(default)]
    pub consensus: Consensus,
    /// Agents that judge each output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judges_for_parallel: Vec<Judge>,
    /// What happens with the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_handler: Option<OutputHandler>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ParallelAgent {
    /// Name or id of the agent, or a template.
    #[schemars(length(min = 1))]
    pub agent: String,
    /// What the agent is given; a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// How much it counts.
    #[serde(default = "one")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub weight: f64,
    /// How long it may take, in seconds.
    #[serde(default = "minute")]
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: u64,
    /// How often its progress is looked at, in milliseconds.
    #[serde(default = "half_a_second")]
    #[schemars(range(min = 50, max = 60_000))]
    pub poll_interval_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubworkflowState {
    /// Name or id of the workflow.
    #[schemars(length(min = 1))]
    pub workflow_id: String,
    /// Whether the run waits.
    pub mode: SubworkflowMode,
    /// The blackboard key for the child's output; needed by `blocking`, and by nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub result_key: Option<String>,
    /// What the workflow is given; a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubworkflowMode {
    /// Waits for the child's end.
    Blocking,
    /// Goes on at once.
    FireAndForget,
}

impl State {
    /// How long the state may take; `None` is without end.
    pub fn timeout(&self) -> Option<Span> {
        match (&self.work, self.timeout) {
            (_, Some(timeout)) => Some(timeout),
            (Work::Human(human), None) => human.timeout_seconds.map(Span::seconds),
            (_, None) => Some(Span::seconds(300)),
        }
    }

    /// Whether a run ends here.
    pub fn is_terminal(&self) -> bool {
        self.transitions.is_empty()
    }
}

impl Work {
    /// The name in `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Agent(_) => "Agent",
            Self::System(_) => "System",
            Self::Human(_) => "Human",
            Self::ParallelAgents(_) => "ParallelAgents",
            Self::ContainerRun(_) => "ContainerRun",
            Self::ParallelContainerRun(_) => "ParallelContainerRun",
            Self::Subworkflow(_) => "Subworkflow",
        }
    }
}

fn five() -> u32 {
    5
}

fn one() -> f64 {
    1.0
}

fn minute() -> u64 {
    60
}

fn half_a_second() -> u64 {
    500
}

fn workspace() -> String {
    crate::path::WORKSPACE.to_owned()
}
