//! A tool's arguments as Cedar sees them: types out of its JSON Schema, values out of a call.

use std::collections::BTreeMap;

use cedar_policy::RestrictedExpression;
use serde_json::{Map, Value, json};

/// Schemas that go deeper than this, or in circles, are left out below it.
const DEEPEST: usize = 8;

/// What can be typed. Anything else (free-form objects, alternatives, mixed lists) is not shown to policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Integer,
    Truth,
    /// Cedar's decimal: four places after the point.
    Number,
    Set(Box<Type>),
    Record(Members),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Members(BTreeMap<String, Member>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    kind: Type,
    /// Always there once arguments are checked: required, or filled by a default.
    certain: bool,
}

/// An argument that can't be put before the policies; the call is then refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the argument `{argument}` can't be put before the policies: {reason}")]
pub(super) struct Unfit {
    argument: String,
    reason: String,
}

impl Members {
    pub(super) fn of(schema: &Value) -> Self {
        record(schema, schema, 0)
    }

    pub(super) fn to_cedar(&self) -> Value {
        let attribute = |member: &Member| {
            let mut kind = member.kind.to_cedar();
            kind["required"] = member.certain.into();
            kind
        };
        let attributes: Map<String, Value> =
            self.0.iter().map(|(name, member)| (name.clone(), attribute(member))).collect();
        json!({"type": "Record", "attributes": attributes})
    }

    /// The values, but for those that are not known.
    pub(super) fn express(
        &self,
        values: &Map<String, Value>,
        hidden: &[&str],
    ) -> Result<RestrictedExpression, Unfit> {
        let mut fields = Vec::with_capacity(self.0.len());
        for (name, member) in self.0.iter().filter(|(name, _)| !hidden.contains(&name.as_str())) {
            let unfit = |reason: &str| Unfit { argument: name.clone(), reason: reason.to_owned() };
            match values.get(name) {
                None | Some(Value::Null) if member.certain => return Err(unfit("it is missing")),
                None | Some(Value::Null) => {}
                Some(value) => {
                    fields.push((name.clone(), member.kind.express(value).map_err(|reason| unfit(&reason))?));
                }
            }
        }
        RestrictedExpression::new_record(fields)
            .map_err(|error| Unfit { argument: "arguments".into(), reason: error.to_string() })
    }
}

impl Type {
    fn to_cedar(&self) -> Value {
        match self {
            Self::Text => json!({"type": "String"}),
            Self::Integer => json!({"type": "Long"}),
            Self::Truth => json!({"type": "Boolean"}),
            Self::Number => json!({"type": "Extension", "name": "decimal"}),
            Self::Set(element) => json!({"type": "Set", "element": element.to_cedar()}),
            Self::Record(members) => members.to_cedar(),
        }
    }

    fn express(&self, value: &Value) -> Result<RestrictedExpression, String> {
        match (self, value) {
            (Self::Text, Value::String(text)) => Ok(RestrictedExpression::new_string(text.clone())),
            (Self::Truth, Value::Bool(truth)) => Ok(RestrictedExpression::new_bool(*truth)),
            (Self::Integer, Value::Number(number)) => {
                let whole = number.as_i64().or_else(|| number.as_f64().and_then(whole));
                whole.map(RestrictedExpression::new_long).ok_or_else(|| "it is too large".to_owned())
            }
            (Self::Number, Value::Number(number)) => number
                .as_f64()
                .filter(|number| number.abs() < 922_337_203_685_477.0)
                .map(|number| RestrictedExpression::new_decimal(format!("{number:.4}")))
                .ok_or_else(|| "it is too large".to_owned()),
            (Self::Set(element), Value::Array(items)) => {
                let items: Result<Vec<_>, _> = items.iter().map(|item| element.express(item)).collect();
                items.map(RestrictedExpression::new_set)
            }
            (Self::Record(members), Value::Object(values)) => {
                members.express(values, &[]).map_err(|unfit| unfit.to_string())
            }
            _ => Err("it is not of the type that the tool declares".to_owned()),
        }
    }
}

/// A number such as `3.0`, which JSON Schema calls an integer.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    // Whole, and within the range that an f64 holds exactly.
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

fn record(root: &Value, schema: &Value, depth: usize) -> Members {
    let required = |name: &str| {
        schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
    };
    let mut members = BTreeMap::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let filled = depth == 0 && property.get("default").is_some_and(|default| !default.is_null());
        if let Some((kind, nullable)) = typed(root, property, depth + 1) {
            let certain = (required(name) || filled) && !nullable;
            members.insert(name.clone(), Member { kind, certain });
        }
    }
    Members(members)
}

