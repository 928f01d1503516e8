//! Questions to a schema.

use serde_json::{Map, Value};

use super::tree::{Content, Node};

pub(super) type Schema = Map<String, Value>;

/// A schema with its definitions.
#[derive(Clone, Copy)]
pub(super) struct Schemas<'s> {
    root: &'s Value,
}

impl<'s> Schemas<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        Self { root }
    }

    /// The definition behind a chain of `$ref`s.
    pub(super) fn resolve(self, schema: &'s Schema) -> &'s Schema {
        let mut schema = schema;
        for _ in 0..8 {
            let target = schema.get("$ref").and_then(|reference| self.target(reference));
            match target.and_then(Value::as_object) {
                Some(target) => schema = target,
                None => break,
            }
        }
        schema
    }

    /// What a `$ref` within the same schema is about.
    pub(super) fn target(self, reference: &Value) -> Option<&'s Value> {
        self.root.pointer(reference.as_str()?.strip_prefix('#')?)
    }

    /// The values a schema lists, when listing values is all it does.
    pub(super) fn options(self, schema: &'s Schema) -> Option<Vec<&'s Value>> {
        if let Some(only) = schema.get("const") {
            return Some(vec![only]);
        }
        if let Some(options) = schema.get("enum").and_then(Value::as_array) {
            return Some(options.iter().collect());
        }
        if schema.get("type").and_then(Value::as_str) == Some("null") {
            return Some(vec![&Value::Null]);
        }
        self.of_branches(schema, Self::options)
    }

    /// The types a schema takes; `None` when it does not say.
    pub(super) fn types(self, schema: &'s Schema) -> Option<Vec<&'s str>> {
        match schema.get("type") {
            Some(Value::String(only)) => return Some(vec![only]),
            Some(Value::Array(types)) => return Some(types.iter().filter_map(Value::as_str).collect()),
            _ => {}
        }
        if let Some(options) = self.options(schema) {
            return Some(
                options.iter().map(|option| if option.is_null() { "null" } else { "string" }).collect(),
            );
        }
        self.of_branches(schema, Self::types)
    }

    fn of_branches<T>(
        self,
        schema: &'s Schema,
        of: fn(Self, &'s Schema) -> Option<Vec<T>>,
    ) -> Option<Vec<T>> {
        let branches = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
        let mut all = Vec::new();
        for branch in branches {
            all.extend(of(self, self.resolve(branch.as_object()?))?);
        }
        Some(all)
    }

    /// The values that the member `key` of an object schema may have, when it lists them.
    pub(super) fn member_options(self, schema: &'s Value, key: &str) -> Option<Vec<&'s Value>> {
        let member = self.resolve(schema.as_object()?).get("properties")?.get(key)?.as_object()?;
        self.options(self.resolve(member))
    }

    pub(super) fn requires(self, schema: &'s Value, key: &str) -> bool {
        schema.as_object().is_some_and(|schema| {
            let required = self.resolve(schema).get("required").and_then(Value::as_array);
            required.is_some_and(|required| required.iter().any(|name| name == key))
        })
    }
}

pub(super) fn only_requires(branch: &Value) -> bool {
    branch.as_object().is_some_and(|branch| branch.len() == 1 && branch.contains_key("required"))
}

pub(super) fn accepts(wanted: &str, node: &Node) -> bool {
    match &node.content {
        Content::Sequence(_) => wanted == "array",
        Content::Mapping(_) => wanted == "object",
        Content::Scalar { value, .. } => is_of(wanted, value),
    }
}

/// Whether a value is of a type that schemas know.
pub(super) fn is_of(wanted: &str, value: &Value) -> bool {
    match value {
        Value::Null => wanted == "null",
        Value::Bool(_) => wanted == "boolean",
        Value::String(_) => wanted == "string",
        Value::Array(_) => wanted == "array",
        Value::Object(_) => wanted == "object",
        Value::Number(number) => {
            let whole =
                number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|n| n.fract() == 0.0);
            wanted == "number" || (wanted == "integer" && whole)
        }
    }
}

/// Whether a value keeps a keyword, as far as a look tells: compiling a validator for each bound costs far more.
pub(super) fn plainly_fits(keyword: &str, bound: Option<&Value>, node: &Node) -> bool {
    let Some(bound) = bound else { return true };
    let size = match (keyword, &node.content) {
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf", content) => {
            match content {
                Content::Scalar { value: Value::Number(number), .. } => number.as_f64(),
                _ => return true,
            }
        }
        ("minLength" | "maxLength" | "pattern" | "format", content) => match content {
            Content::Scalar { value: Value::String(text), .. } => Some(count(text.chars().count())),
            _ => return true,
        },
        ("minItems" | "maxItems" | "uniqueItems", content) => match content {
            Content::Sequence(items) => Some(count(items.len())),
            _ => return true,
        },
        ("minProperties" | "maxProperties" | "propertyNames", content) => match content {
            Content::Mapping(entries) => Some(count(entries.len())),
            _ => return true,
        },
        _ => return false,
    };
    let (Some(size), Some(bound)) = (size, bound.as_f64()) else { return false };
    is_within(keyword, size, bound)
}

/// Whether a size keeps a bound; `false` of keywords that are about something else.
pub(super) fn is_within(keyword: &str, size: f64, bound: f64) -> bool {
    match keyword {
        "minimum" | "minLength" | "minItems" | "minProperties" => size >= bound,
        "maximum" | "maxLength" | "maxItems" | "maxProperties" => size <= bound,
        "exclusiveMinimum" => size > bound,
        "exclusiveMaximum" => size < bound,
        _ => false,
    }
}

/// A document has fewer values than a double has whole numbers.
fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::INFINITY, f64::from)
}
