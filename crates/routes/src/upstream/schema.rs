//! JSON Schemas from outside: compiled only when using them can't hang, reach out or overflow.

use std::collections::HashMap;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::growth;

const DEEPEST: usize = 64;
const MOST_REFERENCES: usize = 1000;
/// Schemas that are applied to one place of a value, with every reference counted as often as it is followed: a few
/// dozen parts that each name the next one twice would never be done.
const MOST_IN_PLACE: u64 = 10_000;

/// Compiles a schema. Nothing is fetched: references lead to places in the schema itself. Patterns are matched in
/// linear time.
pub fn compile(schema: &Value) -> Result<Validator, String> {
    check(schema, 0, &mut 0)?;
    circles(schema)?;
    growth::check(schema)?;
    jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|error| error.to_string().chars().take(300).collect())
}

fn check(schema: &Value, depth: usize, references: &mut usize) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("it is nested more than {DEEPEST} deep"));
    }
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                if matches!(name.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef")
                    && let Some(reference) = value.as_str()
                {
                    *references += 1;
                    if *references > MOST_REFERENCES {
                        return Err(format!("it has more than {MOST_REFERENCES} references"));
                    }
                    if reference != "#" && !reference.starts_with("#/") {
                        let shown: String = reference.chars().take(80).collect();
                        return Err(format!("`{shown}` leads out of it; only `#/…` is followed"));
                    }
                }
                // With an identity of its own a part resolves references in another way than we check them.
                if depth > 0 && name == "$id" && value.is_string() {
                    return Err("a part of it has an `$id` of its own".into());
                }
                check(value, depth + 1, references)?;
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(|item| check(item, depth + 1, references)),
        _ => Ok(()),
    }
}

/// Keywords whose schemas are applied to the same place of a value. A circle of these never comes to an end; through
/// any other keyword, the value gets smaller.
pub(super) const IN_PLACE: [&str; 7] = ["not", "if", "then", "else", "$ref", "$dynamicRef", "$recursiveRef"];
pub(super) const IN_PLACE_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
pub(super) const IN_PLACE_MEMBERS: [&str; 2] = ["dependentSchemas", "dependencies"];

fn circles(root: &Value) -> Result<(), String> {
    let mut settled = HashMap::new();
    let mut waiting = vec![root];
    while let Some(schema) = waiting.pop() {
        let mut path = Vec::new();
        descend(root, schema, &mut path, &mut settled)?;
        match schema {
            Value::Object(members) => waiting.extend(members.values()),
            Value::Array(items) => waiting.extend(items),
            _ => {}
        }
    }
    Ok(())
}

/// How many schemas are applied where this one is, itself among them.
fn descend(
    root: &Value,
    schema: &Value,
    path: &mut Vec<*const Value>,
    settled: &mut HashMap<*const Value, u64>,
) -> Result<u64, String> {
    let here: *const Value = schema;
    if let Some(cost) = settled.get(&here) {
        return Ok(*cost);
    }
    if path.contains(&here) || path.len() > MOST_REFERENCES {
        return Err("its references go in a circle".into());
    }
    let Value::Object(members) = schema else { return Ok(1) };
    path.push(here);
    let mut cost: u64 = 1;
    for keyword in IN_PLACE {
        match members.get(keyword) {
            Some(Value::String(reference)) if keyword.starts_with('$') => {
                cost += descend(root, resolved(root, reference)?, path, settled)?;
            }
            Some(part) => cost += descend(root, part, path, settled)?,
            None => {}
        }
    }
    for keyword in IN_PLACE_LISTS {
        for part in members.get(keyword).and_then(Value::as_array).into_iter().flatten() {
            cost += descend(root, part, path, settled)?;
        }
    }
    for keyword in IN_PLACE_MEMBERS {
        for part in members.get(keyword).and_then(Value::as_object).into_iter().flat_map(|all| all.values()) {
            cost += descend(root, part, path, settled)?;
        }
    }
    if cost > MOST_IN_PLACE {
        return Err(format!(
            "with its references it comes to more than {MOST_IN_PLACE} schemas for one value"
        ));
    }
    path.pop();
    settled.insert(here, cost);
    Ok(cost)
}

