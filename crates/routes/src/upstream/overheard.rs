//! What a server says that is only looked at.

use std::sync::{Mutex, MutexGuard, PoisonError};

use aegis_mcp_client::Handler;

use super::{World, condition::words};

/// Remembers what is told with the reason why a server does not work.
#[derive(Debug, Default)]
pub(super) struct Overheard(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    /// What came first where MCP should be spoken.
    stray: Option<String>,
    /// What came last on its standard error.
    last: Option<String>,
}

impl Overheard {
    /// For the end of the reason why it does not work.
    pub(super) fn told(&self, world: &World) -> String {
        let (stray, last) = {
            let lines = self.lines();
            (lines.stray.clone(), lines.last.clone())
        };
        let shown = |text: Option<String>, what: &str| {
            let words = text.and_then(|text| words(&world.redacted(&text)));
            words.map(|words| format!("; {what}: {words}")).unwrap_or_default()
        };
        shown(stray, "it wrote what is no MCP") + &shown(last, "the last it wrote")
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Overheard {
    fn stray(&self, text: &str) {
        self.lines().stray.get_or_insert_with(|| text.to_owned());
    }

    fn stderr(&self, line: &str) {
        if !line.trim().is_empty() {
            self.lines().last = Some(line.to_owned());
        }
    }
}
