//! What a command puts out: the last part of both streams is kept, whatever their length.

use std::collections::VecDeque;

/// The end of a stream. Holds at most `limit` bytes.
#[derive(Debug)]
pub(super) struct Tail {
    kept: VecDeque<u8>,
    limit: usize,
    total: u64,
}

/// Both streams as text, within the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    /// Bytes that each stream had, kept or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    /// Something in front is missing.
    pub truncated: bool,
    /// There were bytes that are no UTF-8; each sequence of them is shown as U+FFFD.
    pub replaced: bool,
}

impl Tail {
    pub(super) fn new(limit: usize) -> Self {
        Self { kept: VecDeque::new(), limit, total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(self.limit)..];
        let over = (self.kept.len() + bytes.len()).saturating_sub(self.limit);
        self.kept.drain(..over);
        self.kept.extend(bytes);
    }

    /// The kept bytes as text. Of a character that the cut went through, nothing is left.
    fn into_text(self) -> (String, bool) {
        let cut = self.total > self.kept.len() as u64;
        let bytes: Vec<u8> = self.kept.into();
        let rest =
            if cut { bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count() } else { 0 };
        match String::from_utf8_lossy(&bytes[rest..]) {
            std::borrow::Cow::Borrowed(text) => (text.to_owned(), false),
            std::borrow::Cow::Owned(text) => (text, true),
        }
    }
}

impl Output {
    /// Half of the limit for each stream, and what one does not need for the other.
    pub(super) fn of(stdout: Tail, stderr: Tail, limit: usize) -> Self {
        let (stdout_bytes, stderr_bytes) = (stdout.total, stderr.total);
        let lost = stdout_bytes > stdout.kept.len() as u64 || stderr_bytes > stderr.kept.len() as u64;
        let ((stdout, odd_out), (stderr, odd_err)) = (stdout.into_text(), stderr.into_text());
        let half = limit / 2;
        let for_stdout = limit - stderr.len().min(half.max(limit.saturating_sub(stdout.len())));
        let for_stderr = limit - stdout.len().min(for_stdout);
        let (out, err) = (end_of(&stdout, for_stdout), end_of(&stderr, for_stderr));
        Self {
            truncated: lost || out.len() < stdout.len() || err.len() < stderr.len(),
            stdout: out.to_owned(),
            stderr: err.to_owned(),
            stdout_bytes,
            stderr_bytes,
            replaced: odd_out || odd_err,
        }
    }
}

/// The last `most` bytes, or fewer where the cut would go through a character.
fn end_of(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tail(limit: usize, bytes: &[u8]) -> Tail {
        let mut tail = Tail::new(limit);
        bytes.chunks(7).for_each(|chunk| tail.push(chunk));
        tail
    }

    fn output(limit: usize, stdout: &[u8], stderr: &[u8]) -> Output {
        Output::of(tail(limit, stdout), tail(limit, stderr), limit)
    }

    #[test]
    fn what_fits_is_whole() {
        let whole = output(10, b"12345", b"67890");
        assert_eq!(
            (whole.stdout.as_str(), whole.stderr.as_str(), whole.truncated),
            ("12345", "67890", false)
        );
    }

    #[test]
    fn one_stream_gets_what_the_other_leaves() {
        let cut = output(10, b"abcdefghijkl", b"xyz");
        assert_eq!((cut.stdout.as_str(), cut.stderr.as_str(), cut.truncated), ("fghijkl", "xyz", true));
        let cut = output(10, b"ab", b"0123456789");
        assert_eq!((cut.stdout.as_str(), cut.stderr.as_str()), ("ab", "23456789"));
        let both = output(10, b"abcdefghijkl", b"0123456789");
        assert_eq!((both.stdout.as_str(), both.stderr.as_str()), ("hijkl", "56789"));
        assert_eq!((both.stdout_bytes, both.stderr_bytes), (12, 10));
    }

    #[test]
    fn cuts_go_between_characters() {
        let cut = output(5, "äöü".as_bytes(), b"");
        assert_eq!((cut.stdout.as_str(), cut.truncated, cut.replaced), ("öü", true, false));
        let cut = output(6, "€€€".as_bytes(), b"!");
        assert_eq!((cut.stdout.as_str(), cut.replaced), ("€", false));
    }

    #[test]
    fn other_bytes_are_shown_and_take_no_more_room() {
        let odd = output(100, b"a\xff\xfeb", b"");
        assert_eq!((odd.stdout.as_str(), odd.replaced, odd.truncated), ("a\u{fffd}\u{fffd}b", true, false));
        let many = output(30, &[0xff; 30], b"");
        assert!(many.stdout.len() <= 30 && many.truncated);
    }

    proptest! {
        #[test]
        fn never_more_than_the_limit_and_always_the_end(
            limit in 2_usize..64,
            stdout in "[a-zä€\\n]{0,60}",
            stderr in "[a-zä€\\n]{0,60}",
        ) {
            let output = output(limit, stdout.as_bytes(), stderr.as_bytes());
            prop_assert!(output.stdout.len() + output.stderr.len() <= limit);
            prop_assert!(stdout.ends_with(&output.stdout) && stderr.ends_with(&output.stderr));
            prop_assert!(!output.replaced);
            prop_assert_eq!(output.truncated, stdout.len() + stderr.len() > limit);
            // Nothing is given away but what a character across a cut costs.
            if output.truncated {
                prop_assert!(output.stdout.len() + output.stderr.len() + 6 >= limit);
            }
        }

        #[test]
        fn any_bytes_make_a_text(bytes in prop::collection::vec(any::<u8>(), 0..300), limit in 1_usize..100) {
            let output = output(limit, &bytes, &bytes);
            prop_assert!(output.stdout.len() + output.stderr.len() <= limit);
        }
    }
}
