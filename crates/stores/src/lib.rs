//! What the node remembers: the audit log, the registry of credentials, and which signed envelopes were used, all in
//! its data directory.

pub mod audit;
pub mod data_dir;
mod new_database;
pub mod registry;
pub mod replay;
pub mod secrets;

pub use audit::AuditLog;
pub use data_dir::{DataDir, DataPaths};
pub use registry::Registry;
pub use secrets::SecretResolver;
