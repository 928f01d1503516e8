//! What can't be said about the past: a record holds long and secret arguments only in part.

use aegis_core::{ToolSpec, redact, tool::Target};
use serde_json::{Map, Value};

/// The arguments that a record holds only in part.
pub(super) fn hidden<'a>(tool: &'a ToolSpec, recorded: &'a Map<String, Value>) -> Vec<&'a str> {
    // Some are not there at all, and nobody knows which.
    if recorded.keys().any(|name| redact::hides_name(name)) {
        return tool.input_schema["properties"]
            .as_object()
            .map_or_else(Vec::new, |properties| properties.keys().map(String::as_str).collect());
    }
    let partly = recorded.iter().filter(|(_, value)| redact::hides(value));
    partly.map(|(name, _)| name.as_str()).collect()
}

/// Whether what the call touches can't be told. Of a URL only the password is left out, so its host is known.
pub(super) fn loses_target(tool: &ToolSpec, hidden: &[&str], recorded: &Map<String, Value>) -> bool {
    let lost = |argument: &str| {
        hidden.contains(&argument) && recorded.get(argument).is_none_or(|value| !value.is_string())
    };
    tool.targets.iter().any(|target| match target {
        Target::Patch { argument, instead } => !recorded.contains_key(instead.as_ref()) && lost(argument),
        Target::Path { argument }
        | Target::Tree { argument }
        | Target::Url { argument }
        | Target::Server { argument }
        | Target::Choice { argument, .. } => lost(argument),
        Target::Host { .. } | Target::Program { .. } => false,
        Target::Command { command, args } => lost(command) || hidden.contains(&args.as_ref()),
    })
}

/// The arguments with a text wherever one was too long to record, so that they have the tool's types again.
pub(super) fn filled(arguments: &Map<String, Value>) -> Map<String, Value> {
    arguments.iter().map(|(name, value)| (name.clone(), fill(value))).collect()
}

fn fill(value: &Value) -> Value {
    match value {
        Value::Object(members) => match members.get("preview") {
            Some(preview) if members.contains_key("sha256") => preview.clone(),
            _ => Value::Object(filled(members)),
        },
        Value::Array(items) => items.iter().map(fill).collect(),
        plain => plain.clone(),
    }
}
