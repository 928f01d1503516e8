//! Reading an answer: decompressed as it comes, never past its limit.

use std::{io, pin::Pin};

use async_compression::tokio::bufread::{BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder};
use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyDataStream;
use hyper::body::{Body as _, Incoming};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio_util::io::StreamReader;

use super::{
    error::FetchError,
    fetch::{Deadline, innermost},
    request::WebAddress,
    text::{self, ContentType},
};

/// How much is read at a time. Between two reads the deadline and other tasks get their turn.
const PIECE: usize = 16 << 10;
/// `Content-Encoding` may name several; honest servers name one.
const MOST_ENCODINGS: usize = 2;

/// An answer whose head has come.
#[derive(Debug)]
pub struct Reply {
    address: WebAddress,
    status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    deadline: Deadline,
}

/// What to do with a body that is larger than wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Up to so many bytes, or not at all.
    Whole(u64),
    /// The first so many bytes.
    First(u64),
}

#[derive(Debug, Default)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// There was more.
    pub truncated: bool,
}

impl Body {
    /// The body as text; `None` when its bytes are text in no encoding.
    pub fn text(&self, content_type: Option<&ContentType>) -> Option<String> {
        (!text::looks_binary(&self.bytes, content_type))
            .then(|| text::decode(&self.bytes, content_type, !self.truncated))
    }

    /// By its type, or by its first bytes when the server gives none.
    pub fn is_html(&self, content_type: Option<&ContentType>) -> bool {
        content_type.map_or_else(|| text::looks_like_html(&self.bytes), ContentType::is_html)
    }
}

impl Reply {
    pub(super) fn new(address: WebAddress, response: http::Response<Incoming>, deadline: Deadline) -> Self {
        let (head, body) = response.into_parts();
        Self { address, status: head.status, headers: head.headers, body, deadline }
    }

    /// Where the answer came from, after redirects.
    pub fn address(&self) -> &WebAddress {
        &self.address
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The address of a redirect that was not to be followed.
    pub fn location(&self) -> Option<WebAddress> {
        if !self.status.is_redirection() {
            return None;
        }
        let location = self.headers.get(header::LOCATION)?.to_str().ok()?;
        WebAddress::from_url(self.address.url().join(location).ok()?).ok()
    }

    pub fn content_type(&self) -> Option<ContentType> {
        self.headers.get(header::CONTENT_TYPE)?.to_str().ok().map(ContentType::parse)
    }

    /// The number of bytes on the wire, when the server says so.
    pub fn declared_size(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    pub async fn read(self, limit: Limit) -> Result<Body, FetchError> {
        let encodings = encodings(&self.headers)?;
        if let (Limit::Whole(most), Some(size), []) = (limit, self.declared_size(), encodings.as_slice())
            && size > most
        {
            return Err(FetchError::TooLarge { limit: most });
        }
        let pieces = BodyDataStream::new(self.body).map_err(io::Error::other);
        self.deadline.keep(read(pieces, &encodings, limit)).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Gzip,
    Deflate,
    Brotli,
}

fn encodings(headers: &HeaderMap) -> Result<Vec<Encoding>, FetchError> {
    let mut found = Vec::new();
    for value in headers.get_all(header::CONTENT_ENCODING) {
        let text = value.to_str().map_err(|_| FetchError::Encoding("?".into()))?;
        for name in text.split(',').map(str::trim) {
            match name.to_ascii_lowercase().as_str() {
                "" | "identity" => {}
                "gzip" | "x-gzip" => found.push(Encoding::Gzip),
                "deflate" => found.push(Encoding::Deflate),
                "br" => found.push(Encoding::Brotli),
                _ => return Err(FetchError::Encoding(name.chars().take(32).collect())),
            }
        }
    }
    if found.len() > MOST_ENCODINGS { Err(FetchError::Encoding("several at once".into())) } else { Ok(found) }
}

type Bytestream<'a> = Pin<Box<dyn AsyncBufRead + Send + 'a>>;

async fn read(
    pieces: impl Stream<Item = io::Result<Bytes>> + Send,
    encodings: &[Encoding],
    limit: Limit,
) -> Result<Body, FetchError> {
    let broken = |error: io::Error| FetchError::BrokenBody(innermost(&error));
    let mut reader: Bytestream<'_> = Box::pin(StreamReader::new(Box::pin(pieces)));
    for encoding in encodings.iter().rev() {
        reader = decoded(reader, *encoding).await.map_err(broken)?;
    }
    let most = match limit {
        Limit::Whole(most) | Limit::First(most) => usize::try_from(most).unwrap_or(usize::MAX),
    };
    let mut body = Body::default();
    loop {
        body.bytes.reserve(PIECE);
        let mut piece = (&mut reader).take(PIECE as u64);
        if piece.read_buf(&mut body.bytes).await.map_err(broken)? == 0 {
            return Ok(body);
        }
        if body.bytes.len() > most {
            if let Limit::Whole(limit) = limit {
                return Err(FetchError::TooLarge { limit });
            }
            body.bytes.truncate(most);
            body.truncated = true;
            return Ok(body);
        }
        // A decoder with its input at hand is always ready; without this the deadline would never be looked at.
        tokio::task::consume_budget().await;
    }
}

async fn decoded(mut reader: Bytestream<'_>, encoding: Encoding) -> io::Result<Bytestream<'_>> {
    // An empty body is no valid stream of any encoding, and servers send it all the same.
    let start = reader.fill_buf().await?;
    if start.is_empty() {
        return Ok(reader);
    }
    // By the book `deflate` has a zlib head; many send the bare stream.
    let zlib = start[0] & 0x0f == 8
        && start
            .get(1)
            .is_none_or(|second| (u16::from(start[0]) << 8 | u16::from(*second)).is_multiple_of(31));
    fn buffered<'a>(decoder: impl AsyncRead + Send + 'a) -> Bytestream<'a> {
        Box::pin(BufReader::with_capacity(PIECE, decoder))
    }
    Ok(match encoding {
        Encoding::Gzip => {
            let mut decoder = GzipDecoder::new(reader);
            decoder.multiple_members(true);
            buffered(decoder)
        }
        Encoding::Deflate if zlib => buffered(ZlibDecoder::new(reader)),
        Encoding::Deflate => buffered(DeflateDecoder::new(reader)),
        Encoding::Brotli => buffered(BrotliDecoder::new(reader)),
    })
}
