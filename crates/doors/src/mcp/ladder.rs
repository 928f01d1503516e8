//! Which era a request belongs to, and whether a stateless one says the same in its headers as in its body. Proxies
//! route by the headers, so a disagreement must not pass. The order of the rungs is part of the protocol.

use std::borrow::Cow;

use axum::http::{HeaderMap, HeaderName, StatusCode};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    era::{MODERN, Revision},
    fault::{Fault, HEADER_MISMATCH, INVALID_PARAMS, UNSUPPORTED_VERSION},
    message::{Request, string},
};

pub(crate) const VERSION_HEADER: &str = "mcp-protocol-version";
pub(crate) const METHOD_HEADER: &str = "mcp-method";
pub(crate) const NAME_HEADER: &str = "mcp-name";

/// Marks a header value that could not be written plainly.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header<'a> {
    Absent,
    Value(&'a str),
    /// There twice, or not text.
    Unusable,
}

impl<'a> Header<'a> {
    pub(crate) fn of(headers: &'a HeaderMap, name: &str) -> Self {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Self::Absent,
            (Some(value), None) => value.to_str().map_or(Self::Unusable, |value| Self::Value(value.trim())),
            _ => Self::Unusable,
        }
    }

    fn is(self, wanted: &str) -> bool {
        matches!(self, Self::Value(value) if value == wanted)
    }
}

/// The headers that repeat what the body says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headers<'a> {
    pub(crate) version: Header<'a>,
    pub(crate) method: Header<'a>,
    pub(crate) name: Header<'a>,
}

impl<'a> Headers<'a> {
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        Self {
            version: Header::of(headers, VERSION_HEADER),
            method: Header::of(headers, METHOD_HEADER),
            name: Header::of(headers, NAME_HEADER),
        }
    }

    /// Whether these alone say that the stateless era is meant: any version but those with sessions.
    pub(crate) fn are_modern(&self) -> bool {
        match self.version {
            Header::Absent => false,
            Header::Value(version) => Revision::parse(version).is_none(),
            Header::Unusable => true,
        }
    }
}

/// Whether a request is of the stateless era. `headers` is `None` where there are none, on stdio.
pub(crate) fn is_modern(request: &Request<'_>, headers: Option<&Headers<'_>>) -> bool {
    request.params.meta.version.is_some()
        || match headers {
            Some(headers) if headers.version != Header::Absent => headers.are_modern(),
            _ => request.method == "server/discover",
        }
}

/// Checks a stateless request; the first fault wins.
pub(crate) fn climb(request: &Request<'_>, headers: Option<&Headers<'_>>) -> Result<(), Fault> {
    let version = stated_version(request)?;
    if let Some(headers) = headers
        && !headers.version.is(&version)
    {
        return Err(mismatch("MCP-Protocol-Version", "`params._meta`"));
    }
    if version != MODERN {
        let requested: String = version.chars().take(100).collect();
        return Err(Fault::new(
            StatusCode::BAD_REQUEST,
            UNSUPPORTED_VERSION,
            format!("the protocol version `{requested}` is not spoken here without a session"),
        )
        .with_data(json!({"supported": [MODERN], "requested": requested})));
    }
    if let Some(headers) = headers {
        if !headers.method.is(&request.method) {
            return Err(mismatch("Mcp-Method", "`method`"));
        }
        named_alike(request, headers.name)?;
    }
    match request.method.as_ref() {
        "server/discover"
        | "tools/list"
        | "tools/call"
        | "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "prompts/list"
        | "prompts/get"
        | "completion/complete"
        | "subscriptions/listen"
        | "tasks/get"
        | "tasks/update"
        | "tasks/cancel" => Ok(()),
        other => Err(Fault::method_not_found(StatusCode::NOT_FOUND, other)),
    }
}

