//! Questions that an MCP server has for the client behind a call, and what becomes of them. A client is asked on the
//! stream of its answer, or by an answer that is itself a question, and then repeats its request.

use std::{future::Future, pin::Pin};

use serde_json::{Map, Value, value::RawValue};

/// `elicitation/create`, `sampling/createMessage` or `roots/list`, in the server's words: text from outside.
#[derive(Debug, Clone)]
pub struct Question {
    pub method: String,
    pub params: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    #[error("the client can't be asked this")]
    Unable,
    #[error("the client gave no answer")]
    Nothing,
}

pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Box<RawValue>, Unanswered>> + Send + 'a>>;

/// What a repeated request brings back for the server that answered it with questions.
#[derive(Debug, Clone, Default)]
pub struct Brought {
    /// `inputResponses`.
    pub responses: Option<Box<RawValue>>,
    /// `requestState`: the server's note to itself, unread.
    pub state: Option<Box<RawValue>>,
}

/// How the client behind a call can be asked.
#[derive(Debug, Clone, Default)]
pub struct Manner {
    /// What it can be asked, in the words of MCP's client capabilities: `elicitation`, `sampling`, `roots`. Nothing
    /// else is in here.
    pub abilities: Map<String, Value>,
    /// Whether an answer may itself be questions (`input_required`), which the client answers by repeating the request.
    /// A server that can put its questions so should; one that can't has `Listener::ask`.
    pub by_result: bool,
    /// What this request brings back from the one before.
    pub brought: Option<Brought>,
    /// The least severe message of a server's log that the client wants to hear.
    pub log_level: Option<String>,
}