/// Where a reference leads.
pub(super) fn resolved<'a>(root: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(&unescaped(pointer)));
    target.ok_or_else(|| "a reference leads nowhere".to_owned())
}

/// References are written as in an address.
fn unescaped(pointer: &str) -> String {
    let mut bytes = Vec::with_capacity(pointer.len());
    let mut rest = pointer.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_usable_is_used() {
        for schema in [
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}}),
            // A tree of trees ends where the value does.
            json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}),
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}}}),
        ] {
            compile(&schema).unwrap();
        }
    }

    /// Forty parts, each of which leads to the next one as often as `part` says.
    fn doubling(part: impl Fn(&Value) -> Value) -> Value {
        let mut parts: serde_json::Map<String, Value> = (0..40)
            .map(|number| (format!("a{number}"), part(&json!({"$ref": format!("#/$defs/a{}", number + 1)}))))
            .collect();
        parts.insert("a40".into(), json!({"type": "object"}));
        json!({"type": "object", "$ref": "#/$defs/a0", "$defs": parts})
    }

    #[test]
    fn one_part_may_be_used_often() {
        let uses: Vec<Value> = (0..500).map(|_| json!({"$ref": "#/$defs/a"})).collect();
        compile(&json!({"anyOf": uses, "$defs": {"a": {"type": "object"}}})).unwrap();
        compile(&doubling(|next| json!({"allOf": [next]}))).unwrap();
        // Through members, the value says how far it goes.
        compile(&doubling(|next| json!({"properties": {"left": next, "right": next}}))).unwrap();
        compile(&doubling(|next| json!({"items": next}))).unwrap();
        compile(&json!({"properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}})).unwrap();
        // Conditions within conditions, as many servers have them: each name leads to one part.
        let filter = json!({"$ref": "#/$defs/filter"});
        compile(&json!({"type": "object", "properties": {"filter": filter}, "$defs": {"filter": {"anyOf": [
            {"properties": {"and": {"type": "array", "items": filter}}},
            {"properties": {"or": {"type": "array", "items": filter}}},
            {"properties": {"not": filter}},
            {"properties": {"field": {"type": "string"}}}]}}}))
        .unwrap();
    }

    #[test]
    fn what_would_hurt_is_refused() {
        let mut deep = json!({"type": "object"});
        for _ in 0..80 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        for (schema, reason) in [
            (json!({"properties": {"a": {"$ref": "https://evil.example/s.json"}}}), "leads out of it"),
            (json!({"properties": {"a": {"$ref": "file:///etc/passwd"}}}), "leads out of it"),
            (json!({"properties": {"a": {"$ref": "#/nowhere"}}}), "leads nowhere"),
            (json!({"$ref": "#"}), "circle"),
            (
                json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
                "circle",
            ),
            (json!({"anyOf": [{"not": {"$ref": "#"}}]}), "circle"),
            (json!({"properties": {"a": {"type": 7}}}), ""),
            (json!({"properties": {"a": {"pattern": "("}}}), ""),
            (json!({"$recursiveRef": "#"}), "circle"),
            (json!({"dependencies": {"a": {"$ref": "#"}}}), "circle"),
            (doubling(|next| json!({"allOf": [next, next]})), "schemas for one value"),
            (doubling(|next| json!({"anyOf": [next], "if": next})), "schemas for one value"),
            (deep, "nested"),
            (doubling(|next| json!({"allOf": [{"items": next}, {"items": next}]})), "doubles"),
            (
                doubling(|next| json!({"anyOf": [{"properties": {"a": next}}, {"properties": {"a": next}}]})),
                "doubles",
            ),
            (doubling(|next| json!({"items": next, "contains": next})), "doubles"),
            (
                json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"patternProperties": {"a": {"$ref": "#"}}}]}),
                "doubles",
            ),
            (json!({"anyOf": [{"items": {"$ref": "#"}}, {"prefixItems": [{"$ref": "#"}]}]}), "doubles"),
        ] {
            let refused = compile(&schema).unwrap_err();
            assert!(refused.contains(reason), "{schema}: {refused}");
        }
    }
}