/// The type, and whether the value may be null instead.
fn typed(root: &Value, schema: &Value, depth: usize) -> Option<(Type, bool)> {
    if depth > DEEPEST {
        return None;
    }
    if let Some(place) = schema["$ref"].as_str() {
        return typed(root, root.pointer(place.strip_prefix('#')?)?, depth + 1);
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(options) = schema[keyword].as_array() {
            return alternatives(root, options, depth);
        }
    }
    let (name, nullable) = match &schema["type"] {
        Value::String(name) => (name.as_str(), false),
        Value::Array(names) => {
            let mut others = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            let only = others.next()?;
            if others.next().is_some() {
                return None;
            }
            (only, names.iter().any(|name| name == "null"))
        }
        _ => return texts(schema).then_some((Type::Text, false)),
    };
    let kind = match name {
        "string" => Type::Text,
        "integer" => Type::Integer,
        "boolean" => Type::Truth,
        "number" => Type::Number,
        "array" => match typed(root, schema.get("items")?, depth + 1)? {
            (element, false) => Type::Set(Box::new(element)),
            _ => return None,
        },
        "object" if schema["properties"].is_object() => Type::Record(record(root, schema, depth)),
        _ => return None,
    };
    Some((kind, nullable))
}

/// One type and perhaps null; or several spellings of a text.
fn alternatives(root: &Value, options: &[Value], depth: usize) -> Option<(Type, bool)> {
    let is_null = |option: &&Value| option["type"] == "null";
    let nullable = options.iter().any(|option| is_null(&option));
    let mut kinds =
        options.iter().filter(|option| !is_null(option)).map(|option| typed(root, option, depth + 1));
    let (first, mut null_inside) = kinds.next()??;
    for kind in kinds {
        let (kind, null) = kind?;
        if kind != first {
            return None;
        }
        null_inside |= null;
    }
    Some((first, nullable || null_inside))
}

/// Whether a schema without a type allows texts only.
fn texts(schema: &Value) -> bool {
    match (&schema["const"], &schema["enum"]) {
        (Value::String(_), _) => true,
        (_, Value::Array(options)) => !options.is_empty() && options.iter().all(Value::is_string),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cedar(property: &Value) -> Option<Value> {
        let schema = json!({"type": "object", "properties": {"x": property}, "required": ["x"],
            "$defs": {"Deep": {"$ref": "#/$defs/Deep"}, "Text": {"type": "string"}}});
        Members::of(&schema).to_cedar()["attributes"].get("x").cloned()
    }

    #[test]
    fn what_can_be_typed_is_typed_and_the_rest_is_left_out() {
        let text = json!({"type": "String", "required": true});
        assert_eq!(cedar(&json!({"type": "string"})), Some(text.clone()));
        assert_eq!(cedar(&json!({"enum": ["a", "b"]})), Some(text.clone()));
        assert_eq!(
            cedar(&json!({"oneOf": [{"const": "a"}, {"type": "string", "const": "b"}]})),
            Some(text.clone())
        );
        assert_eq!(cedar(&json!({"$ref": "#/$defs/Text"})), Some(text));
        assert_eq!(
            cedar(&json!({"type": ["integer", "null"]})),
            Some(json!({"type": "Long", "required": false}))
        );
        assert_eq!(
            cedar(
                &json!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}})
            ),
            Some(json!({"type": "Set", "required": true, "element": {"type": "Record", "attributes":
                {"n": {"type": "Extension", "name": "decimal", "required": false}}}}))
        );
        for untyped in [
            json!({}),
            json!({"type": "object"}),
            json!({"type": ["string", "integer"]}),
            json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
            json!({"type": "array"}),
            json!({"$ref": "#/$defs/Deep"}),
            json!({"enum": ["a", 1]}),
        ] {
            assert_eq!(cedar(&untyped), None, "{untyped}");
        }
    }

    #[test]
    fn a_default_makes_an_argument_certain() {
        let schema =
            json!({"properties": {"a": {"type": "integer", "default": 5}, "b": {"type": "integer"}}});
        let cedar = Members::of(&schema).to_cedar();
        assert_eq!(cedar["attributes"]["a"]["required"], true);
        assert_eq!(cedar["attributes"]["b"]["required"], false);
    }

    #[test]
    fn values_that_do_not_fit_are_refused_not_dropped() {
        let members = Members::of(&json!({"required": ["n"], "properties": {
            "n": {"type": "integer"}, "d": {"type": "number"}, "s": {"type": "string"}}}));
        let fits = |value: Value| members.express(value.as_object().unwrap(), &[]).is_ok();
        assert!(fits(json!({"n": 3})));
        assert!(fits(json!({"n": 3.0, "d": 0.123456789, "unknown": [1]})));
        assert!(fits(json!({"n": -3, "s": null})));
        assert!(!fits(json!({"s": "x"})));
        assert!(!fits(json!({"n": u64::MAX})));
        assert!(!fits(json!({"n": 1, "d": 1e300})));
        assert!(!fits(json!({"n": 1, "s": 7})));
    }
}
