//! The last lines of a server's log.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use aegis_core::{Timestamp, upstream::LogLine};

const KEPT: usize = 500;
const LONGEST: usize = 2048;

#[derive(Debug, Default)]
pub(super) struct Logs(Mutex<VecDeque<LogLine>>);

impl Logs {
    pub(super) fn add(&self, text: &str) {
        let text = match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= KEPT {
            lines.pop_front();
        }
        lines.push_back(LogLine { time: Timestamp::now(), text });
    }

    /// The oldest first.
    pub(super) fn last(&self, limit: usize) -> Vec<LogLine> {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().skip(lines.len().saturating_sub(limit)).cloned().collect()
    }
}
