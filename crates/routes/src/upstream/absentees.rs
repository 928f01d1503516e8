//! Tools that are not in the catalog because their server has not said yet what it offers, or may not.

use std::sync::Arc;

use aegis_core::upstream::ServerState;

use super::{published::exactness, server::Server};
use crate::catalog::{Absent, Absentees, Until};

/// The servers that are switched on, and those that are not.
pub(super) struct Claimants {
    pub(super) on: Vec<Arc<Server>>,
    pub(super) off: Vec<Arc<Server>>,
}

impl Absentees for Claimants {
    fn absent(&self, tool: &str) -> Option<Absent> {
        let lacking = claimant(&self.on, tool).and_then(|server| server.lacks(tool));
        lacking.or_else(|| {
            let server = claimant(&self.off, tool)?.config.name.clone();
            let reason = format!("the MCP server `{server}` is switched off");
            Some(Absent { server, reason, until: Until::SwitchedOn })
        })
    }
}

/// Whose a tool of this name would be.
fn claimant<'a>(servers: &'a [Arc<Server>], tool: &str) -> Option<&'a Server> {
    let claiming = servers.iter().filter_map(|server| Some((exactness(&server.config, tool)?, server)));
    claiming.max_by_key(|(exactness, _)| *exactness).map(|(_, server)| &**server)
}

impl Server {
    /// Why a tool of a name that is this server's is not in the catalog; `None` when the server has no such tool.
    fn lacks(&self, tool: &str) -> Option<Absent> {
        let offered = self.offered();
        let is_known = offered.sound.iter().any(|(sound, _)| sound.spec.name == tool);
        let has_said = !offered.sound.is_empty() || !offered.unsound.is_empty();
        let absent =
            |reason: String, until: Until| Some(Absent { server: self.config.name.clone(), reason, until });
        if is_known {
            let name = &self.config.name;
            return absent(
                format!("the MCP server `{name}` has only just said what it offers"),
                Until::Started,
            );
        }
        // One that has listed its tools, and this is none of them, has nothing more to say about it.
        if has_said || self.shared().is_ok() {
            return None;
        }
        let is_starting = self.condition().state == ServerState::Starting;
        absent(self.why_not(), if is_starting { Until::Started } else { Until::Mended })
    }
}
