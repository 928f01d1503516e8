//! Arguments against the tool's schema: nothing unknown, nothing missing, defaults filled, numbers clamped.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use aegis_core::{ToolSpec, Violation, ViolationKind, nearest::suggestion, redact};
use jsonschema::{
    PatternOptions, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::{Map, Value};

/// Marks a number that is cut to its maximum instead of refused.
const CLAMP: &str = "x-clamp";
/// Mistakes named in one message; a model mends them one round at a time anyway.
const MOST_MISTAKES: usize = 5;

/// Tools of MCP servers whose validators are kept. When there are more they are all made again, which costs time and
/// nothing else.
const MOST_KEPT: usize = 16_384;

type Compiled = Result<Validator, String>;

/// Holds a compiled validator per tool, made when the tool is first called.
#[derive(Debug)]
pub struct ArgumentsGate {
    validators: HashMap<String, OnceLock<Compiled>>,
    /// Of tools that came later. A definition that changes is another, so each goes with the schema it was made of.
    later: RwLock<HashMap<String, Arc<Later>>>,
}

#[derive(Debug)]
struct Later {
    schema: Value,
    compiled: Compiled,
}

impl ArgumentsGate {
    pub fn new<'a>(tools: impl IntoIterator<Item = &'a ToolSpec>) -> Self {
        Self {
            // What a server calls its own changes while the node runs.
            validators: tools
                .into_iter()
                .filter(|tool| !tool.is_upstream())
                .map(|tool| (tool.name.to_string(), OnceLock::new()))
                .collect(),
            later: RwLock::default(),
        }
    }

    /// Makes the arguments what the tool will see, or says what is wrong with them.
    pub fn check(&self, tool: &ToolSpec, arguments: &mut Map<String, Value>) -> Result<(), Violation> {
        // What a server means by a default or a null is its own affair: its schema is held against what was sent.
        if tool.is_upstream() {
            return self.whole(tool, arguments);
        }
        let schema = &tool.input_schema;
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|names| names.iter().any(|known| known == name))
        };
        arguments.retain(|name, value| !value.is_null() || required(name));
        Self::check_names(tool, arguments)?;
        if let Some(properties) = schema["properties"].as_object() {
            for (name, property) in properties {
                fill(arguments, name, property);
            }
        }
        self.whole(tool, arguments)
    }

    fn whole(&self, tool: &ToolSpec, arguments: &mut Map<String, Value>) -> Result<(), Violation> {
        let subject = Value::Object(std::mem::take(arguments));
        let mistakes = self.mistakes(tool, &subject);
        if let Value::Object(checked) = subject {
            *arguments = checked;
        }
        match mistakes?.as_slice() {
            [] => Ok(()),
            mistakes => Err(invalid(tool, &mistakes.join("; "))),
        }
    }

    fn check_names(tool: &ToolSpec, arguments: &Map<String, Value>) -> Result<(), Violation> {
        let schema = &tool.input_schema;
        let empty = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&empty);
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if arguments.get(name).is_none_or(Value::is_null) {
                let slip = arguments.keys().find(|given| {
                    !properties.contains_key(*given) && aegis_core::nearest::nearest(given, [name]).is_some()
                });
                let note = slip.map_or_else(String::new, |given| format!(" (`{}` is unknown)", clip(given)));
                return Err(invalid(tool, &format!("required field '{name}' is missing or null{note}")));
            }
        }
        if schema["additionalProperties"] == Value::Bool(false)
            && let Some(unknown) = arguments.keys().find(|name| !properties.contains_key(*name))
        {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            let close = suggestion(unknown, known.iter().copied());
            let takes = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            return Err(invalid(
                tool,
                &format!("unknown field '{}'{close} (the tool takes: {takes})", clip(unknown)),
            ));
        }
        Ok(())
    }

    fn mistakes(&self, tool: &ToolSpec, subject: &Value) -> Result<Vec<String>, Violation> {
        match self.validators.get(tool.name.as_ref()) {
            Some(cell) => {
                let compiled = cell.get_or_init(|| {
                    jsonschema::options()
                        .should_validate_formats(true)
                        .build(&tool.input_schema)
                        .map_err(|error| error.to_string())
                });
                found(tool, compiled, subject)
            }
            None => found(tool, &self.later(tool).compiled, subject),
        }
    }

    fn later(&self, tool: &ToolSpec) -> Arc<Later> {
        let kept = self.later.read().unwrap_or_else(PoisonError::into_inner).get(tool.name.as_ref()).cloned();
        if let Some(kept) = kept.filter(|kept| kept.schema == tool.input_schema) {
            return kept;
        }
        // A pattern from outside is matched in linear time, whatever it is.
        let compiled = jsonschema::options()
            .with_pattern_options(PatternOptions::regex())
            .build(&tool.input_schema)
            .map_err(|error| error.to_string());
        let made = Arc::new(Later { schema: tool.input_schema.clone(), compiled });
        let mut later = self.later.write().unwrap_or_else(PoisonError::into_inner);
        if later.len() >= MOST_KEPT {
            later.clear();
        }
        later.insert(tool.name.to_string(), Arc::clone(&made));
        made
    }
}

