//! Agent and Workflow manifests: the types that run, and the JSON Schemas that are published, are one.

pub mod agent;
mod embedded_schema;
mod judge;
mod metadata;
mod output_handler;
mod straight;
pub mod workflow;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use embedded_schema::EmbeddedSchema;
pub use judge::{ConfidenceWeighting, Consensus, ConsensusStrategy, Judge, SemanticJudge};
pub use metadata::{AgentMetadata, WorkflowMetadata};
pub use output_handler::{HttpMethod, OutputHandler, Retry};

use crate::document::Diagnostic;

const API_VERSION_MESSAGE: &str = "write 100monkeys.ai/v1 (no other version is known)";

/// The keys under which the schemas are published.
pub const SCHEMA_KEYS: [&str; 2] = ["agent/manifest/v1", "workflow/manifest/v1"];

/// The JSON Schema published under `key`.
pub fn schema(key: &str) -> Option<Value> {
    match key {
        "agent/manifest/v1" => Some(agent::shape().schema().clone()),
        "workflow/manifest/v1" => Some(workflow::shape().schema().clone()),
        _ => None,
    }
}

/// A manifest that can be used, with what its author should hear about it.
#[derive(Debug, Clone)]
pub struct Checked<T> {
    pub value: T,
    pub warnings: Vec<Diagnostic>,
}

/// What the semantic checks of a manifest found, by JSON pointer.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) errors: Vec<(String, String)>,
    pub(crate) warnings: Vec<(String, String)>,
}

impl Findings {
    pub(crate) fn error(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.errors.push((pointer.into(), message.into()));
    }

    pub(crate) fn warning(&mut self, pointer: impl Into<String>, message: impl Into<String>) {
        self.warnings.push((pointer.into(), message.into()));
    }

    /// Puts every finding in its place: errors refuse the manifest, warnings go with it.
    pub(crate) fn settle<T>(self, parsed: crate::document::Parsed<T>) -> Result<Checked<T>, Vec<Diagnostic>> {
        let placed = |findings: Vec<(String, String)>| -> Vec<Diagnostic> {
            findings.into_iter().map(|(pointer, message)| parsed.diagnostic(&pointer, message)).collect()
        };
        let errors = placed(self.errors);
        let warnings = placed(self.warnings);
        if !errors.is_empty() {
            return Err(crate::document::in_reading_order(errors));
        }
        let warnings = parsed.warnings.into_iter().chain(warnings).collect();
        Ok(Checked { value: parsed.value, warnings: crate::document::in_reading_order(warnings) })
    }
}
