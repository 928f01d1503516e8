//! What a server says on its own account.

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::RpcError;

/// Hears what the server asks and tells. Called from the task that reads: a notice must be taken without waiting.
pub trait Handler: Send + Sync {
    /// Whether there is anybody to ask. Whoever can't be is still counted where many requests share a pipe, so that
    /// nobody is asked another one's question.
    fn can_be_asked(&self) -> bool {
        true
    }

    /// A question of the server's: `elicitation/create`, `sampling/createMessage`, `roots/list`. Whoever does not
    /// know the method says so.
    fn asked<'a>(
        &'a self,
        method: &'a str,
        _params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        Box::pin(async move {
            Err(RpcError::new(RpcError::METHOD_NOT_FOUND, format!("`{method}` is not supported here")))
        })
    }

    /// A notification that belongs to no request of ours: a list changed, a resource was updated, a log message.
    fn noticed(&self, _method: &str, _params: Option<&RawValue>) {}

    /// A line that a child wrote to its standard error, cut to size. A flood is thinned before it comes here.
    fn stderr(&self, _line: &str) {}

    /// The beginning of what came, before the handshake was over, where a message should have come and is none.
    fn stray(&self, _text: &str) {}
}

/// Refuses every question and hears nothing.
impl Handler for () {}

/// Hears how far one request has come.
pub trait Progress: Send + Sync {
    fn progress(&self, update: ProgressUpdate);
}

#[derive(Debug, Clone, Deserialize)]
pub struct ProgressUpdate {
    pub progress: f64,
    #[serde(default)]
    pub total: Option<f64>,
    #[serde(default)]
    pub message: Option<String>,
}
