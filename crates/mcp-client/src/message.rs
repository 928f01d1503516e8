//! JSON-RPC messages: what comes is taken apart without being copied, what goes is written once.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{error::RpcError, version::Version};

/// Messages in one batch; only 2025-03-26 has them at all.
const LARGEST_BATCH: usize = 1024;

#[derive(Debug)]
pub(crate) enum Message<'a> {
    /// An answer to the request of that id.
    Answer {
        id: u64,
        result: Result<&'a RawValue, RpcError>,
    },
    /// A question of the server's, with its id as written.
    Question {
        id: &'a RawValue,
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    Notice {
        method: Cow<'a, str>,
        params: Option<&'a RawValue>,
    },
    /// An answer to something that was never asked, or an error about something unreadable.
    Stray,
    Batch(Vec<&'a RawValue>),
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

/// The bytes are no message.
#[derive(Debug, thiserror::Error)]
#[error("not a JSON-RPC message")]
pub(crate) struct NoMessage;

pub(crate) fn read(bytes: &[u8]) -> Result<Message<'_>, NoMessage> {
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        let batch: Vec<&RawValue> = serde_json::from_slice(bytes).map_err(|_| NoMessage)?;
        return if batch.len() <= LARGEST_BATCH { Ok(Message::Batch(batch)) } else { Err(NoMessage) };
    }
    let Wire { id, method, params, result, error } = serde_json::from_slice(bytes).map_err(|_| NoMessage)?;
    match (id, method, result, error) {
        (Some(id), Some(method), _, _) => Ok(Message::Question { id, method, params }),
        (None, Some(method), _, _) => Ok(Message::Notice { method, params }),
        (Some(id), None, result, error) => {
            // Ours are numbers; servers that hand them back as text are common enough.
            let Some(id) = id.get().trim_matches('"').parse().ok() else { return Ok(Message::Stray) };
            match (result, error) {
                (_, Some(error)) => Ok(Message::Answer { id, result: Err(error) }),
                (Some(result), None) => Ok(Message::Answer { id, result: Ok(result) }),
                (None, None) => Err(NoMessage),
            }
        }
        (None, None, _, Some(_)) => Ok(Message::Stray),
        (None, None, _, None) => Err(NoMessage),
    }
}

/// The id in the head of a message that is too large to be read, when it stands there.
pub(crate) fn id_in_head(head: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(&head[..head.len().min(256)]);
    let (_, rest) = text.split_once("\"id\"")?;
    let rest = rest.trim_start().strip_prefix(':')?.trim_start();
    // Inside a result the word may be anyone's; ours comes before it.
    if text.find("\"result\"").is_some_and(|result| text.find("\"id\"").is_some_and(|id| result < id)) {
        return None;
    }
    let end = rest.find(|character: char| !character.is_ascii_digit())?;
    rest[..end].parse().ok()
}

/// What a request says beside its parameters.
#[derive(Debug)]
pub(crate) struct Meta<'a> {
    pub(crate) version: Version,
    /// Name and version of this client, as JSON text.
    pub(crate) client: &'a str,
    /// Capabilities of this client, as JSON text.
    pub(crate) capabilities: &'a str,
    pub(crate) progress: bool,
    /// Further members, each `"name":value`.
    pub(crate) further: &'a [String],
}

pub(crate) fn request(id: u64, method: &str, params: Option<&RawValue>, meta: &Meta<'_>) -> Vec<u8> {
    let params = params.map_or("{}", RawValue::get).trim();
    let mut text = String::with_capacity(params.len() + method.len() + 320);
    text.push_str(r#"{"jsonrpc":"2.0","id":"#);
    text.push_str(&id.to_string());
    text.push_str(r#","method":"#);
    push_string(&mut text, method);
    let mut members: Vec<Cow<'_, str>> = Vec::new();
    if meta.version.stateless() {
        members.push(Cow::Owned(format!(
            r#""io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{}"#,
            meta.version, meta.client, meta.capabilities
        )));
    }
    if meta.progress {
        members.push(Cow::Owned(format!(r#""progressToken":{id}"#)));
    }
    members.extend(meta.further.iter().map(|member| Cow::Borrowed(member.as_str())));
    let rest = params.strip_prefix('{').unwrap_or("}").trim_start();
    if !members.is_empty() {
        text.push_str(r#","params":{"_meta":{"#);
        text.push_str(&members.join(","));
        text.push('}');
        if rest != "}" {
            text.push(',');
        }
        push_one_line(&mut text, rest);
    } else if rest != "}" {
        text.push_str(r#","params":{"#);
        push_one_line(&mut text, rest);
    }
    text.push('}');
    text.into_bytes()
}

pub(crate) fn notice(method: &str, params: Option<&str>) -> Vec<u8> {
    let mut text = String::from(r#"{"jsonrpc":"2.0","method":"#);
    push_string(&mut text, method);
    if let Some(params) = params {
        text.push_str(r#","params":"#);
        text.push_str(params);
    }
    text.push('}');
    text.into_bytes()
}

pub(crate) fn cancelled(id: u64) -> Vec<u8> {
    let params = format!(r#"{{"requestId":{id},"reason":"the caller no longer waits"}}"#);
    notice("notifications/cancelled", Some(&params))
}

pub(crate) fn reply(id: &RawValue, result: &Result<Box<RawValue>, RpcError>) -> Vec<u8> {
    let mut text = String::from(r#"{"jsonrpc":"2.0","id":"#);
    text.push_str(id.get());
    match result {
        Ok(result) => {
            text.push_str(r#","result":"#);
            push_one_line(&mut text, result.get());
        }
        Err(error) => {
            text.push_str(&format!(r#","error":{{"code":{},"message":"#, error.code));
            push_string(&mut text, &error.message);
            text.push('}');
        }
    }
    text.push('}');
    text.into_bytes()
}

/// A line feed ends a message on a pipe. In JSON text one can only stand between tokens.
fn push_one_line(text: &mut String, json: &str) {
    if memchr::memchr2(b'\n', b'\r', json.as_bytes()).is_none() {
        text.push_str(json);
    } else {
        text.extend(
            json.chars().map(|character| if matches!(character, '\n' | '\r') { ' ' } else { character }),
        );
    }
}

pub(crate) fn push_string(text: &mut String, value: &str) {
    // Text always serialises.
    text.push_str(&serde_json::to_string(value).unwrap_or_default());
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