fn found(tool: &ToolSpec, compiled: &Compiled, subject: &Value) -> Result<Vec<String>, Violation> {
    match compiled {
        Ok(validator) if validator.is_valid(subject) => Ok(Vec::new()),
        Ok(validator) => {
            Ok(validator.iter_errors(subject).take(MOST_MISTAKES).map(|error| describe(&error)).collect())
        }
        Err(error) => Err(Violation::new(
            ViolationKind::InternalError,
            format!("the schema of `{}` does not compile: {error}", tool.name),
        )),
    }
}

fn fill(arguments: &mut Map<String, Value>, name: &str, property: &Value) {
    match arguments.get_mut(name) {
        None => {
            if let Some(default) = property.get("default") {
                arguments.insert(name.to_owned(), default.clone());
            }
        }
        Some(value) if property.get(CLAMP) == Some(&Value::Bool(true)) => {
            if let (Some(number), Some(maximum)) = (value.as_f64(), property["maximum"].as_f64())
                && number > maximum
            {
                *value = property["maximum"].clone();
            }
        }
        Some(_) => {}
    }
}

fn invalid(tool: &ToolSpec, what: &str) -> Violation {
    Violation::new(
        ViolationKind::InvalidArguments,
        format!("Invalid tool arguments: {what} for tool '{}'", tool.name),
    )
    .hint(format!("the schema is in tools/list and in `aegis tools show {}`", tool.name))
}

/// One mistake in words a model can act on, without repeating what may be a huge value.
fn describe(error: &jsonschema::ValidationError<'_>) -> String {
    let pointer = error.instance_path().to_string();
    let field = match pointer.strip_prefix('/') {
        Some(path) => format!("field '{}'", clip(&path.replace('/', "."))),
        None => "the arguments".to_owned(),
    };
    match error.kind() {
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => {
                    kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            format!("{field} must be of type {wanted}, not {}", type_name(error.instance()))
        }
        ValidationErrorKind::MinLength { limit: 1 } => format!("{field} must not be empty"),
        ValidationErrorKind::MinLength { limit } => format!("{field} must have at least {limit} characters"),
        ValidationErrorKind::MaxLength { limit } => format!("{field} must have at most {limit} characters"),
        ValidationErrorKind::MaxItems { limit } => format!("{field} must have at most {limit} items"),
        ValidationErrorKind::Minimum { limit } => format!("{field} must be at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("{field} must be at most {limit}"),
        ValidationErrorKind::Enum { options } => format!("{field} must be one of {options}"),
        ValidationErrorKind::Format { format } => format!("{field} must be a valid {format}"),
        ValidationErrorKind::Required { property } => {
            let lacks = if pointer.is_empty() { "lack" } else { "lacks" };
            format!("{field} {lacks} the required member {property}")
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let shown = unexpected.iter().take(MOST_MISTAKES);
            let names: Vec<String> = shown.map(|name| format!("'{}'", clip(name))).collect();
            let more = if unexpected.len() > MOST_MISTAKES { ", …" } else { "" };
            let has = if pointer.is_empty() { "have" } else { "has" };
            format!("{field} {has} unknown members: {}{more}", names.join(", "))
        }
        // What else may be wrong is told with the value, which may be a secret.
        _ => format!("{field}: {}", clip(&error.masked().to_string())),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn clip(text: &str) -> String {
    const LONGEST: usize = 120;
    let cut = if text.chars().nth(LONGEST).is_some() { "…" } else { "" };
    format!("{}{cut}", redact::beginning(text, LONGEST))
}
