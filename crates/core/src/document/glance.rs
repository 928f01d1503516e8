//! Whether a document fits its schema, as far as a glance tells.
//!
//! Compiling a validator for a large schema costs many times what reading a small document does, and a node reads its
//! configuration before it does anything else. So the keywords that our own types use are judged here, along the
//! document; where a glance can't be certain the validator is made after all, and its verdict counts.

use std::collections::HashMap;

use regex::RegexBuilder;
use serde_json::{Map, Value};

use super::lookup::{Schemas, is_of, is_within};

/// Steps of one walk, and how deep it goes. A schema that leads in circles ends here.
const STEPS: usize = 200_000;
const DEEPEST: usize = 256;
/// Up to here every whole number is a double of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// `None` when only a validator can tell.
pub(super) fn fits(schema: &Value, document: &Value) -> Option<bool> {
    let mut glance =
        Glance { schemas: Schemas::new(schema), patterns: HashMap::new(), steps: STEPS, depth: 0 };
    glance.value(schema, document)
}

struct Glance<'s> {
    schemas: Schemas<'s>,
    patterns: HashMap<&'s str, Option<regex::Regex>>,
    steps: usize,
    depth: usize,
}

/// All must hold: one that does not settles it, whatever is unknown of the others.
fn all(verdicts: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    let mut certain = true;
    for verdict in verdicts {
        match verdict {
            Some(true) => {}
            Some(false) => return Some(false),
            None => certain = false,
        }
    }
    certain.then_some(true)
}

impl<'s> Glance<'s> {
    fn value(&mut self, schema: &'s Value, value: &Value) -> Option<bool> {
        self.steps = self.steps.checked_sub(1)?;
        let schema = match schema {
            Value::Bool(anything) => return Some(*anything),
            Value::Object(schema) if self.depth < DEEPEST => schema,
            _ => return None,
        };
        self.depth += 1;
        let verdicts: Vec<_> =
            schema.iter().map(|(keyword, bound)| self.keyword(schema, keyword, bound, value)).collect();
        self.depth -= 1;
        all(verdicts)
    }

    fn keyword(
        &mut self,
        schema: &'s Map<String, Value>,
        keyword: &str,
        bound: &'s Value,
        value: &Value,
    ) -> Option<bool> {
        match keyword {
            // What says something about the schema and nothing about the value. `format` is one of them in 2020-12.
            "$schema"
            | "$defs"
            | "$comment"
            | "title"
            | "description"
            | "default"
            | "examples"
            | "format"
            | "deprecated"
            | "errorMessage"
            | "patternErrorMessage" => Some(true),
            "$ref" => {
                let target = self.schemas.target(bound)?;
                self.value(target, value)
            }
            "type" => match bound {
                Value::String(wanted) => Some(is_of(wanted, value)),
                Value::Array(types) => {
                    Some(types.iter().filter_map(Value::as_str).any(|wanted| is_of(wanted, value)))
                }
                _ => None,
            },
            "const" => equal(bound, value),
            "enum" => {
                let options = bound.as_array()?;
                if options.iter().any(|option| equal(option, value) == Some(true)) {
                    return Some(true);
                }
                all(options.iter().map(|option| equal(option, value).map(|same| !same)))
                    .map(|differs| !differs)
            }
            "properties" => {
                let (Value::Object(known), Value::Object(members)) = (bound, value) else {
                    return Some(true);
                };
                let verdicts: Vec<_> = members
                    .iter()
                    .filter_map(|(key, member)| Some((known.get(key)?, member)))
                    .map(|(schema, member)| self.value(schema, member))
                    .collect();
                all(verdicts)
            }
            "additionalProperties" => {
                // Where patterns name further keys it takes more than a glance.
                if schema.contains_key("patternProperties") {
                    return None;
                }
                let Value::Object(members) = value else { return Some(true) };
                let known = schema.get("properties").and_then(Value::as_object);
                let strangers =
                    members.iter().filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)));
                let verdicts: Vec<_> = strangers.map(|(_, member)| self.value(bound, member)).collect();
                all(verdicts)
            }
            "required" => {
                let Value::Object(members) = value else { return Some(true) };
                Some(bound.as_array()?.iter().filter_map(Value::as_str).all(|key| members.contains_key(key)))
            }
            "items" => {
                let Value::Array(items) = value else { return Some(true) };
                if schema.contains_key("prefixItems") {
                    return None;
                }
                let verdicts: Vec<_> = items.iter().map(|item| self.value(bound, item)).collect();
                all(verdicts)
            }
            "allOf" | "anyOf" | "oneOf" => {
                let verdicts: Vec<_> =
                    bound.as_array()?.iter().map(|branch| self.value(branch, value)).collect();
                let fitting = verdicts.iter().filter(|verdict| **verdict == Some(true)).count();
                let unknown = verdicts.iter().filter(|verdict| verdict.is_none()).count();
                match (keyword, fitting, unknown) {
                    ("allOf", ..) => all(verdicts),
                    ("anyOf", 1.., _) => Some(true),
                    ("oneOf", 2.., _) => Some(false),
                    (_, fitting, 0) => Some(fitting == 1),
                    _ => None,
                }
            }
            "pattern" => match value {
                Value::String(text) => self.matches(bound.as_str()?, text),
                _ => Some(true),
            },
            _ => within(keyword, bound, value),
        }
    }

    /// Dialects of regular expressions agree on printable ASCII.
    fn matches(&mut self, pattern: &'s str, text: &str) -> Option<bool> {
        if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
            return None;
        }
        let compile = || {
            // Classes without Unicode are made in a fraction of the time, where the pattern allows it.
            let plain = RegexBuilder::new(pattern).unicode(false).build();
            plain.or_else(|_| RegexBuilder::new(pattern).build()).ok()
        };
        self.patterns.entry(pattern).or_insert_with(compile).as_ref().map(|pattern| pattern.is_match(text))
    }
}

/// Numbers of different spellings may be equal; only the others are plain.
fn equal(one: &Value, other: &Value) -> Option<bool> {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => (one == other).then_some(true),
        (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
            (one == other).then_some(true)
        }
        _ => Some(one == other),
    }
}

fn within(keyword: &str, bound: &Value, value: &Value) -> Option<bool> {
    let size = match (keyword, value) {
        ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", Value::Number(number)) => {
            number.as_f64()?
        }
        ("minLength" | "maxLength", Value::String(text)) => count(text.chars().count())?,
        ("minItems" | "maxItems", Value::Array(items)) => count(items.len())?,
        ("minProperties" | "maxProperties", Value::Object(members)) => count(members.len())?,
        (
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "minLength" | "maxLength"
            | "minItems" | "maxItems" | "minProperties" | "maxProperties",
            _,
        ) => return Some(true),
        _ => return None,
    };
    let bound = bound.as_f64()?;
    if size.abs() >= EXACT || bound.abs() >= EXACT {
        return None;
    }
    Some(is_within(keyword, size, bound))
}

fn count(number: usize) -> Option<f64> {
    u32::try_from(number).map(f64::from).ok()
}
