//! The bytes that are signed: compact JSON, the members of every object in the order of their names.
//!
//! The payload on the wire is this very text, so that a number is written the same way in both places whatever wrote
//! it first.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// Writes a value as it is signed.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value);
    text
}

/// What a signature covers: the payload, the token and the whole second.
pub fn message(canonical_payload: &str, token: &str, unix_seconds: u64) -> String {
    let mut text = String::with_capacity(canonical_payload.len() + token.len() + 64);
    text.push_str("{\"payload\":");
    text.push_str(canonical_payload);
    text.push_str(",\"security_token\":");
    write_string(&mut text, token);
    let _ = write!(text, ",\"timestamp\":{unix_seconds}}}");
    text
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => {
            let _ = write!(text, "{number}");
        }
        Value::String(string) => write_string(text, string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(text, item);
            }
            text.push(']');
        }
        Value::Object(members) => write_object(text, members),
    }
}

fn write_object(text: &mut String, members: &Map<String, Value>) {
    // The map keeps another order when a program that uses this crate turns `preserve_order` on.
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_unstable_by_key(|(name, _)| name.as_str());
    text.push('{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_string(text, name);
        text.push(':');
        write_value(text, value);
    }
    text.push('}');
}

/// Escapes what JSON demands and nothing more: all else is UTF-8 as it is.
pub(crate) fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\u{c}' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            control if control < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_at_every_depth_and_little_is_escaped() {
        let value = json!({"b": [{"z": 1, "a": null}], "a": "é/\u{7f}\u{2028}\"\\\n\u{1}", "": 1.5});
        assert_eq!(
            canonical(&value),
            "{\"\":1.5,\"a\":\"é/\u{7f}\u{2028}\\\"\\\\\\n\\u0001\",\"b\":[{\"a\":null,\"z\":1}]}"
        );
    }

    #[test]
    fn names_go_by_code_point() {
        let value = json!({"\u{10000}": 1, "\u{ffff}": 2});
        assert_eq!(canonical(&value), "{\"\u{ffff}\":2,\"\u{10000}\":1}");
    }

    #[test]
    fn the_message_has_three_members() {
        let text = message("{\"id\":1}", "a\"b", 1_771_338_721);
        assert_eq!(text, r#"{"payload":{"id":1},"security_token":"a\"b","timestamp":1771338721}"#);
    }
}
