//! Sandboxes that hold: a program runs where the kernel, not a check of strings, keeps it from everything that was not
//! given to it.
//!
//! ```no_run
//! # async fn run() -> Result<(), aegis_sandbox::SandboxError> {
//! use aegis_sandbox::{Access, Backend, Floor, Launch, Mount, Native, NativeSettings};
//!
//! // First thing in `main`: the same binary serves as the stage.
//! if aegis_sandbox::is_stage() {
//!     aegis_sandbox::stage_main();
//! }
//! let sandbox = Native::new(NativeSettings::default(), Floor::standard());
//! let mut what = Launch::new("make");
//! what.args = vec!["test".into()];
//! what.cwd = "/workspace".into();
//! what.mounts = vec![Mount { host: "/srv/volume".into(), inside: "/workspace".into(), access: Access::ReadWrite }];
//! let mut running = sandbox.launch(what).await?;
//! let exit = running.wait().await;
//! # Ok(()) }
//! ```
#![doc = include_str!("../README.md")]

mod backend;
mod error;
mod launch;
mod layers;
mod native;
mod oci;
mod running;
mod stage;
mod sys;
mod wire;

pub use backend::Backend;
pub use error::SandboxError;
pub use launch::{Access, DEFAULT_PATH, Input, Launch, Limits, MOST_MOUNTS, Mount, Network, PROXY_PORT};
pub use layers::{Floor, Layer, Layers, Refusal, State};
pub use native::{Native, NativeSettings, probe};
pub use oci::{Oci, OciSettings};
pub use running::{Census, Control, Exit, ProcessInfo, Running, SandboxId, Signal, Target};
pub use stage::{STAGE_NAME, is_stage, stage_main};

/// Sees to it that nothing which was open when this process was started is passed on to programs that it starts itself.
/// To be called early in `main`, before there are threads.
///
/// # Errors
/// When the kernel can't do it at once (before Linux 5.11), or may not, and there is no `/proc` to do it one by one.
pub fn pass_nothing_on() -> std::io::Result<()> {
    sys::close_on_exec_from(3).or_else(|_| sys::close_each_on_exec_from(3))
}
