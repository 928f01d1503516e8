//! What every way to build a sandbox has in common.

use futures::future::BoxFuture;

use crate::{error::SandboxError, launch::Launch, layers::Layers, running::Running};

/// A way to run a program where it can't reach the host.
///
/// All backends pass one conformance set (`tests/conformance`): the same mounts, limits, signals, output and ends.
pub trait Backend: Send + Sync + std::fmt::Debug {
    /// Its name in configuration and reports.
    fn name(&self) -> &'static str;

    /// Which layers hold, as tried when the backend was made.
    fn layers(&self) -> &Layers;

    /// Starts a program. The future is done when the program runs, or with the reason why it never will.
    ///
    /// # Errors
    /// See [`SandboxError`]; whatever was set up until then is gone.
    fn launch(&self, what: Launch) -> BoxFuture<'_, Result<Running, SandboxError>>;
}
