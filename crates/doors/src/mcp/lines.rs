//! Lines of bounded length from a pipe.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

pub(crate) struct Lines<R> {
    input: BufReader<R>,
    longest: usize,
    /// What has come of the current line.
    line: Vec<u8>,
    /// The current line is too long; what comes of it is dropped.
    skipping: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Without its line break.
    Whole(Vec<u8>),
    TooLong,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R, longest: usize) -> Self {
        Self { input: BufReader::with_capacity(64 * 1024, input), longest, line: Vec::new(), skipping: false }
    }

    /// The next line that is not blank, or nothing at the end. Loses nothing when dropped before it is done.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let chunk = self.input.fill_buf().await?;
            let (taken, ended) = match chunk.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (chunk.len(), chunk.is_empty()),
            };
            let text = chunk[..taken].strip_suffix(b"\n").unwrap_or(&chunk[..taken]);
            if self.skipping || self.line.len() + text.len() > self.longest {
                self.skipping = true;
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(text);
            }
            self.input.consume(taken);
            if !ended {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if std::mem::take(&mut self.skipping) {
                return Ok(Some(Line::TooLong));
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(Line::Whole(line)));
            }
            if taken == 0 {
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], longest: usize) -> Vec<Line> {
        let mut lines = Lines::new(input, longest);
        let mut all = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            all.push(line);
        }
        all
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.into())
    }

    #[tokio::test]
    async fn lines_are_split_and_blank_ones_skipped() {
        assert_eq!(lines(b"a\n\n  \r\nb\r\nc", 10).await, [whole("a"), whole("b\r"), whole("c")]);
        assert_eq!(lines(b"", 10).await, []);
        assert_eq!(lines(b"\n\n", 10).await, []);
    }

    #[tokio::test]
    async fn what_is_too_long_is_dropped_and_the_rest_goes_on() {
        let mut input = vec![b'x'; 300_000];
        input.extend_from_slice(b"\nshort\n");
        assert_eq!(lines(&input, 100).await, [Line::TooLong, whole("short")]);
        assert_eq!(lines(b"1234567890", 10).await, [whole("1234567890")]);
        assert_eq!(lines(b"12345678901", 10).await, [Line::TooLong]);
    }

    #[tokio::test]
    async fn a_line_may_come_in_pieces() {
        let (mut near, far) = tokio::io::duplex(4);
        let writing = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut near, b"hello world\nend").await.unwrap();
        });
        let mut lines = Lines::new(far, 100);
        assert_eq!(lines.next().await.unwrap(), Some(whole("hello world")));
        assert_eq!(lines.next().await.unwrap(), Some(whole("end")));
        assert_eq!(lines.next().await.unwrap(), None);
        writing.await.unwrap();
    }
}
