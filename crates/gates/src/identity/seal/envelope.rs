//! The envelope: five members, of which three are signed.

use aegis_core::{Violation, ViolationKind};
use base64::{Engine, engine::general_purpose::STANDARD};
use ed25519_dalek::{Signature, VerifyingKey};
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

use super::{
    canonical::{Order, Reader, Unreadable, canonical},
    instant,
    refusal::{MALFORMED, Refusal},
};

pub const PROTOCOL: &str = "seal/v1";

/// How a signed message begins.
const BEGINNING: &[u8] = b"{\"payload\":";

/// Why a body is no envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the envelope can't be read: {0}")]
    Unreadable(#[from] Unreadable),
    #[error("the envelope is not a JSON object")]
    NotAnObject,
    #[error("the envelope has no `{0}`")]
    Missing(&'static str),
    #[error("`{member}` is not {wanted}")]
    Mistyped { member: &'static str, wanted: &'static str },
    #[error("the protocol is not `{PROTOCOL}`")]
    Protocol,
    #[error("`timestamp` is no RFC 3339 time with an offset, nor whole Unix seconds")]
    Timestamp,
    #[error("`payload` is no JSON-RPC 2.0 request: {0}")]
    Request(String),
    #[error("`payload` names the method `{0}`, and this node takes tools/call and tools/list")]
    Method(String),
    #[error("`payload.params` names no tool")]
    NoTool,
}

impl Malformed {
    pub(super) fn refusal(&self) -> Refusal {
        let violation = Violation::new(ViolationKind::MalformedEnvelope, self.to_string())
            .hint("send {protocol, security_token, signature, payload, timestamp}; `aegis explain MalformedEnvelope`");
        Refusal::new(violation, Some(MALFORMED))
    }
}

/// What the client asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    Call { tool: String, arguments: Map<String, Value> },
    List,
}

/// An envelope that could be read. Nothing in it is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub token: String,
    pub signature: String,
    /// Whole Unix seconds, as signed.
    pub second: i64,
    /// The bytes that were signed, if the client sorts by code point.
    message: Vec<u8>,
    /// Where `payload` ends in `message`.
    payload_end: usize,
    /// The payload as it came, when another order of names could give other bytes.
    other_order: Option<String>,
}

#[derive(Default)]
struct Members {
    protocol: Option<String>,
    token: Option<String>,
    signature: Option<String>,
    second: Option<i64>,
    payload: Option<(usize, usize)>,
}

impl Envelope {
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(body).map_err(|_| Unreadable::NotUtf8)?;
        let mut reader = Reader::new(text, Order::CodePoint)?;
        reader.out.extend_from_slice(BEGINNING);
        let members = read_members(&mut reader)?;
        let protocol = members.protocol.ok_or(Malformed::Missing("protocol"))?;
        let token = members.token.ok_or(Malformed::Missing("security_token"))?;
        let signature = members.signature.ok_or(Malformed::Missing("signature"))?;
        let (from, to) = members.payload.ok_or(Malformed::Missing("payload"))?;
        let second = members.second.ok_or(Malformed::Missing("timestamp"))?;
        if protocol != PROTOCOL {
            return Err(Malformed::Protocol);
        }
        if token.is_empty() {
            return Err(Malformed::Mistyped { member: "security_token", wanted: "a token" });
        }
        let other_order = reader.has_astral_names().then(|| text[from..to].to_owned());
        let mut message = reader.finish();
        let payload_end = message.len();
        finish(&mut message, &token, second)?;
        Ok(Self { token, signature, second, message, payload_end, other_order })
    }

    /// The message that this key signed, if it did.
    pub fn verify(&self, key: &VerifyingKey) -> Option<std::borrow::Cow<'_, [u8]>> {
        let signature: [u8; 64] = STANDARD.decode(&self.signature).ok()?.try_into().ok()?;
        let signature = Signature::from_bytes(&signature);
        if key.verify_strict(&self.message, &signature).is_ok() {
            return Some(self.message.as_slice().into());
        }
        let other = self.in_other_order()?;
        key.verify_strict(&other, &signature).is_ok().then(|| other.into())
    }

    /// The bytes that were signed, if the client sorts by code point.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The bytes that were signed, if the client sorts by UTF-16 code unit and that makes a difference.
    pub fn in_other_order(&self) -> Option<Vec<u8>> {
        let payload = canonical(self.other_order.as_deref()?, Order::Utf16).ok()?;
        let mut message = [BEGINNING, &payload].concat();
        finish(&mut message, &self.token, self.second).ok()?;
        (message != self.message).then_some(message)
    }

    fn payload(&self) -> &[u8] {
        &self.message[BEGINNING.len()..self.payload_end]
    }

    /// The JSON text of the request's id, if it has one that may be sent back.
    pub fn id(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Id<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
        }
        serde_json::from_slice::<Id<'_>>(self.payload()).ok()?.id.and_then(plain_id)
    }

    /// What is asked, and the JSON text of its id.
    pub fn request(&self) -> Result<(String, Request), Malformed> {
        #[derive(Deserialize)]
        struct Rpc<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            jsonrpc: String,
            method: String,
            #[serde(borrow)]
            params: Option<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Params {
            name: Option<Value>,
            arguments: Option<Map<String, Value>>,
        }
        let wrong = |error: serde_json::Error| Malformed::Request(short(&error.to_string()));
        let rpc: Rpc<'_> = serde_json::from_slice(self.payload()).map_err(wrong)?;
        if rpc.jsonrpc != "2.0" {
            return Err(Malformed::Request("`jsonrpc` is not \"2.0\"".into()));
        }
        let id = match rpc.id {
            None => "null".to_owned(),
            Some(raw) => plain_id(raw)
                .ok_or_else(|| Malformed::Request("`id` is neither a string, a number nor null".into()))?,
        };
        match rpc.method.as_str() {
            "tools/list" => Ok((id, Request::List)),
            "tools/call" => {
                let params = rpc.params.ok_or(Malformed::NoTool)?;
                let Params { name, arguments } = serde_json::from_str(params.get()).map_err(wrong)?;
                match name {
                    Some(Value::String(tool)) if !tool.is_empty() => {
                        Ok((id, Request::Call { tool, arguments: arguments.unwrap_or_default() }))
                    }
                    _ => Err(Malformed::NoTool),
                }
            }
            other => Err(Malformed::Method(short(other))),
        }
    }
}

