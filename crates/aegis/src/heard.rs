//! What a call says while it runs, on the terminal.

use std::{
    io::Write as _,
    sync::atomic::{AtomicUsize, Ordering},
};

use aegis_core::{
    Event,
    progress::{Listener, Progress},
};

use crate::output::harmless;

static TOLD: AtomicUsize = AtomicUsize::new(0);

/// How many bytes of what its call said this command has shown. Words may be lost on the way, and are not counted then.
pub fn told() -> usize {
    TOLD.load(Ordering::Relaxed)
}

/// Writes to the standard error, so that the answer stays alone on the standard output.
#[derive(Debug, Clone, Copy)]
pub struct Terminal;

impl Listener for Terminal {
    fn progress(&self, progress: Progress) {
        let Some(message) = &progress.message else { return };
        TOLD.fetch_add(message.len(), Ordering::Relaxed);
        let mut out = std::io::stderr().lock();
        // Line by line, since harmless text has no line breaks. What can't be written is no loss.
        for line in message.split_inclusive('\n') {
            let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
            let text = text.strip_suffix('\r').unwrap_or(text);
            let cells: Vec<_> = text.split('\t').map(harmless).collect();
            let _ = write!(out, "{}{end}", cells.join("\t"));
        }
        // A message of a tool that is no output has no line of its own.
        if progress.total.is_some() && !message.ends_with('\n') {
            let _ = writeln!(out);
        }
        let _ = out.flush();
    }

    fn event(&self, _: Event) {}
}
