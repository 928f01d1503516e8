//! Programs that someone else starts and looks after, such as one in a sandbox.

use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::error::Error;

/// Starts a program that speaks MCP on its standard input and output; more than once, should its first greeting fail.
pub trait Host: Send + Sync {
    fn start(&self) -> BoxFuture<'_, Result<Hosted, Error>>;
}

/// Looks after a program until nothing of it is left, and says how it ended. Once the token is cancelled, its input is
/// closed and it is to go.
pub type Keeper = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, String> + Send>;

/// A program that runs.
#[derive(derive_more::Debug)]
pub struct Hosted {
    /// Its number, for people.
    pub pid: u32,
    #[debug(skip)]
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    #[debug(skip)]
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error.
    #[debug(skip)]
    pub complaints: Box<dyn AsyncRead + Send + Unpin>,
    #[debug(skip)]
    pub keeper: Keeper,
}
