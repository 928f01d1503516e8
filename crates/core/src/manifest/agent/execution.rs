use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Delivery, Validation, Validator};
use crate::{
    manifest::straight::{alias, value_alias},
    quantity::Span,
};

/// How often and how long an agent may try, and how its work is judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(transform = alias("max_retries", "max_iterations"))]
pub struct Execution {
    pub mode: ExecutionMode,
    /// How often it may try; `one-shot` tries once whatever stands here.
    #[serde(alias = "max_retries")]
    #[schemars(range(min = 1, max = 20))]
    pub max_iterations: u32,
    /// How long one try may take.
    pub iteration_timeout: Span,
    /// How long the first answer of the model may take, in seconds.
    #[schemars(range(min = 1, max = 3600))]
    pub llm_timeout_seconds: u64,
    /// Whether it learns from earlier runs.
    pub memory: bool,
    /// How its output is judged after each try: a list of validators, the first that fails decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// How its tool calls are judged before they run. Only `semantic` entries take part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_validation: Vec<Validator>,
    /// An older place of `spec.delivery`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<Delivery>,
}

/// Whether an agent gets more than one try.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(transform = value_alias("single", "one-shot"))]
pub enum ExecutionMode {
    /// One try.
    #[default]
    #[serde(alias = "single")]
    OneShot,
    /// Tries again with what was wrong, up to `max_iterations` times.
    Iterative,
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            mode: ExecutionMode::default(),
            max_iterations: 10,
            iteration_timeout: Span::seconds(300),
            llm_timeout_seconds: 300,
            memory: false,
            validation: None,
            tool_validation: Vec::new(),
            delivery: None,
        }
    }
}

impl Execution {
    /// How often the agent really may try.
    pub fn iterations(&self) -> u32 {
        match self.mode {
            ExecutionMode::OneShot => 1,
            ExecutionMode::Iterative => self.max_iterations,
        }
    }

    /// The validators of the output in order, whichever form they were written in.
    pub fn validators(&self) -> Vec<Validator> {
        self.validation.as_ref().map(Validation::lower).unwrap_or_default()
    }
}
