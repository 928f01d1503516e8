//! What a route gives back.

use serde_json::Value;

use crate::{event::Event, failure::FailureKind, label::Label};

/// The result of a tool that ran.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The answer exactly as the tool's contract has it (an object or a string).
    pub value: Value,
    /// The same answer as an object, for MCP's `structuredContent`. `None` when `value` is that object already.
    pub structured: Option<Value>,
    /// Set when the tool could not do what was asked; `value` is then the failure object.
    pub failure: Option<FailureKind>,
    pub label: Label,
    pub events: Vec<Event>,
}

impl Outcome {
    pub fn structured(&self) -> &Value {
        self.structured.as_ref().unwrap_or(&self.value)
    }
}