fn read_members(reader: &mut Reader<'_>) -> Result<Members, Malformed> {
    let mut members = Members::default();
    // Members that mean nothing here are not signed, but a name still stands for one value.
    let mut others = Vec::new();
    reader.space();
    if reader.peek() != Some(b'{') {
        reader.value()?;
        reader.end()?;
        return Err(Malformed::NotAnObject);
    }
    reader.descend()?;
    reader.expect(b'{')?;
    reader.space();
    let mut mistyped = None;
    if reader.peek() == Some(b'}') {
        reader.expect(b'}')?;
    } else {
        loop {
            let name = reader.text()?;
            reader.space();
            reader.expect(b':')?;
            reader.space();
            member(reader, name, &mut members, &mut others, &mut mistyped)?;
            if !reader.more(b'}')? {
                break;
            }
        }
    }
    reader.end()?;
    others.sort_unstable();
    if let Some([name, _]) = others.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Unreadable::Duplicate { name: short(name) }.into());
    }
    mistyped.map_or(Ok(members), Err)
}

/// Reads one member. One of the wrong type is noted and read on past: a text that is no JSON at all is told first.
fn member(
    reader: &mut Reader<'_>,
    name: String,
    members: &mut Members,
    others: &mut Vec<String>,
    mistyped: &mut Option<Malformed>,
) -> Result<(), Malformed> {
    let first = reader.peek();
    let twice = || Malformed::from(Unreadable::Duplicate { name: name.clone() });
    let slot = match name.as_str() {
        "protocol" => Some((&mut members.protocol, "protocol")),
        "security_token" => Some((&mut members.token, "security_token")),
        "signature" => Some((&mut members.signature, "signature")),
        _ => None,
    };
    if let Some((slot, member)) = slot {
        if slot.is_some() {
            return Err(twice());
        }
        if first == Some(b'"') {
            *slot = Some(reader.text()?);
        } else {
            *slot = Some(String::new());
            mistyped.get_or_insert(Malformed::Mistyped { member, wanted: "a string" });
            skip(reader)?;
        }
        return Ok(());
    }
    match name.as_str() {
        "payload" => {
            if members.payload.is_some() {
                return Err(twice());
            }
            let from = reader.position();
            if first == Some(b'{') {
                reader.value()?;
            } else {
                mistyped.get_or_insert(Malformed::Mistyped { member: "payload", wanted: "an object" });
                skip(reader)?;
            }
            members.payload = Some((from, reader.position()));
        }
        "timestamp" => {
            if members.second.is_some() {
                return Err(twice());
            }
            let second = match first {
                Some(b'"') => instant::parse(&reader.text()?),
                Some(b'-' | b'0'..=b'9') => whole_seconds(reader)?,
                _ => {
                    skip(reader)?;
                    None
                }
            };
            if second.is_none() {
                mistyped.get_or_insert(Malformed::Timestamp);
            }
            members.second = Some(second.unwrap_or_default());
        }
        _ => {
            skip(reader)?;
            others.push(name);
        }
    }
    Ok(())
}

/// Reads a value and drops it.
fn skip(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    let mark = reader.mark();
    reader.value()?;
    reader.back_to(&mark);
    Ok(())
}

fn whole_seconds(reader: &mut Reader<'_>) -> Result<Option<i64>, Malformed> {
    let mark = reader.mark();
    let from = reader.out.len();
    reader.number()?;
    let digits = std::str::from_utf8(&reader.out[from..]).ok().and_then(|text| text.parse().ok());
    reader.back_to(&mark);
    Ok(digits.filter(|second| (0..=instant::LATEST).contains(second)))
}

/// Adds what comes after the payload.
fn finish(message: &mut Vec<u8>, token: &str, second: i64) -> Result<(), Malformed> {
    message.reserve(token.len() + 64);
    message.extend_from_slice(b",\"security_token\":");
    // Escapes by the same rule.
    serde_json::to_writer(&mut *message, token).map_err(|error| Malformed::Request(error.to_string()))?;
    message.extend_from_slice(b",\"timestamp\":");
    message.extend_from_slice(second.to_string().as_bytes());
    message.push(b'}');
    Ok(())
}

/// An id as JSON-RPC knows it: anything else is not echoed.
fn plain_id(raw: &RawValue) -> Option<String> {
    let text = raw.get();
    let plain = text.len() <= 1024 && !text.starts_with(['{', '[', 't', 'f']);
    plain.then(|| text.to_owned())
}

fn short(text: &str) -> String {
    text.chars().take(200).collect()
}
