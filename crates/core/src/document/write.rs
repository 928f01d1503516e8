//! JSON values as YAML text.

use std::borrow::Cow;

use saphyr::{Mapping, Scalar, ScalarStyle, Yaml, YamlEmitter};
use serde_json::Value;

/// The value in block style. What [`super::parse`] reads from it is the value again.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    let mut emitter = YamlEmitter::new(&mut text);
    emitter.multiline(true);
    // The emitter fails only when its writer does, and a String does not.
    let _ = emitter.dump(&node(value));
    let body = text.strip_prefix("---\n").unwrap_or(&text);
    if body.ends_with('\n') { body.to_owned() } else { format!("{body}\n") }
}

fn node(value: &Value) -> Yaml<'_> {
    let plain = |text: String| Yaml::Representation(Cow::Owned(text), ScalarStyle::Plain, None);
    match value {
        Value::Null => plain("null".to_owned()),
        Value::Bool(value) => Yaml::Value(Scalar::Boolean(*value)),
        Value::Number(number) => plain(number.to_string()),
        Value::String(text) => string(text),
        Value::Array(items) => Yaml::Sequence(items.iter().map(node).collect()),
        Value::Object(members) => {
            let mut mapping = Mapping::new();
            for (key, value) in members {
                mapping.insert(string(key), node(value));
            }
            Yaml::Mapping(mapping)
        }
    }
}

/// The emitter leaves a few characters bare that would be read back as something else or not at all.
fn string(text: &str) -> Yaml<'_> {
    let awkward = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(
                c,
                '\u{85}' | '\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
            )
    };
    if !text.contains(awkward) {
        return Yaml::Value(Scalar::String(Cow::Borrowed(text)));
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            c if awkward(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    Yaml::Representation(Cow::Owned(escaped), ScalarStyle::DoubleQuoted, None)
}
