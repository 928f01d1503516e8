//! Lines off a pipe, never longer than they may be.

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// How many times over its limit a line may be before the rest is not even thrown away.
const MOST_WASTE: usize = 16;
const PIECE: usize = 64 << 10;
/// As much of a line that is too long is kept.
const HEAD: usize = 512;
/// A buffer that one large message made large is given back.
const KEPT: usize = 1 << 20;

pub(crate) struct Lines<R> {
    input: R,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line feed.
    searched: usize,
    /// Length of the present line, so long as it is being thrown away.
    wasted: Option<usize>,
    limit: usize,
}

pub(crate) enum Line {
    Whole(BytesMut),
    /// Too long; this is its beginning. The rest is gone.
    Head(Vec<u8>),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R, limit: usize) -> Self {
        Self { input, buffer: BytesMut::new(), searched: 0, wasted: None, limit }
    }

    /// The next line, without its end. `None` at the end of the input. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> std::io::Result<Option<Line>> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                let end = self.searched + at;
                self.searched = 0;
                let mut line = self.buffer.split_to(end);
                self.buffer.advance(1);
                if self.wasted.take().is_some() {
                    continue;
                }
                if line.len() > self.limit {
                    return Ok(Some(Line::Head(line[..line.len().min(HEAD)].to_vec())));
                }
                if line.last() == Some(&b'\r') {
                    line.truncate(line.len() - 1);
                }
                return Ok(Some(Line::Whole(line)));
            }
            self.searched = self.buffer.len();
            if let Some(wasted) = &mut self.wasted {
                *wasted += self.buffer.len();
                self.buffer.clear();
                self.searched = 0;
                if *wasted > self.limit.saturating_mul(MOST_WASTE) {
                    // Whoever reads on all the same hears of it again only after as much more.
                    *wasted = 0;
                    return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "a line without end"));
                }
            } else if self.buffer.len() > self.limit {
                let head = self.buffer[..self.buffer.len().min(HEAD)].to_vec();
                self.wasted = Some(self.buffer.len());
                self.buffer = BytesMut::new();
                self.searched = 0;
                return Ok(Some(Line::Head(head)));
            }
            if self.buffer.is_empty() && self.buffer.capacity() > KEPT {
                self.buffer = BytesMut::new();
            }
            self.buffer.reserve(PIECE);
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                // What has no end was not finished.
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_without_end_is_told_of_once_for_so_much_of_it() {
        let limit = 100;
        let mut input = vec![b'x'; 20 * PIECE];
        input.extend_from_slice(b"\nnext\n");
        let mut lines = Lines::new(&input[..], limit);
        assert!(matches!(lines.next().await, Ok(Some(Line::Head(head))) if head.len() == HEAD));
        let mut told = 0;
        let after = loop {
            match lines.next().await {
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => told += 1,
                other => break other.unwrap(),
            }
            assert!(told <= input.len() / (MOST_WASTE * limit), "it is told without an end");
        };
        assert!(matches!(after, Some(Line::Whole(line)) if line == "next"));
        assert!(lines.next().await.unwrap().is_none());
    }
}
