//! What a route gives back.

use serde::{Deserialize, Serialize};
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
    /// The result of an MCP server, for clients of MCP; others read `value`.
    pub passed: Option<Passed>,
}

/// An answer of an MCP server that passes through. Texts are JSON objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passed {
    /// The result without `resultType`, `ttlMs`, `cacheScope` and `_meta`.
    Result(String),
    /// No answer yet (`input_required`): the client is asked something, and repeats its request with the answers. The
    /// result as above.
    Asks(String),
    /// The work goes on as a task of the server's: `taskId`, `status` and so on.
    Task(String),
    /// An error of the protocol: `code`, `message`, and `data` if there is any. `Outcome::failure` is set as well.
    Error(String),
}

impl Outcome {
    pub fn structured(&self) -> &Value {
        self.structured.as_ref().unwrap_or(&self.value)
    }
}
