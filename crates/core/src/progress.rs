//! What a running call says before its answer: how far it is, and what it puts out meanwhile.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    asking::{Answering, Manner, Question, Unanswered},
    event::Event,
};

/// One word of a running call to whoever waits for it. Lost words are no harm: the answer holds what counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How far the work is. Grows from word to word; doors see to it where a tool does not.
    pub progress: f64,
    /// Where it ends, when that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// What is being done, or what a command has just put out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Who hears of a call while it runs.
///
/// What is told must not wait: a listener that can't keep up loses words, and never slows the call. Only questions wait,
/// for their answer.
pub trait Listener: Send + Sync {
    /// Told to the one who waits for the answer.
    fn progress(&self, progress: Progress);

    /// Told to subscribers at once, instead of with the answer.
    fn event(&self, event: Event);

    /// Whether what is told of from now on can be recorded. What must never happen unrecorded asks before it happens.
    fn records(&self) -> bool {
        true
    }

    /// A message of an MCP server's log: the parameters of its `notifications/message`, text from outside.
    fn log(&self, _message: &Value) {}

    /// How the one who waits can be asked. `None`: not at all.
    fn manner(&self) -> Option<&Manner> {
        None
    }

    /// Asks the one who waits.
    fn ask(&self, _question: Question) -> Answering<'_> {
        Box::pin(std::future::ready(Err(Unanswered::Unable)))
    }
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silence;

impl Listener for Silence {
    fn progress(&self, _: Progress) {}

    fn event(&self, _: Event) {}
}
