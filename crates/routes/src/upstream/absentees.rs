//! Tools that are not in the catalog because their server has not said yet what it offers.

use std::sync::Arc;

use aegis_core::upstream::ServerState;

use super::{published::exactness, server::Server};
use crate::catalog::{Absent, Absentees};

/// The servers that are switched on.
pub(super) struct Claimants(pub(super) Vec<Arc<Server>>);

impl Absentees for Claimants {
    fn absent(&self, tool: &str) -> Option<Absent> {
        let claiming = self.0.iter().filter_map(|server| Some((exactness(&server.config, tool)?, server)));
        let (_, server) = claiming.max_by_key(|(exactness, _)| *exactness)?;
        server.lacks(tool)
    }
}

impl Server {
    /// Why a tool of a name that is this server's is not in the catalog; `None` when the server has no such tool.
    fn lacks(&self, tool: &str) -> Option<Absent> {
        let offered = self.offered();
        let is_known = offered.sound.iter().any(|(sound, _)| sound.spec.name == tool);
        let has_said = !offered.sound.is_empty() || !offered.unsound.is_empty();
        let absent = |reason: String, is_starting: bool| {
            Some(Absent { server: self.config.name.clone(), reason, is_starting })
        };
        if is_known {
            let name = &self.config.name;
            return absent(format!("the MCP server `{name}` has only just said what it offers"), true);
        }
        // One that has listed its tools, and this is none of them, has nothing more to say about it.
        if has_said || self.shared().is_ok() {
            return None;
        }
        absent(self.why_not(), self.condition().state == ServerState::Starting)
    }
}
