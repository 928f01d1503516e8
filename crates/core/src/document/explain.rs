//! Why a document does not fit its schema, in words that say what to write.
//!
//! Whether it fits is the validator's verdict. This walk goes along schema and document together and finds the
//! words: which of several alternatives was meant, which key was mistyped, what should stand in a place.
//!
//! Two annotations of a schema are shown instead of words of our own: `errorMessage` for whatever is wrong with
//! a value itself, `patternErrorMessage` for a text that does not match.

use std::collections::HashMap;

use jsonschema::Validator;
use serde_json::{Map, Value};

use super::{
    Diagnostic, MAX_DIAGNOSTICS,
    display::shown,
    lookup::{Schema, Schemas, accepts, only_requires, plainly_fits},
    pointer,
    tree::{Content, Entry, Mark, Node, Place},
    words::{found, keyword_message, list, quantity_refusal, sentence, wrong_type},
};
use crate::nearest::{nearest, suggestion};

/// Keys that tell alternatives apart, in the order they are tried.
const DISCRIMINATORS: [&str; 3] = ["kind", "type", "condition"];
/// More known keys than this are not listed.
const MAX_LISTED: usize = 14;
/// The walk ends here: more could not be shown anyway.
const ENOUGH: usize = 4 * MAX_DIAGNOSTICS;
/// Keywords about a value as such, left to the validator; the walk itself knows structure only.
const VALUE_KEYWORDS: [&str; 15] = [
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "format",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "propertyNames",
];

#[derive(Default)]
pub(super) struct Found {
    pub(super) errors: Vec<Diagnostic>,
    /// Durations and sizes that can't be read, whatever the validator says: their patterns are too wide to tell.
    pub(super) refused: Vec<Diagnostic>,
    pub(super) warnings: Vec<Diagnostic>,
}

/// Walks the document. With `fits` only keys that nothing reads are looked for.
pub(super) fn explain(schema: &Value, root: &Node, fits: bool) -> Found {
    let mut walk = Walk {
        schemas: Schemas::new(schema),
        fits,
        pointer: String::new(),
        found: Found::default(),
        validators: HashMap::new(),
    };
    walk.value(schema, &Place { node: root, key: None });
    walk.found
}

struct Walk<'s> {
    schemas: Schemas<'s>,
    fits: bool,
    pointer: String,
    found: Found,
    /// By the address of the schema they were made from, which lives as long as the walk.
    validators: HashMap<*const Schema, Option<Validator>>,
}

