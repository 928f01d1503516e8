//! Routes carry calls out. Each tool has one file under `tools/`; what several tools share has a room of its own:
//! `files` (volumes that the kernel confines), `egress` (HTTP that goes only where it may) and `exec` (programs in sandboxes).

pub mod catalog;
pub mod egress;
pub mod exec;
pub mod files;
pub mod preview;
pub mod tool;
pub mod tools;
pub mod upstream;

pub use catalog::Catalog;
pub use preview::ToolPreviews;
pub use tool::{Answer, Facts, Run, Tool};
