//! Tools of MCP servers that can't be called yet: what is said of them, and waiting for them.

use aegis_core::{Caller, Violation, ViolationKind};
use aegis_routes::catalog::Until;

use crate::Plane;

/// A server that starts is there in a moment.
const IN_A_MOMENT: u64 = 1;

impl Plane {
    /// Waits until the policies in force were read with every tool that is in the catalog now: before that nobody may call
    /// it. Ends at once where the policies can't be read.
    pub async fn policies_read(&self) {
        let mut unread = self.catalog().specs();
        unread.retain(|tool| !self.policy().knows(&tool.name));
        let is_gone = |name: &str| self.catalog().resolve(name).is_none();
        self.policy()
            .until_read(|policy| unread.iter().all(|tool| policy.knows(&tool.name) || is_gone(&tool.name)))
            .await;
    }

    /// Why a tool is missing that a server would have. Callers that may not call it learn nothing of the server.
    pub(crate) fn absent(&self, caller: &Caller, name: &str) -> Option<Violation> {
        let absent = self.catalog().absent(name).filter(|_| self.policy().opens_name(caller, name))?;
        let shown: String = name.chars().take(120).collect();
        let message = format!("`{shown}` can't be called: {}", absent.reason);
        let told = Violation::new(ViolationKind::UpstreamUnavailable, message);
        let server = &absent.server;
        Some(match absent.until {
            Until::Started => told
                .hint(format!(
                    "make the call again in a moment; `aegis upstream logs {server}` shows what it does"
                ))
                .retry_after(IN_A_MOMENT),
            Until::Mended => told.hint(format!(
                "an operator looks at `aegis upstream logs {server}`, mends it, and runs `aegis upstream restart {server}`"
            )),
            Until::SwitchedOn => told.hint(format!(
                "an operator switches it on with `aegis upstream enable {server}`, or with `enabled: true` where a file \
                 defines it"
            )),
        })
    }
}