impl<'s> Walk<'s> {
    fn value(&mut self, schema: &'s Value, place: &Place<'_>) {
        if self.found.errors.len() >= ENOUGH {
            return;
        }
        let Some(outer) = schema.as_object() else {
            if schema == &Value::Bool(false) {
                self.error(place.opening(), "nothing may stand here".into());
            }
            return;
        };
        let inner = self.schemas.resolve(outer);
        let note = outer.get("errorMessage").or_else(|| inner.get("errorMessage")).and_then(Value::as_str);
        if let Some(options) = self.schemas.options(inner) {
            self.one_of(&options, note, place.node);
            return;
        }
        if let Some(types) = self.schemas.types(inner)
            && !types.iter().any(|wanted| accepts(wanted, place.node))
        {
            let mut message = wrong_type(&types, place.node);
            if let Some(form) = inner.get("patternErrorMessage").and_then(Value::as_str) {
                message.push_str(&format!(" ({form})"));
            }
            self.noted(note, place.node, message);
            return;
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(branches) = inner.get(keyword).and_then(Value::as_array) {
                if branches.iter().all(only_requires) {
                    self.one_set_of_keys(branches, keyword == "oneOf", place);
                } else {
                    self.alternatives(branches, note, place);
                }
            }
        }
        for part in inner.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.value(part, place);
        }
        match &place.node.content {
            Content::Mapping(entries) => self.mapping(inner, entries, place),
            Content::Sequence(items) => {
                if let Some(schema) = inner.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        self.below(&index.to_string(), |walk| {
                            walk.value(schema, &Place { node: item, key: None });
                        });
                    }
                }
            }
            Content::Scalar { .. } => {}
        }
        if let Content::Scalar { value: Value::String(text), .. } = &place.node.content
            && let Some(refusal) = inner
                .get("pattern")
                .and_then(Value::as_str)
                .and_then(|pattern| quantity_refusal(pattern, text))
        {
            self.found.refused.push(Diagnostic::at(place.node.mark, &self.pointer, refusal));
        } else if !self.fits {
            self.keywords(inner, note, place.node);
        }
    }

    fn mapping(&mut self, schema: &'s Schema, entries: &[Entry], place: &Place<'_>) {
        let known = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties").or_else(|| schema.get("unevaluatedProperties"));
        let mut strangers = Vec::new();
        for entry in entries {
            match (known.and_then(|known| known.get(&entry.key)), additional) {
                (Some(member), _) => self.member(member, entry),
                (None, Some(Value::Bool(false))) => strangers.push(entry),
                (None, Some(member)) => self.member(member, entry),
                (None, None) if known.is_some() => strangers.push(entry),
                (None, None) => {}
            }
        }
        let closed = additional == Some(&Value::Bool(false));
        let absent: Vec<&str> = known
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .filter(|key| !entries.iter().any(|entry| entry.key == *key))
            .collect();
        for key in
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            if entries.iter().any(|entry| entry.key == key) {
                continue;
            }
            let slip =
                strangers.iter().position(|entry| nearest(&entry.key, absent.iter().copied()) == Some(key));
            if let Some(index) = slip {
                let entry = strangers.remove(index);
                let message =
                    format!("unknown key {}; did you mean `{key}`, which is missing?", shown(&entry.key));
                self.below(&entry.key, |walk| walk.error(entry.mark, message));
            } else {
                let meaning = known.and_then(|known| known.get(key)).map(|member| self.meaning(member));
                self.error(place.opening(), format!("`{key}` is missing{}", meaning.unwrap_or_default()));
            }
        }
        for entry in strangers {
            let mut message = format!("unknown key {}", shown(&entry.key));
            let guess = suggestion(&entry.key, absent.iter().copied());
            if guess.is_empty() && (1..=MAX_LISTED).contains(&absent.len()) {
                message.push_str(&format!("; what could stand here: {}", list(&absent, "or")));
            }
            message.push_str(&guess);
            self.below(&entry.key, |walk| {
                if closed { walk.error(entry.mark, message) } else { walk.warning(entry.mark, message) }
            });
        }
    }

    fn member(&mut self, schema: &'s Value, entry: &Entry) {
        self.below(&entry.key, |walk| {
            walk.value(schema, &Place { node: &entry.value, key: Some(entry.mark) });
        });
    }

    fn one_of(&mut self, options: &[&Value], note: Option<&str>, node: &Node) {
        if let Content::Scalar { value, .. } = &node.content
            && options.contains(&value)
        {
            return;
        }
        let names: Vec<&str> = options.iter().filter_map(|option| option.as_str()).collect();
        let known = list(&names, "or");
        let message = match &node.content {
            Content::Scalar { value: Value::String(given), .. } => {
                let given_shown = shown(given);
                match (note, nearest(given, names.iter().copied())) {
                    (Some(note), _) => format!("{given_shown}: {note}"),
                    (None, Some(guess)) if names.len() > MAX_LISTED => {
                        format!("{given_shown} is not known here; did you mean `{guess}`?")
                    }
                    (None, Some(guess)) if names.len() > 1 => {
                        format!("{given_shown} is not known here; write {known}; did you mean `{guess}`?")
                    }
                    (None, _) => format!("{given_shown} is not known here; write {known}"),
                }
            }
            _ if note.is_some() => with_value(node, note.unwrap_or_default()),
            _ => format!("wants {known}, found {}", found(node)),
        };
        self.error(node.mark, message);
    }

    /// Picks the alternative that was meant and explains what is wrong with it.
    fn alternatives(&mut self, branches: &'s [Value], note: Option<&str>, place: &Place<'_>) {
        let mut live: Vec<&'s Value> = branches
            .iter()
            .filter(|branch| {
                branch.as_object().is_none_or(|branch| {
                    self.schemas
                        .types(self.schemas.resolve(branch))
                        .is_none_or(|types| types.iter().any(|wanted| accepts(wanted, place.node)))
                })
            })
            .collect();
        if matches!(place.node.content, Content::Mapping(_)) && !self.told_apart(&mut live, place) {
            return;
        }
        match live.as_slice() {
            [] => {}
            [only] => self.with_note(only, note, place),
            several => {
                let mut best: Option<Found> = None;
                for branch in several {
                    let outside = std::mem::take(&mut self.found);
                    self.value(branch, place);
                    let inside = std::mem::replace(&mut self.found, outside);
                    let cost =
                        |found: &Found| (found.errors.len() + found.refused.len(), found.warnings.len());
                    if best.as_ref().is_none_or(|best| cost(&inside) < cost(best)) {
                        best = Some(inside);
                    }
                }
                if let Some(best) = best {
                    self.found.errors.extend(best.errors);
                    self.found.refused.extend(best.refused);
                    self.found.warnings.extend(best.warnings);
                }
            }
        }
    }

    /// An `errorMessage` beside alternatives speaks for the one that is left.
    fn with_note(&mut self, branch: &'s Value, note: Option<&str>, place: &Place<'_>) {
        let before = self.found.errors.len();
        self.value(branch, place);
        let Some(note) = note else { return };
        for error in &mut self.found.errors[before..] {
            if error.pointer == self.pointer {
                error.message = with_value(place.node, note);
            }
        }
    }

    /// Keeps the alternatives that the document's own `kind`, `type` or `condition` names. `false` when it names
    /// none of them, which is then said.
    fn told_apart(&mut self, live: &mut Vec<&'s Value>, place: &Place<'_>) -> bool {
        let schemas = self.schemas;
        let Some(key) = DISCRIMINATORS.into_iter().find(|key| {
            live.len() > 1
                && live.iter().filter(|branch| schemas.member_options(branch, key).is_some()).count() + 1
                    >= live.len()
        }) else {
            return true;
        };
        let all: Vec<&str> = live
            .iter()
            .flat_map(|branch| schemas.member_options(branch, key).unwrap_or_default())
            .filter_map(Value::as_str)
            .collect();
        match place.node.entry(key) {
            None => {
                if live.iter().all(|branch| schemas.requires(branch, key)) {
                    let slip = match &place.node.content {
                        Content::Mapping(entries) => entries
                            .iter()
                            .find(|entry| nearest(&entry.key, [key]).is_some())
                            .map(|entry| &entry.key),
                        _ => None,
                    };
                    let slip =
                        slip.map_or_else(String::new, |slip| format!(" ({} looks like it)", shown(slip)));
                    self.error(
                        place.opening(),
                        format!("`{key}` is missing{slip}: write {}", list(&all, "or")),
                    );
                    return false;
                }
                live.retain(|branch| !schemas.requires(branch, key));
            }
            Some(entry) => {
                let given = match &entry.value.content {
                    Content::Scalar { value: Value::String(given), .. } => given.as_str(),
                    _ => "",
                };
                if !all.contains(&given) {
                    let all: Vec<Value> = all.into_iter().map(Value::from).collect();
                    let all: Vec<&Value> = all.iter().collect();
                    self.below(key, |walk| walk.one_of(&all, None, &entry.value));
                    return false;
                }
                live.retain(|branch| {
                    schemas
                        .member_options(branch, key)
                        .is_some_and(|options| options.iter().any(|option| option.as_str() == Some(given)))
                });
            }
        }
        true
    }

    /// Alternatives that only name required keys: one set of them must be there, and where they exclude each
    /// other only one.
    fn one_set_of_keys(&mut self, branches: &[Value], exclusive: bool, place: &Place<'_>) {
        let sets: Vec<Vec<&str>> = branches
            .iter()
            .filter_map(|branch| branch.get("required")?.as_array())
            .map(|keys| keys.iter().filter_map(Value::as_str).collect())
            .collect();
        let there = sets.iter().filter(|set| set.iter().all(|key| place.node.entry(key).is_some())).count();
        let words: Vec<String> = sets.iter().map(|set| list(set, "and")).collect();
        if there == 0 {
            self.error(place.opening(), format!("missing: write {}", words.join(", or ")));
        } else if exclusive && there > 1 {
            self.error(place.opening(), format!("keep one of: {}", words.join(", or ")));
        }
    }

    fn keywords(&mut self, schema: &'s Schema, note: Option<&str>, node: &Node) {
        if VALUE_KEYWORDS.iter().all(|keyword| plainly_fits(keyword, schema.get(*keyword), node)) {
            return;
        }
        let validator = self.validators.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            let own: Schema = VALUE_KEYWORDS
                .iter()
                .filter_map(|keyword| {
                    schema.get(*keyword).map(|value| ((*keyword).to_owned(), value.clone()))
                })
                .collect();
            if own.is_empty() { None } else { jsonschema::validator_for(&Value::Object(own)).ok() }
        });
        let Some(validator) = validator else { return };
        let json = node.to_json();
        let messages: Vec<String> =
            validator.iter_errors(&json).map(|error| keyword_message(&error, schema)).collect();
        for message in messages {
            self.noted(note, node, message);
        }
    }

    /// What a key is for, from its description.
    fn meaning(&self, schema: &'s Value) -> String {
        let Some(outer) = schema.as_object() else { return String::new() };
        let inner = self.schemas.resolve(outer);
        if let Some(options) = self.schemas.options(inner) {
            let names: Vec<&str> = options.iter().filter_map(|option| option.as_str()).collect();
            return format!(": write {}", list(&names, "or"));
        }
        let description =
            outer.get("description").or_else(|| inner.get("description")).and_then(Value::as_str);
        description.map(sentence).map_or_else(String::new, |text| format!(": {text}"))
    }

    fn below(&mut self, segment: &str, walk: impl FnOnce(&mut Self)) {
        let length = self.pointer.len();
        pointer::push(&mut self.pointer, segment);
        walk(self);
        self.pointer.truncate(length);
    }

    fn noted(&mut self, note: Option<&str>, node: &Node, message: String) {
        let message = note.map_or(message, |note| with_value(node, note));
        self.error(node.mark, message);
    }

    fn error(&mut self, mark: Mark, message: String) {
        self.found.errors.push(Diagnostic::at(mark, &self.pointer, message));
    }

    fn warning(&mut self, mark: Mark, message: String) {
        if self.found.warnings.len() < ENOUGH {
            self.found.warnings.push(Diagnostic::at(mark, &self.pointer, message));
        }
    }
}

fn with_value(node: &Node, note: &str) -> String {
    format!("found {}: {note}", found(node))
}
