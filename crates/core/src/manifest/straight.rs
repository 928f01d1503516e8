//! Corrections to derived schemas: what serde accepts and schemars does not know of.

use schemars::Schema;
use serde_json::{Value, json};

/// A second name for a member.
pub(super) fn alias(name: &'static str, of: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        if let Some(Value::Object(members)) = schema.get_mut("properties")
            && let Some(Value::Object(member)) = members.get(of)
        {
            let mut member = member.clone();
            member.insert("description".into(), format!("Another name for `{of}`.").into());
            members.insert(name.into(), Value::Object(member));
        }
    }
}

/// A second spelling of a value.
pub(super) fn value_alias(name: &'static str, of: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        if let Some(Value::Array(options)) = schema.get_mut("enum") {
            options.push(name.into());
        } else if let Some(Value::Array(branches)) = schema.get_mut("oneOf") {
            branches.push(
                json!({"type": "string", "const": name, "description": format!("Another name for `{of}`.")}),
            );
        }
    }
}

/// A second spelling of the tag that picks a variant.
pub(super) fn tag_alias(tag: &'static str, name: &'static str, of: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        let Some(Value::Array(branches)) = schema.get_mut("oneOf") else { return };
        for branch in branches {
            if let Some(member) = branch.pointer_mut(&format!("/properties/{tag}"))
                && member.get("const").is_some_and(|value| value == of)
            {
                *member = json!({"type": "string", "enum": [of, name]});
            }
        }
    }
}

/// Refuses unknown keys in the definition `name` and in everything it is made of.
pub(super) fn close(schema: &mut Value, name: &str) {
    let mut open = vec![name.to_owned()];
    let mut closed = Vec::new();
    while let Some(name) = open.pop() {
        if closed.contains(&name) {
            continue;
        }
        if let Some(definition) = schema.pointer_mut(&format!("/$defs/{name}")) {
            close_here(definition, &mut open);
        }
        closed.push(name);
    }
}

fn close_here(schema: &mut Value, references: &mut Vec<String>) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && !object.contains_key("additionalProperties") {
                object.insert("additionalProperties".into(), false.into());
            }
            if let Some(name) =
                object.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"))
            {
                references.push(name.to_owned());
            }
            object.values_mut().for_each(|value| close_here(value, references));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| close_here(item, references)),
        _ => {}
    }
}
