//! YAML documents (manifests and configuration) read with places: every mistake comes back with its line, its
//! column, its JSON pointer and what to write instead.

mod display;
mod explain;
mod glance;
mod lookup;
pub(crate) mod pointer;
mod shape;
mod tree;
mod words;
mod write;

use std::{collections::HashMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use display::render;
pub(crate) use display::shown;
use display::visible;
pub use shape::{Shape, schema_of};
pub use tree::{MAX_DEPTH, MAX_EXPANDED_BYTES, MAX_NODES, MAX_TEXT_BYTES};
use tree::{Mark, Node};
pub(crate) use words::DNS_LABEL;
pub use write::to_yaml;

/// After this many mistakes the rest is counted, not listed.
pub const MAX_DIAGNOSTICS: usize = 50;

/// Something wrong with a document, or worth a second look, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// JSON pointer to the value; empty for the document as a whole.
    pub pointer: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong and what to write instead, in one line.
    pub message: String,
}

impl Diagnostic {
    fn at(mark: Mark, pointer: &str, message: String) -> Self {
        Self { pointer: pointer.to_owned(), line: mark.line, column: mark.column, message: visible(message) }
    }
}

/// A document that has the shape of `T`, with what is needed to point into its text.
#[derive(Debug)]
pub struct Parsed<T> {
    pub value: T,
    /// Keys that nothing reads, where the schema leaves room for them.
    pub warnings: Vec<Diagnostic>,
    json: Value,
    root: Arc<Node>,
}

impl<T> Parsed<T> {
    /// A remark about the value at `pointer`, or, when nothing stands there, about what it is missing from.
    pub fn diagnostic(&self, pointer: &str, message: String) -> Diagnostic {
        let (place, rest) = self.root.nearest(pointer);
        let mark = if rest.is_empty() { place.node.mark } else { place.opening() };
        Diagnostic::at(mark, pointer, message)
    }

    /// Whether something stands at `pointer`: a default is not written.
    pub fn is_written(&self, pointer: &str) -> bool {
        self.root.at(pointer).is_some()
    }

    /// The document as it was written, without the defaults.
    pub fn json(&self) -> &Value {
        &self.json
    }
}

/// Reads YAML as a `T`. Every mistake is reported at once, each with its place.
pub fn parse<T: DeserializeOwned + JsonSchema>(text: &str) -> Result<Parsed<T>, Vec<Diagnostic>> {
    Shape::of::<T>().parse(text)
}

/// Reads YAML of our own, which a test has held against its schema: a node that starts has better things to do.
pub(crate) fn read_own<T: DeserializeOwned>(text: &str) -> Option<T> {
    let (root, _) = tree::read(text).ok()?;
    serde_json::from_value(root.to_json()).ok()
}

/// Sorted by place and cut to what a person will read.
pub(crate) fn in_reading_order(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by(|a, b| {
        (a.line, a.column, &a.pointer, &a.message).cmp(&(b.line, b.column, &b.pointer, &b.message))
    });
    diagnostics.dedup();
    if diagnostics.len() > MAX_DIAGNOSTICS {
        let more = diagnostics.len() - MAX_DIAGNOSTICS;
        diagnostics.truncate(MAX_DIAGNOSTICS);
        if let Some(last) = diagnostics.last().cloned() {
            // Not everything is looked at while something else is wrong.
            let message = format!("and at least {more} more; mend these first");
            diagnostics.push(Diagnostic { pointer: String::new(), message, ..last });
        }
    }
    diagnostics
}

type SerdeError = serde_path_to_error::Error<serde_json::Error>;

/// Serde stops at the first mistake. Where that is one text of a list, the list is read again without it, so that
/// every entry of the list is told of.
fn serde_mistakes<T: DeserializeOwned>(root: &Node, mut json: Value, first: SerdeError) -> Vec<Diagnostic> {
    let mut mistakes = Vec::new();
    let mut left = Left::new();
    let mut next = Some(first);
    while let Some(error) = next.take() {
        let pointer = serde_pointer(&json, &error);
        let place = place_in_document(&pointer, &left);
        if let Some((list, index)) = pointer.rsplit_once('/')
            && let Ok(index) = index.parse::<usize>()
            && let Some(Value::Array(items)) = json.pointer_mut(list)
            && items.get(index).is_some_and(Value::is_string)
        {
            let list = place_in_document(list, &left);
            left.entry(list).or_insert_with(|| (0..items.len()).collect()).remove(index);
            items.remove(index);
            if mistakes.len() < MAX_DIAGNOSTICS {
                next = serde_path_to_error::deserialize::<_, T>(&json).err();
            }
        }
        let mark = root.nearest(&place).0.node.mark;
        mistakes.push(Diagnostic::at(mark, &place, error.inner().to_string()));
    }
    mistakes
}

/// Of each list, by its pointer in the document, where there those entries stand that are still in it.
type Left = HashMap<String, Vec<usize>>;

/// The pointer in the document of what `pointer` leads to now: entries that were taken out have moved those after them,
/// and all that these hold.
fn place_in_document(pointer: &str, left: &Left) -> String {
    let mut place = String::with_capacity(pointer.len());
    for segment in pointer.split('/').skip(1) {
        let stood = left.get(&place).and_then(|stand| stand.get(segment.parse::<usize>().ok()?));
        place.push('/');
        match stood {
            Some(index) => place.push_str(&index.to_string()),
            None => place.push_str(segment),
        }
    }
    place
}

/// Inside tagged and untagged enums serde knows only the enum's own place. The messages of this crate quote the text
/// they are about, which is then looked for further in.
fn serde_pointer(json: &Value, error: &SerdeError) -> String {
    let mut pointer = String::new();
    for segment in error.path().iter() {
        match segment {
            serde_path_to_error::Segment::Seq { index } => pointer::push(&mut pointer, &index.to_string()),
            serde_path_to_error::Segment::Map { key } => pointer::push(&mut pointer, key),
            serde_path_to_error::Segment::Enum { .. } | serde_path_to_error::Segment::Unknown => {}
        }
    }
    let message = error.inner().to_string();
    if let Some(quoted) = message.split('`').nth(1)
        && let Some(inner) = json.pointer(&pointer).and_then(|value| only_place_of(value, quoted))
    {
        pointer.push_str(&inner);
    }
    pointer
}

/// The pointer to the one text in `value` that equals `text`; `None` when there is none, or more than one.
fn only_place_of(value: &Value, text: &str) -> Option<String> {
    fn collect(value: &Value, text: &str, at: &mut String, found: &mut Vec<String>) {
        let length = at.len();
        match value {
            Value::String(here) if here == text => found.push(at.clone()),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    pointer::push(at, &index.to_string());
                    collect(item, text, at, found);
                    at.truncate(length);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    pointer::push(at, key);
                    collect(member, text, at, found);
                    at.truncate(length);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(value, text, &mut String::new(), &mut found);
    if found.len() == 1 { found.pop() } else { None }
}

#[cfg(test)]
mod tests;
