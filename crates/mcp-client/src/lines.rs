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
