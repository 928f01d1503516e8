use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Mount;
use crate::{
    document::shown,
    manifest::{Findings, OutputHandler, Retry, agent::ImagePullPolicy},
    quantity::{Size, Span},
};

/// A container that runs to its end. No model, no tools, no way back to the node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerRunState {
    /// What the run is called; the state's name when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The image to run.
    #[schemars(length(min = 1))]
    pub image: String,
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,
    /// The program and its arguments; templates.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Whether the words of `command` are joined and given to `sh -c`.
    #[serde(default)]
    pub shell: bool,
    /// Values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory it runs in.
    #[serde(default = "workspace")]
    pub workdir: String,
    /// Volumes it sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Mount>,
    #[serde(default)]
    pub resources: ContainerResources,
    /// A secret reference for the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_credentials: Option<String>,
    #[serde(default)]
    pub retry: Retry,
    /// Whether it can write to its volumes only.
    #[serde(default)]
    pub read_only_root_filesystem: bool,
    /// The user it runs as; the image's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<RunAsUser>,
    /// The network it is in; the node's default when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<String>,
    /// What happens with the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_handler: Option<OutputHandler>,
}

/// Several containers at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ParallelContainerRunState {
    /// The containers.
    #[schemars(length(min = 1, max = 100))]
    pub steps: Vec<ContainerStep>,
    /// When the state as a whole succeeds.
    #[serde(default)]
    pub completion: Completion,
    /// What happens with the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_handler: Option<OutputHandler>,
}

/// One of several containers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ContainerStep {
    /// Unique in the state; its result stands under this name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The image to run.
    #[schemars(length(min = 1))]
    pub image: String,
    #[serde(default)]
    pub image_pull_policy: ImagePullPolicy,
    /// The program and its arguments; templates.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Whether the words of `command` are joined and given to `sh -c`.
    #[serde(default)]
    pub shell: bool,
    /// Values are templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The directory it runs in.
    #[serde(default = "workspace")]
    pub workdir: String,
    /// Volumes it sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Mount>,
    #[serde(default)]
    pub resources: ContainerResources,
    /// A secret reference for the image's registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_credentials: Option<String>,
    /// Whether it can write to its volumes only.
    #[serde(default)]
    pub read_only_root_filesystem: bool,
    /// The user it runs as; the image's own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<RunAsUser>,
    /// The network it is in; the node's default when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// Every step must succeed.
    #[default]
    AllSucceed,
    /// One success is enough.
    AnySucceed,
    /// The state succeeds whatever the steps do.
    BestEffort,
}

/// How much a container may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ContainerResources {
    /// Thousandths of a processor; the node's default when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub cpu: Option<u32>,
    /// The node's default when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    pub timeout: Span,
}

impl Default for ContainerResources {
    fn default() -> Self {
        Self { cpu: None, memory: None, timeout: Span::seconds(300) }
    }
}

/// A user id, or `user` or `user:group` as the image knows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum RunAsUser {
    Id(u32),
    Name(String),
}

fn workspace() -> String {
    crate::path::WORKSPACE.to_owned()
}

impl ContainerRunState {
    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        check_common(at, &self.command, &self.workdir, &self.resources, findings);
    }
}

impl ParallelContainerRunState {
    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        for (index, step) in self.steps.iter().enumerate() {
            let at = format!("{at}/steps/{index}");
            if self.steps[..index].iter().any(|earlier| earlier.name == step.name) {
                findings.error(
                    format!("{at}/name"),
                    format!("another step is called {} already", shown(&step.name)),
                );
            }
            check_common(&at, &step.command, &step.workdir, &step.resources, findings);
        }
    }
}

fn check_common(
    at: &str,
    command: &[String],
    workdir: &str,
    resources: &ContainerResources,
    findings: &mut Findings,
) {
    if command.first().is_some_and(|program| program.trim().is_empty()) {
        findings.error(format!("{at}/command/0"), "name the program to run");
    }
    if !workdir.starts_with('/') && !workdir.contains("{{") {
        findings.error(format!("{at}/workdir"), "write an absolute path");
    }
    if resources.memory == Some(Size(0)) {
        findings.error(format!("{at}/resources/memory"), "must be more than 0");
    }
    if resources.timeout.0.is_zero() {
        findings.error(format!("{at}/resources/timeout"), "must be more than 0");
    }
}
