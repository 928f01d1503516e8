//! What is asked for.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{id::CallId, trace::TraceContext};

/// One request to run one tool, as a door received it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    pub id: CallId,
    /// The name as the caller wrote it; an alias is resolved by the plane.
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// What the caller signed, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The trace that the caller is in, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// A caller's signature under its call. The record keeps it: only who holds the session's key can have asked for this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// Over the bytes that were signed, in hexadecimal. In the record it is keyed where the arguments' digest is.
    pub message_sha256: String,
    /// Base64, as the caller sent it.
    pub signature: String,
}

impl Call {
    pub fn new(tool: impl Into<String>, arguments: Map<String, Value>) -> Self {
        Self { id: CallId::fresh(), tool: tool.into(), arguments, proof: None, trace: None }
    }

    #[must_use]
    pub fn traced(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    #[must_use]
    pub fn signed(mut self, proof: Proof) -> Self {
        self.proof = Some(proof);
        self
    }
}

/// SHA-256 over the arguments with sorted keys and no white space: two calls have the same digest exactly when
/// they ask for the same thing.
pub fn digest(arguments: &Map<String, Value>) -> String {
    struct Sink(Sha256);
    impl std::io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut sink = Sink(Sha256::new());
    // Neither the sink nor a JSON map with string keys can fail.
    let _ = serde_json::to_writer(&mut sink, &SortedMap(arguments));
    hex(&sink.0.finalize())
}

/// An object with its members in order, whatever order the map keeps: any crate of the build can turn on a feature of
/// `serde_json` that makes it keep the order of insertion.
struct SortedMap<'a>(&'a Map<String, Value>);

impl Serialize for SortedMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members: Vec<_> = self.0.iter().collect();
        members.sort_unstable_by_key(|(name, _)| name.as_str());
        serializer.collect_map(members.into_iter().map(|(name, value)| (name, Sorted(value))))
    }
}

struct Sorted<'a>(&'a Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(members) => SortedMap(members).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(Sorted)),
            other => other.serialize(serializer),
        }
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn digest_ignores_key_order_and_sees_values() {
        let object = |value: Value| value.as_object().cloned().unwrap_or_default();
        let one: Value = serde_json::from_str(r#"{"b":1,"a":{"y":2,"x":3}}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":{"x":3,"y":2},"b":1}"#).unwrap();
        assert_eq!(digest(&object(one)), digest(&object(other)));
        assert_ne!(digest(&object(json!({"a": 1}))), digest(&object(json!({"a": "1"}))));
    }
}
