//! What the node remembers: the audit log, and the registry of credentials, both in its data directory.

pub mod audit;
pub mod data_dir;
pub mod registry;

pub use audit::AuditLog;
pub use data_dir::{DataDir, DataPaths};
pub use registry::Registry;
