//! The words diagnostics are made of.

use std::sync::LazyLock;

use jsonschema::{ValidationError, error::ValidationErrorKind};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use super::{
    display::shown,
    tree::{Content, Node},
};
use crate::quantity::{Size, Span};

/// "`a`, `b` or `c`".
pub(super) fn list(names: &[&str], last: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

/// The first sentence of a description, to stand after a colon.
pub(super) fn sentence(text: &str) -> String {
    let text = text.replace('\n', " ");
    let first = text.split_once(". ").map_or(text.as_str(), |(first, _)| first);
    first.trim_end_matches('.').to_owned()
}

/// What stands in a place. Texts are not shown: one may be a secret in the wrong place.
pub(super) fn found(node: &Node) -> String {
    match &node.content {
        Content::Sequence(_) => "a list".to_owned(),
        Content::Mapping(_) => "a mapping".to_owned(),
        Content::Scalar { value, written } => match value {
            Value::Null => "nothing".to_owned(),
            Value::String(_) => "text".to_owned(),
            Value::Number(_) => format!("the number {}", shown(written)),
            _ => shown(written),
        },
    }
}

pub(super) fn wrong_type(wanted: &[&str], node: &Node) -> String {
    let mut names: Vec<&str> = Vec::new();
    for kind in wanted {
        let name = match *kind {
            "string" => "text",
            "integer" => "a whole number",
            "number" => "a number",
            "boolean" => "true or false",
            "array" => "a list",
            "object" => "a mapping",
            _ => continue,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let hint = match &node.content {
        Content::Scalar { value: Value::Number(_) | Value::Bool(_), written }
            if wanted.contains(&"string") =>
        {
            format!("; put it in quotes: \"{}\"", shown(written).trim_matches('`'))
        }
        Content::Scalar { value: Value::String(text), .. }
            if (wanted.contains(&"boolean") && matches!(text.as_str(), "true" | "false"))
                || (wanted.contains(&"number") && text.parse::<f64>().is_ok())
                || (wanted.contains(&"integer") && text.parse::<i64>().is_ok()) =>
        {
            "; take the quotes off".to_owned()
        }
        Content::Scalar { value: Value::String(_), .. } if wanted.contains(&"array") => {
            "; write it as a list, in [ ]".to_owned()
        }
        _ => String::new(),
    };
    format!("wants {}, found {}{hint}", names.join(" or "), found(node))
}

/// A mistake in a single value, as the validator found it.
pub(super) fn keyword_message(error: &ValidationError<'_>, schema: &Map<String, Value>) -> String {
    let given = match error.instance().as_ref() {
        Value::String(text) => shown(text),
        Value::Array(items) => format!("{} entries", items.len()),
        Value::Object(members) => format!("{} entries", members.len()),
        scalar => shown(&scalar.to_string()),
    };
    match error.kind() {
        ValidationErrorKind::Pattern { pattern } => {
            let text = error.instance().as_str().unwrap_or_default();
            match schema.get("patternErrorMessage").and_then(Value::as_str) {
                Some(message) => format!("{given}: {message}"),
                None => known_pattern(pattern, text)
                    .unwrap_or_else(|| format!("{given} does not match {pattern}")),
            }
        }
        ValidationErrorKind::MinLength { limit: 1 } => "must not be empty".to_owned(),
        ValidationErrorKind::MinLength { limit } => {
            format!("{given} is too short; {limit} characters at least")
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("{given} is too long; {limit} characters at most")
        }
        ValidationErrorKind::Minimum { limit } => format!("{given} is too small; {limit} at least"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("{given} is too small; more than {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("{given} is too large; {limit} at most"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("{given} is too large; less than {limit}"),
        ValidationErrorKind::MinItems { limit: 1 } | ValidationErrorKind::MinProperties { limit: 1 } => {
            "must not be empty".to_owned()
        }
        ValidationErrorKind::MinItems { limit } | ValidationErrorKind::MinProperties { limit } => {
            format!("{given}; {limit} at least")
        }
        ValidationErrorKind::MaxItems { limit } => format!("{given}; {limit} at most"),
        ValidationErrorKind::MaxProperties { limit } => format!("{given}; {limit} at most"),
        ValidationErrorKind::UniqueItems => "an entry is written twice".to_owned(),
        ValidationErrorKind::PropertyNames { error } => {
            let names = schema.get("propertyNames").and_then(Value::as_object);
            format!("a key can't be used: {}", keyword_message(error, names.unwrap_or(schema)))
        }
        _ => error.masked().to_string(),
    }
}

pub(crate) const DNS_LABEL: &str = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

/// A pattern that many types share carries no message of its own.
fn known_pattern(pattern: &str, text: &str) -> Option<String> {
    (pattern == DNS_LABEL).then(|| {
        format!(
            "{}: use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends",
            shown(text)
        )
    })
}

/// What is wrong with a text that should be a duration or a size, if `pattern` is that of one of them.
pub(super) fn quantity_refusal(pattern: &str, text: &str) -> Option<String> {
    type Refusal = fn(&str) -> Option<String>;
    static QUANTITIES: LazyLock<[(Option<String>, Refusal); 2]> = LazyLock::new(|| {
        [
            (pattern_of::<Span>(), |text| Span::parse(text).err()),
            (pattern_of::<Size>(), |text| Size::parse(text).err()),
        ]
    });
    QUANTITIES.iter().find(|(own, _)| own.as_deref() == Some(pattern)).and_then(|(_, refusal)| refusal(text))
}

fn pattern_of<T: JsonSchema>() -> Option<String> {
    let schema = super::schema_of::<T>();
    let branches = schema.get("anyOf")?.as_array()?;
    branches.iter().find_map(|branch| branch.get("pattern")?.as_str().map(str::to_owned))
}
