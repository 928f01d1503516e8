//! Results as text, written straight into the buffer that is sent.

use axum::http::StatusCode;
use serde::Serialize;

use super::era::Era;

/// A whole answer. The status matters over HTTP only, and only when nothing was said before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) text: Vec<u8>,
}

impl From<Vec<u8>> for Answer {
    fn from(text: Vec<u8>) -> Self {
        Self { status: StatusCode::OK, text }
    }
}

/// Begins a result. Its members follow, each but the last with a comma after it.
pub(crate) fn begin(id: &str, era: Era, capacity: usize) -> Vec<u8> {
    let mut out = head(id, capacity);
    if era.is_modern() {
        out.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    out
}

/// As [`begin`], for a result of the stateless era that is of another type.
pub(crate) fn begin_as(id: &str, result_type: &str, capacity: usize) -> Vec<u8> {
    let mut out = head(id, capacity);
    out.extend_from_slice(format!("\"resultType\":\"{result_type}\",").as_bytes());
    out
}

fn head(id: &str, capacity: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(capacity + id.len());
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b",\"result\":{");
    out
}

pub(crate) fn end(mut out: Vec<u8>) -> Vec<u8> {
    out.extend_from_slice(b"}}");
    out
}

pub(crate) fn write_json<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let start = out.len();
    if let Err(error) = serde_json::to_writer(&mut *out, value) {
        // Only a map with keys that are no strings can get here; the answer stays JSON all the same.
        out.truncate(start);
        out.extend_from_slice(b"null");
        tracing::error!(%error, "a part of an answer could not be written");
    }
}
