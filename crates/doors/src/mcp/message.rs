//! One JSON-RPC message, read without copying: parts stay slices of the text until somebody needs them.

use std::borrow::Cow;

use aegis_core::trace::TraceContext;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::fault::Fault;

/// The longest id that is echoed.
const LONGEST_ID: usize = 1024;

#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request(Request<'a>),
    Notification {
        method: Cow<'a, str>,
        params: Params<'a>,
    },
    /// An answer to a question of ours.
    Response {
        id: Option<Id<'a>>,
        /// Missing where the answer is an error.
        result: Option<&'a RawValue>,
    },
}

#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) id: Id<'a>,
    pub(crate) method: Cow<'a, str>,
    pub(crate) params: Params<'a>,
}

/// A string or a number, kept as it was written so that it is echoed exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    fn parse(raw: &'a RawValue) -> Result<Self, Fault> {
        let text = raw.get();
        if text.len() > LONGEST_ID {
            return Err(Fault::invalid_request(format!("`id` is longer than {LONGEST_ID} bytes")));
        }
        match text.as_bytes() {
            [b'"' | b'-' | b'0'..=b'9', ..] => Ok(Self(text)),
            _ => Err(Fault::invalid_request("`id` must be a string or a number")),
        }
    }

    pub(crate) fn as_str(self) -> &'a str {
        self.0
    }

    /// Equal exactly for ids that a client means to be the same: `1` is not `"1"`, but `"a"` is `"\u0061"`.
    pub(crate) fn key(self) -> String {
        if self.0.contains('\\')
            && let Ok(plain) = serde_json::from_str::<String>(self.0)
        {
            return serde_json::Value::String(plain).to_string();
        }
        self.0.to_owned()
    }
}

/// A message that can't be worked on, with its id if that much could be read.
#[derive(Debug)]
pub(crate) struct Unreadable<'a> {
    pub(crate) id: Option<Id<'a>>,
    pub(crate) fault: Fault,
}

impl Unreadable<'_> {
    pub(crate) fn render(&self) -> Vec<u8> {
        self.fault.render(self.id.map(Id::as_str))
    }
}

/// The members of `params` that this server looks at, whatever the method; others are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Params<'a> {
    #[serde(borrow, rename = "_meta", deserialize_with = "present")]
    raw_meta: Option<&'a RawValue>,
    #[serde(skip)]
    pub(crate) meta: Meta<'a>,
    /// Why nothing else is here: `params` was there and could not be read.
    #[serde(skip)]
    pub(crate) flaw: Option<String>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) name: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) uri: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) cursor: Option<&'a RawValue>,
    #[serde(borrow, rename = "protocolVersion", deserialize_with = "present")]
    pub(crate) protocol_version: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestId", deserialize_with = "present")]
    pub(crate) request_id: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) capabilities: Option<&'a RawValue>,
    /// What a request repeats that was answered with questions, and the answers to those.
    #[serde(borrow, rename = "requestState", deserialize_with = "present")]
    pub(crate) request_state: Option<&'a RawValue>,
    #[serde(borrow, rename = "inputResponses", deserialize_with = "present")]
    pub(crate) input_responses: Option<&'a RawValue>,
    #[serde(borrow, rename = "taskId", deserialize_with = "present")]
    pub(crate) task_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "ref", deserialize_with = "present")]
    pub(crate) reference: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) argument: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) context: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) level: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    pub(crate) notifications: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta<'a> {
    /// A request that has this claims to be of the stateless era.
    #[serde(borrow, rename = "io.modelcontextprotocol/protocolVersion", deserialize_with = "present")]
    pub(crate) version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities", deserialize_with = "present")]
    pub(crate) capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel", deserialize_with = "present")]
    pub(crate) log_level: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken", deserialize_with = "present")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "present")]
    tracestate: Option<&'a RawValue>,
}

impl Meta<'_> {
    /// The trace that the client is in.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let state = self.tracestate.and_then(string);
        TraceContext::parse(&self.traceparent.and_then(string)?, state.as_deref())
    }
}

impl<'a> Params<'a> {
    fn parse(raw: Option<&'a RawValue>) -> Self {
        let Some(raw) = raw.filter(|raw| raw.get() != "null") else { return Self::default() };
        let mut params = match object::<Self>(raw, "params") {
            Ok(params) => params,
            Err(flaw) => return Self { flaw: Some(flaw), ..Self::default() },
        };
        if let Some(raw) = params.raw_meta {
            match object(raw, "params._meta") {
                Ok(meta) => params.meta = meta,
                Err(flaw) => params.flaw = Some(flaw),
            }
        }
        params
    }

    /// The id that a `notifications/cancelled` names.
    pub(crate) fn cancelled(&self) -> Option<Id<'a>> {
        Id::parse(self.request_id?).ok()
    }

    /// Under which name the client wants to hear of progress, as it was written.
    pub(crate) fn progress_token(&self) -> Option<&'a str> {
        Id::parse(self.meta.progress_token?).ok().map(Id::as_str)
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// `null` is a value too: whether a member is there decides, not what it holds.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Derived structs would also read an array, by position.
fn object<'a, T: Deserialize<'a>>(raw: &'a RawValue, what: &str) -> Result<T, String> {
    if !raw.get().starts_with('{') {
        return Err(format!("`{what}` must be an object"));
    }
    serde_json::from_str(raw.get()).map_err(|error| format!("`{what}`: {error}"))
}

/// The text of a JSON string, or nothing if it is something else.
pub(crate) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw.get()).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

impl<'a> Message<'a> {
    /// Reads one message. `text` must not be an array; see [`batch`].
    pub(crate) fn parse(text: &'a str) -> Result<Self, Unreadable<'a>> {
        let lost = |fault| Unreadable { id: None, fault };
        let unreadable = |error: serde_json::Error| match error.classify() {
            serde_json::error::Category::Data => lost(Fault::invalid_request(error.to_string())),
            _ => lost(Fault::unparsable(format!("the message is no JSON: {error}"))),
        };
        if !text.trim_start().starts_with('{') {
            serde_json::from_str::<&RawValue>(text).map_err(unreadable)?;
            return Err(lost(Fault::invalid_request("a message must be an object")));
        }
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(unreadable)?;
        let id = envelope.id.map(Id::parse).transpose().map_err(lost)?;
        let broken = |message: &str| Unreadable { id, fault: Fault::invalid_request(message) };
        if envelope.jsonrpc.and_then(string).as_deref() != Some("2.0") {
            return Err(broken("`jsonrpc` must be \"2.0\""));
        }
        let Some(method) = envelope.method else {
            return match (envelope.result, envelope.error) {
                (None, None) => Err(broken("`method` is missing")),
                (result, error) => Ok(Self::Response { id, result: result.filter(|_| error.is_none()) }),
            };
        };
        let Some(method) = string(method) else { return Err(broken("`method` must be a string")) };
        let params = Params::parse(envelope.params);
        Ok(match id {
            Some(id) => Self::Request(Request { id, method, params }),
            None => Self::Notification { method, params },
        })
    }
}

/// Whether the text is an array of messages.
pub(crate) fn is_batch(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

/// The members of an array of messages, unread.
pub(crate) fn batch(text: &str) -> Result<Vec<&RawValue>, Fault> {
    serde_json::from_str(text).map_err(|error| Fault::unparsable(format!("the message is no JSON: {error}")))
}

/// JSON is UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| {
        Fault::unparsable(format!("the message is not UTF-8 at byte {}", error.valid_up_to()))
    })
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
