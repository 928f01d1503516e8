//! Output as it comes, for whoever waits. The answer has the end of it anyway, so nothing waits for a slow listener.

use std::{collections::VecDeque, time::Duration};

use aegis_core::progress::{Listener, Progress};
use encoding_rs::{CoderResult, Decoder, UTF_8};
use tokio::time::Instant;

/// Between two words. A command that prints without end would otherwise do nothing but talk.
const PAUSE: Duration = Duration::from_millis(100);
/// Of what came since the last word, so much is told: the end.
const LONGEST_WORD: usize = 8 << 10;

pub(super) struct Live<'a> {
    listener: &'a dyn Listener,
    bytes: u64,
    /// As they came: most of what a command floods is never told, and need not be read as text.
    waiting: VecDeque<Piece>,
    held: usize,
    next: Instant,
    stdout: Decoder,
    stderr: Decoder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

struct Piece {
    stream: Stream,
    bytes: Vec<u8>,
}

impl<'a> Live<'a> {
    pub(super) fn new(listener: &'a dyn Listener) -> Self {
        let decoder = || UTF_8.new_decoder_without_bom_handling();
        Self {
            listener,
            bytes: 0,
            waiting: VecDeque::new(),
            held: 0,
            next: Instant::now(),
            stdout: decoder(),
            stderr: decoder(),
        }
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(LONGEST_WORD)..];
        match self.waiting.back_mut() {
            Some(last) if last.stream == stream => last.bytes.extend_from_slice(bytes),
            _ => self.waiting.push_back(Piece { stream, bytes: bytes.to_vec() }),
        }
        self.held += bytes.len();
        // Not at every word: what is in front moves when something of it goes.
        if self.held > 2 * LONGEST_WORD {
            self.shorten();
        }
        if Instant::now() >= self.next {
            self.flush();
        }
    }

    fn shorten(&mut self) {
        while let Some(over) = self.held.checked_sub(LONGEST_WORD).filter(|over| *over > 0) {
            let Some(first) = self.waiting.front_mut() else { break };
            let gone = first.bytes.len().min(over);
            first.bytes.drain(..gone);
            self.held -= gone;
            if first.bytes.is_empty() {
                self.waiting.pop_front();
            }
        }
    }

    /// When what waits is to be told, if anything does.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.next)
    }

    pub(super) fn flush(&mut self) {
        self.shorten();
        let mut text = String::new();
        for Piece { stream, bytes } in std::mem::take(&mut self.waiting) {
            let decoder = match stream {
                Stream::Stdout => &mut self.stdout,
                Stream::Stderr => &mut self.stderr,
            };
            decode(decoder, &bytes, &mut text);
        }
        self.held = 0;
        if text.is_empty() {
            return;
        }
        self.next = Instant::now() + PAUSE;
        // What is no text takes more room as what it is shown as.
        let over = text.ceil_char_boundary(text.len().saturating_sub(LONGEST_WORD));
        text.drain(..over);
        self.listener.progress(Progress { progress: self.bytes as f64, total: None, message: Some(text) });
    }
}

fn decode(decoder: &mut Decoder, mut bytes: &[u8], text: &mut String) {
    loop {
        text.reserve(bytes.len() + 16);
        let (result, read, _) = decoder.decode_to_string(bytes, text, false);
        bytes = &bytes[read..];
        if result == CoderResult::InputEmpty {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use aegis_core::Event;

    use super::*;

    #[derive(Default)]
    struct Heard(Mutex<Vec<Progress>>);

    impl Listener for Heard {
        fn progress(&self, progress: Progress) {
            self.0.lock().unwrap().push(progress);
        }

        fn event(&self, _: Event) {}
    }

    #[tokio::test(start_paused = true)]
    async fn words_are_few_and_hold_whole_characters() {
        let heard = Heard::default();
        let mut live = Live::new(&heard);
        live.push(Stream::Stdout, b"one \xc3");
        live.push(Stream::Stdout, b"\xa4 two");
        live.push(Stream::Stderr, b"\xff");
        assert!(live.due().is_some());
        live.flush();
        live.flush();
        let told = heard.0.lock().unwrap();
        let texts: Vec<&str> = told.iter().filter_map(|word| word.message.as_deref()).collect();
        assert_eq!(texts, ["one ", "ä two\u{fffd}"]);
        assert!(told[0].progress < told[1].progress);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_told_by_its_end() {
        let heard = Heard::default();
        let mut live = Live::new(&heard);
        for _ in 0..1000 {
            live.push(Stream::Stdout, &[b'x'; 65536]);
        }
        live.flush();
        let told = heard.0.lock().unwrap();
        assert_eq!(told.len(), 2);
        assert!(told.iter().all(|word| word.message.as_ref().is_some_and(|text| text.len() <= LONGEST_WORD)));
    }
}
