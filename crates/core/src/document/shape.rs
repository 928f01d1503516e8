//! What a document must look like: the JSON Schema of a Rust type, ready to judge.

use std::{collections::BTreeSet, sync::OnceLock};

use jsonschema::Validator;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    Diagnostic, Parsed,
    explain::explain,
    glance, serde_mistakes,
    tree::{self, Mark},
};

/// A schema, and its compiled validator once a document needed one. Making it costs more than a parse: what is parsed
/// often keeps it.
#[derive(Debug)]
pub struct Shape {
    schema: Value,
    validator: OnceLock<Result<Validator, String>>,
}

impl Shape {
    pub fn of<T: JsonSchema>() -> Self {
        Self::from_schema(schema_of::<T>())
    }

    pub fn from_schema(schema: Value) -> Self {
        Self { schema, validator: OnceLock::new() }
    }

    pub fn schema(&self) -> &Value {
        &self.schema
    }

    fn validator(&self) -> Result<&Validator, Vec<Diagnostic>> {
        let make = || jsonschema::validator_for(&self.schema).map_err(|error| error.to_string());
        self.validator.get_or_init(make).as_ref().map_err(|error| {
            vec![Diagnostic::at(Mark::START, "", format!("the schema itself is broken: {error}"))]
        })
    }

    /// Reads YAML as a `T`. Every mistake is reported at once, each with its place.
    pub fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<Parsed<T>, Vec<Diagnostic>> {
        let (root, mut mistakes) = tree::read(text).map_err(super::in_reading_order)?;
        let json = root.to_json();
        let fits = match glance::fits(&self.schema, &json) {
            Some(true) => true,
            _ => self.validator()?.is_valid(&json),
        };
        let mut found = explain(&self.schema, &root, fits);
        if fits {
            // The verdict is the validator's; a wrong guess at the branch someone meant is no mistake of theirs.
            found.errors.clear();
        } else if found.errors.is_empty() && found.refused.is_empty() {
            // One only: to list all could take memory that a hostile document chooses.
            if let Err(error) = self.validator()?.validate(&json) {
                let pointer = error.instance_path().as_str();
                let mark = root.nearest(pointer).0.node.mark;
                found.errors.push(Diagnostic::at(mark, pointer, error.masked().to_string()));
            }
        }
        mistakes.append(&mut found.errors);
        mistakes.append(&mut found.refused);
        if !mistakes.is_empty() {
            return Err(super::in_reading_order(mistakes));
        }
        match serde_path_to_error::deserialize(&json) {
            Ok(value) => Ok(Parsed { value, warnings: super::in_reading_order(found.warnings), json, root }),
            Err(error) => Err(super::in_reading_order(serde_mistakes::<T>(&root, json, error))),
        }
    }
}

/// The JSON Schema of a type, as it is published and as documents are judged by it.
///
/// Of schemars' output is straightened what would scatter the keys of one object over several places: a `$ref`
/// beside `properties` (the content of a tagged variant) becomes part of the object, and `properties` beside
/// alternatives (a struct with a flattened enum) become part of each. Rust's number formats go, since they are
/// in no standard.
pub fn schema_of<T: JsonSchema>() -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
    let definitions = schema.get("$defs").cloned().unwrap_or_default();
    straighten(&mut schema, &definitions);
    drop_unused_definitions(&mut schema);
    schema
}

fn straighten(schema: &mut Value, definitions: &Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties")
                && let Some(Value::Object(target)) = object
                    .get("$ref")
                    .and_then(Value::as_str)
                    .and_then(|reference| reference.strip_prefix("#/$defs/"))
                    .and_then(|name| definitions.get(name))
            {
                let target = target.clone();
                object.remove("$ref");
                fold(object, target);
            }
            let number_format = object.get("format").and_then(Value::as_str).is_some_and(|format| {
                format.starts_with("uint")
                    || format.starts_with("int")
                    || format == "double"
                    || format == "float"
            });
            if number_format {
                object.remove("format");
            }
            object.values_mut().for_each(|value| straighten(value, definitions));
            spread(object);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| straighten(item, definitions)),
        _ => {}
    }
}

fn spread(object: &mut Map<String, Value>) {
    let has_members = |branch: &Value| branch.get("properties").is_some();
    if !object.contains_key("properties")
        || !object
            .get("oneOf")
            .and_then(Value::as_array)
            .is_some_and(|branches| branches.iter().all(has_members))
    {
        return;
    }
    let common: Map<String, Value> =
        ["properties", "required"].into_iter().filter_map(|keyword| object.remove_entry(keyword)).collect();
    if let Some(Value::Array(branches)) = object.get_mut("oneOf") {
        for branch in branches.iter_mut().filter_map(Value::as_object_mut) {
            fold(branch, common.clone());
        }
    }
}

/// Adds the keys of an object schema to another; what both have, `object` keeps.
fn fold(object: &mut Map<String, Value>, other: Map<String, Value>) {
    for (keyword, value) in other {
        match (object.get_mut(&keyword), value) {
            (Some(Value::Object(mine)), Value::Object(theirs)) if keyword == "properties" => {
                for (name, schema) in theirs {
                    mine.entry(name).or_insert(schema);
                }
            }
            (Some(Value::Array(mine)), Value::Array(theirs)) if keyword == "required" => {
                for name in theirs {
                    if !mine.contains(&name) {
                        mine.push(name);
                    }
                }
            }
            (Some(_), _) => {}
            (None, value) => {
                object.insert(keyword, value);
            }
        }
    }
}

fn drop_unused_definitions(schema: &mut Value) {
    loop {
        let mut used = BTreeSet::new();
        references(schema, &mut used);
        let Some(Value::Object(definitions)) = schema.get_mut("$defs") else { return };
        let before = definitions.len();
        definitions.retain(|name, _| used.contains(name));
        if definitions.len() == before {
            return;
        }
    }
}

fn references(schema: &Value, used: &mut BTreeSet<String>) {
    match schema {
        Value::Object(object) => {
            if let Some(name) = object
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|reference| reference.strip_prefix("#/$defs/"))
            {
                used.insert(name.to_owned());
            }
            object.values().for_each(|value| references(value, used));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, used)),
        _ => {}
    }
}
