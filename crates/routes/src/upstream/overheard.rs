//! What a server says that is only looked at.

use std::sync::{Mutex, PoisonError};

use aegis_core::redact;
use aegis_mcp_client::Handler;

use super::{World, definition};

/// So much of it is told.
const LONGEST: usize = 200;

/// Remembers what came first where MCP should be spoken.
#[derive(Debug, Default)]
pub(super) struct Overheard(Mutex<Option<String>>);

impl Overheard {
    /// For the end of the reason why it does not work.
    pub(super) fn told(&self, world: &World) -> String {
        let first = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = |text: String| {
            let text = definition::shown(&definition::plain(&world.redacted(&text)), LONGEST);
            format!("; it wrote what is no MCP: {}", redact::message(text.trim()))
        };
        first.map(shown).unwrap_or_default()
    }
}

impl Handler for Overheard {
    fn stray(&self, text: &str) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| text.to_owned());
    }
}