/// The version in the body, which must be there together with the client's capabilities.
fn stated_version<'a>(request: &Request<'a>) -> Result<Cow<'a, str>, Fault> {
    let wrong = |message: String| Fault::new(StatusCode::BAD_REQUEST, INVALID_PARAMS, message);
    if let Some(flaw) = &request.params.flaw {
        return Err(wrong(flaw.clone()));
    }
    let meta = &request.params.meta;
    let missing: Vec<&str> = [("protocolVersion", meta.version), ("clientCapabilities", meta.capabilities)]
        .into_iter()
        .filter_map(|(name, value)| value.is_none().then_some(name))
        .collect();
    if !missing.is_empty() {
        let keys: Vec<_> = missing.iter().map(|name| format!("io.modelcontextprotocol/{name}")).collect();
        return Err(wrong(format!("`params._meta` lacks {}", keys.join(" and "))));
    }
    if !meta.capabilities.is_some_and(|value| value.get().starts_with('{')) {
        return Err(wrong("`io.modelcontextprotocol/clientCapabilities` must be an object".into()));
    }
    meta.version
        .and_then(string)
        .ok_or_else(|| wrong("`io.modelcontextprotocol/protocolVersion` must be a string".into()))
}

/// `Mcp-Name` repeats what the request is about. A body without it is for the method itself to refuse.
fn named_alike(request: &Request<'_>, header: Header<'_>) -> Result<(), Fault> {
    let (subject, member) = match request.method.as_ref() {
        "tools/call" | "prompts/get" => (request.params.name, "`params.name`"),
        "resources/read" => (request.params.uri, "`params.uri`"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => (request.params.task_id, "`params.taskId`"),
        _ => return Ok(()),
    };
    let Some(subject) = subject.and_then(string) else { return Ok(()) };
    match header {
        Header::Value(value) if decode(value).as_deref() == Some(&*subject) => Ok(()),
        _ => Err(mismatch("Mcp-Name", member)),
    }
}

/// `Mcp-Param-*` repeats the arguments that a tool's schema names for it.
pub(crate) fn parameters_alike(
    request: &Request<'_>,
    headers: &HeaderMap,
    parameters: &[(Vec<String>, HeaderName)],
) -> Result<(), Fault> {
    if parameters.is_empty() {
        return Ok(());
    }
    // Arguments that can't be read are refused where they are looked at.
    let arguments: Value = match request.params.arguments {
        Some(raw) => serde_json::from_str(raw.get()).unwrap_or_default(),
        None => Value::Null,
    };
    for (path, name) in parameters {
        let value = path
            .iter()
            .try_fold(&arguments, |value, member| value.get(member))
            .filter(|value| !value.is_null());
        let alike = match (Header::of(headers, name.as_str()), value) {
            (Header::Absent, None) => true,
            (Header::Value(header), Some(value)) => decode(header).is_some_and(|header| says(&header, value)),
            _ => false,
        };
        if !alike {
            return Err(mismatch(name.as_str(), &format!("`params.arguments.{}`", path.join("."))));
        }
    }
    Ok(())
}

fn says(header: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => header == text,
        Value::Bool(flag) => header == if *flag { "true" } else { "false" },
        Value::Number(number) => match (header.parse::<f64>(), number.as_f64()) {
            (Ok(header), Some(number)) => {
                header.total_cmp(&number).is_eq() || number.to_string() == header.to_string()
            }
            _ => false,
        },
        _ => false,
    }
}

fn mismatch(header: &str, member: &str) -> Fault {
    Fault::new(
        StatusCode::BAD_REQUEST,
        HEADER_MISMATCH,
        format!("the header `{header}` must be there once and say the same as {member}"),
    )
}

/// The value that a header stands for.
fn decode(value: &str) -> Option<Cow<'_, str>> {
    let Some(encoded) = value.strip_prefix(ENCODED.0).and_then(|rest| rest.strip_suffix(ENCODED.1)) else {
        return Some(Cow::Borrowed(value));
    };
    String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned)
}

/// A header value that stands for `text`.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && text.trim() == text
        && !text.starts_with(ENCODED.0);
    if plain {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{}{}", ENCODED.0, STANDARD.encode(text), ENCODED.1))
}

#[cfg(test)]
#[path = "ladder_tests.rs"]
mod tests;
