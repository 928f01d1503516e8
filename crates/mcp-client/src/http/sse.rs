//! Server-sent events, out of a body, never larger than they may be.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;

use super::Body;
use crate::error::Error;

/// The pause before a stream is opened anew, whatever the server wishes.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct Event {
    /// Empty for an ordinary message.
    pub(crate) name: String,
    pub(crate) data: String,
}

pub(crate) struct Events {
    body: Body,
    buffer: BytesMut,
    searched: usize,
    /// The last line ended in a carriage return; a line feed now belongs to it.
    after_return: bool,
    event: Event,
    /// Whether the event under way has any data line; an empty one counts.
    has_data: bool,
    limit: usize,
    /// The last event that can be asked for again.
    pub(crate) last_id: Option<String>,
    pub(crate) retry: Option<Duration>,
}

impl Events {
    pub(crate) fn new(body: Body, limit: usize) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            searched: 0,
            after_return: false,
            event: Event::default(),
            has_data: false,
            limit,
            last_id: None,
            retry: None,
        }
    }

    /// The next event that has data. `None` when the stream ends, `Err` when it breaks off.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            while let Some(line) = self.line() {
                if let Some(event) = self.field(&line)? {
                    return Ok(Some(event));
                }
            }
            if self.buffer.len() > self.limit {
                return Err(Error::TooLarge { limit: self.limit });
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => {
                    return Err(Error::Closed(format!("its stream broke off ({error})").into()));
                }
            }
        }
    }

    fn line(&mut self) -> Option<Bytes> {
        if self.after_return && self.buffer.first() == Some(&b'\n') {
            self.buffer.advance(1);
        }
        if !self.buffer.is_empty() {
            self.after_return = false;
        }
        let found = memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]);
        let Some(at) = found else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + at);
        self.after_return = self.buffer[0] == b'\r';
        self.buffer.advance(1);
        self.searched = 0;
        Some(line.freeze())
    }

    fn field(&mut self, line: &[u8]) -> Result<Option<Event>, Error> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            // An event without content only carries its id.
            return Ok(if std::mem::take(&mut self.has_data) && !event.data.is_empty() {
                Some(event)
            } else {
                None
            });
        }
        let text = std::str::from_utf8(line).map_err(|_| Error::protocol("its stream is not UTF-8"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "data" => {
                if self.event.data.len() + value.len() > self.limit {
                    return Err(Error::TooLarge { limit: self.limit });
                }
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            "id" if !value.contains('\0') && value.len() <= 1024 => self.last_id = Some(value.to_owned()),
            "retry" => {
                if let Ok(millis) = value.parse() {
                    self.retry = Some(Duration::from_millis(millis).min(LONGEST_RETRY));
                }
            }
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};

    use super::*;

    fn events(pieces: &[&str], limit: usize) -> Events {
        let frames: Vec<_> = pieces
            .iter()
            .map(|piece| Ok(http_body::Frame::data(Bytes::copy_from_slice(piece.as_bytes()))))
            .collect();
        Events::new(StreamBody::new(futures::stream::iter(frames)).boxed_unsync(), limit)
    }

    #[tokio::test]
    async fn events_are_put_together_however_they_are_cut() {
        let text = ": hello\r\nid: 7\r\nretry: 20\r\ndata: \r\n\r\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata:x\n\nid\n\rdata: y\r\r";
        for size in 1..text.len() {
            let pieces: Vec<&str> =
                text.as_bytes().chunks(size).map(|piece| std::str::from_utf8(piece).unwrap()).collect();
            let mut events = events(&pieces, 1000);
            let first = events.next().await.unwrap().unwrap();
            assert_eq!((first.name.as_str(), first.data.as_str()), ("message", "{\"a\":\n1}"), "{size}");
            assert_eq!(events.last_id.as_deref(), Some("7"));
            assert_eq!(events.retry, Some(Duration::from_millis(20)));
            assert_eq!(events.next().await.unwrap().unwrap().data, "x");
            assert_eq!(events.next().await.unwrap().unwrap().data, "y");
            assert!(events.next().await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused() {
        let long = "x".repeat(600);
        let lines = format!("data: {long}\ndata: {long}\n\n");
        assert!(matches!(events(&[&lines], 1000).next().await, Err(Error::TooLarge { .. })));
        assert!(matches!(events(&[&long, &long], 1000).next().await, Err(Error::TooLarge { .. })));
        let bytes = Full::new(Bytes::from_static(b"data: \xff\n\n"))
            .map_err(|never: std::convert::Infallible| match never {})
            .boxed_unsync();
        assert!(matches!(Events::new(bytes, 100).next().await, Err(Error::Protocol(_))));
    }
}
