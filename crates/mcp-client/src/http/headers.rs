//! What 2026-07-28 says in headers as well as in the body.

use base64::{Engine, prelude::BASE64_STANDARD};
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

const ANNOTATION: &str = "x-mcp-header";
const PREFIX: &str = "mcp-param-";
/// How deep a parameter may stand in an object of objects.
const DEEPEST: usize = 8;
const MOST: usize = 32;

/// A value as a header can carry it: as it is, or marked and in base64.
pub(crate) fn header_value(text: &str) -> Option<HeaderValue> {
    let plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte))
        && text.trim() == text
        && !(text.starts_with("=?base64?") && text.ends_with("?="));
    if plain {
        return HeaderValue::from_str(text).ok();
    }
    HeaderValue::from_str(&format!("=?base64?{}?=", BASE64_STANDARD.encode(text))).ok()
}

/// A tool's schema asks for headers that can't be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`x-mcp-header` of `{parameter}`: {reason}")]
pub struct HeaderMistake {
    pub parameter: String,
    pub reason: &'static str,
}

/// Which parameters of a tool are to be repeated in headers, as (path of members, header).
pub fn header_parameters(schema: &Value) -> Result<Vec<(Vec<String>, HeaderName)>, HeaderMistake> {
    let mut found = Vec::new();
    collect(schema, &mut Vec::new(), &mut found)?;
    Ok(found)
}

fn collect(
    schema: &Value,
    path: &mut Vec<String>,
    found: &mut Vec<(Vec<String>, HeaderName)>,
) -> Result<(), HeaderMistake> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return Ok(()) };
    for (name, property) in properties {
        path.push(name.clone());
        if let Some(annotation) = property.get(ANNOTATION) {
            let mistake = |reason| HeaderMistake { parameter: path.join("."), reason };
            let text = annotation.as_str().ok_or_else(|| mistake("it is no text"))?;
            let header = HeaderName::from_bytes(format!("{PREFIX}{text}").as_bytes())
                .map_err(|_| mistake("it can't be the name of a header"))?;
            if text.is_empty() {
                return Err(mistake("it is empty"));
            }
            if !matches!(property.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean"))
            {
                return Err(mistake("only text, whole numbers and booleans go into headers"));
            }
            if found.len() >= MOST {
                return Err(mistake("there are too many"));
            }
            if found.iter().any(|(_, known)| *known == header) {
                return Err(mistake("another parameter has it already"));
            }
            found.push((path.clone(), header));
        }
        if path.len() < DEEPEST {
            collect(property, path, found)?;
        }
        path.pop();
    }
    Ok(())
}

/// The headers for these arguments. What is absent or null has none.
pub fn parameter_headers(
    parameters: &[(Vec<String>, HeaderName)],
    arguments: &Map<String, Value>,
) -> Vec<(HeaderName, HeaderValue)> {
    let value_at = |path: &[String]| {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(arguments.get(first)?, |value, member| value.get(member))
    };
    parameters
        .iter()
        .filter_map(|(path, header)| {
            let text = match value_at(path)? {
                Value::String(text) => text.clone(),
                Value::Bool(flag) => flag.to_string(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            Some((header.clone(), header_value(&text)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_travel_as_they_are_or_marked() {
        let sent = |text: &str| header_value(text).unwrap().to_str().unwrap().to_owned();
        assert_eq!(sent("add"), "add");
        assert_eq!(sent("a b"), "a b");
        assert_eq!(sent(" a"), "=?base64?IGE=?=");
        assert_eq!(sent("ü"), "=?base64?w7w=?=");
        assert_eq!(sent("a\r\nx: y"), "=?base64?YQ0KeDogeQ==?=");
        assert_eq!(sent("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
    }

    #[test]
    fn parameters_are_found_and_sent() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "more": {"type": "object", "properties": {"dry": {"type": "boolean", "x-mcp-header": "Dry"}}},
            "plain": {"type": "string"},
        }});
        let parameters = header_parameters(&schema).unwrap();
        let arguments = json!({"region": "eu", "more": {"dry": true}, "plain": "x"});
        let sent = parameter_headers(&parameters, arguments.as_object().unwrap());
        let sent: Vec<(&str, &str)> =
            sent.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(sent, [("mcp-param-region", "eu"), ("mcp-param-dry", "true")]);
        assert!(parameter_headers(&parameters, json!({"region": null}).as_object().unwrap()).is_empty());
    }

    #[test]
    fn bad_annotations_are_told() {
        for (property, reason) in [
            (json!({"type": "string", "x-mcp-header": "a b"}), "it can't be the name of a header"),
            (json!({"type": "string", "x-mcp-header": ""}), "it is empty"),
            (json!({"type": "string", "x-mcp-header": 3}), "it is no text"),
            (
                json!({"type": "number", "x-mcp-header": "N"}),
                "only text, whole numbers and booleans go into headers",
            ),
        ] {
            let schema = json!({"properties": {"p": property}});
            assert_eq!(header_parameters(&schema).unwrap_err().reason, reason);
        }
        let twice = json!({"properties": {
            "a": {"type": "string", "x-mcp-header": "X"}, "b": {"type": "string", "x-mcp-header": "x"}}});
        assert!(header_parameters(&twice).is_err());
    }
}
