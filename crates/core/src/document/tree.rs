//! YAML text to a tree that remembers where everything stood.
//!
//! The parser's events are read one by one instead of loading a finished tree: only so can aliases be counted
//! before they are expanded, duplicate keys be seen at all, and reading stop at a limit.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use saphyr::Scalar;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Map, Number, Value};

use super::{Diagnostic, display::shown, pointer};

/// Longer documents are refused unread.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// How many values a document may hold with every alias expanded.
pub const MAX_NODES: usize = 20_000;
/// How many bytes of text its values and keys may hold with every alias expanded.
pub const MAX_EXPANDED_BYTES: usize = 4 << 20;
pub const MAX_DEPTH: usize = 64;
const MAX_KEY_BYTES: usize = 256;

/// Counted from 1, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl Mark {
    pub(super) const START: Self = Self { line: 1, column: 1 };

    /// The end of the text, when the parser missed something only after it.
    fn within(self, text: &str) -> Self {
        let lines = text.lines().count();
        if self.line <= lines {
            return self;
        }
        let last = text.lines().last().map_or(0, |line| line.chars().count());
        Self { line: lines.max(1), column: last + 1 }
    }
}

impl From<Span> for Mark {
    fn from(span: Span) -> Self {
        Self { line: span.start.line().max(1), column: span.start.col() + 1 }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) mark: Mark,
    pub(super) content: Content,
    /// Values in this subtree, itself included, and the bytes of their text.
    nodes: usize,
    bytes: usize,
}

#[derive(Debug)]
pub(super) enum Content {
    /// `written` is the source text: `3.10` is the number 3.1, and a message must not say so.
    Scalar {
        value: Value,
        written: Box<str>,
    },
    Sequence(Vec<Arc<Node>>),
    Mapping(Vec<Entry>),
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) mark: Mark,
    pub(super) value: Arc<Node>,
}

impl Node {
    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar { value, .. } => value.clone(),
            Content::Sequence(items) => items.iter().map(|item| item.to_json()).collect(),
            Content::Mapping(entries) => Value::Object(
                entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect::<Map<_, _>>(),
            ),
        }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.content {
            Content::Mapping(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The value that `pointer` names.
    pub(super) fn at(&self, pointer: &str) -> Option<&Self> {
        let (place, rest) = self.nearest(pointer);
        rest.is_empty().then_some(place.node)
    }

    /// The deepest value on the way to `pointer`, the mark of the key it stands under, and what is left of the
    /// pointer from there.
    pub(super) fn nearest<'p>(&self, pointer: &'p str) -> (Place<'_>, &'p str) {
        let mut place = Place { node: self, key: None };
        let mut rest = pointer;
        while let Some(tail) = rest.strip_prefix('/') {
            let end = tail.find('/').unwrap_or(tail.len());
            let segment = pointer::unescape(&tail[..end]);
            let next = match &place.node.content {
                Content::Mapping(entries) => entries
                    .iter()
                    .find(|entry| entry.key == segment)
                    .map(|entry| Place { node: &entry.value, key: Some(entry.mark) }),
                Content::Sequence(items) => segment
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index))
                    .map(|item| Place { node: item, key: None }),
                Content::Scalar { .. } => None,
            };
            let Some(next) = next else { break };
            place = next;
            rest = &tail[end..];
        }
        (place, rest)
    }
}

pub(super) struct Place<'a> {
    pub(super) node: &'a Node,
    pub(super) key: Option<Mark>,
}

impl Place<'_> {
    /// Where to point when something is missing in here: at the key that opens it, else at its first character.
    pub(super) fn opening(&self) -> Mark {
        self.key.unwrap_or(self.node.mark)
    }
}

/// Reads one document. With a tree come the mistakes that did not keep it from being read.
pub(super) fn read(text: &str) -> Result<(Arc<Node>, Vec<Diagnostic>), Vec<Diagnostic>> {
    check_text(text).map_err(|mistake| vec![mistake])?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        text,
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        path: String::new(),
        mistakes: Vec::new(),
        nodes: 0,
        bytes: 0,
    };
    match reader.document() {
        Ok(root) => Ok((root, reader.mistakes)),
        Err(fatal) => {
            reader.mistakes.push(fatal);
            Err(reader.mistakes)
        }
    }
}

/// What no YAML document may be or hold.
fn check_text(text: &str) -> Result<(), Diagnostic> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(Diagnostic::at(
            Mark::START,
            "",
            format!("the document has {} bytes; {MAX_TEXT_BYTES} is the limit", text.len()),
        ));
    }
    let forbidden = |c: char| {
        c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}') || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    if let Some(position) = text.find(forbidden) {
        let before = &text[..position];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let mark =
            Mark { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 };
        let found = text[position..].chars().next().map_or(0, u32::from);
        let name = if found == 0 {
            "a NUL character".to_owned()
        } else {
            format!("the control character U+{found:04X}")
        };
        return Err(Diagnostic::at(
            mark,
            "",
            format!("{name} can't stand in YAML; in a quoted text write \\u{found:04x}"),
        ));
    }
    Ok(())
}

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    anchors: HashMap<usize, Arc<Node>>,
    path: String,
    mistakes: Vec<Diagnostic>,
    nodes: usize,
    bytes: usize,
}

impl<'t> Reader<'t> {
    fn document(&mut self) -> Result<Arc<Node>, Diagnostic> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(
                        self.mistake(span, "a second document begins here; write one document only".into())
                    );
                }
                Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
                event => root = Some(self.node(event, span, 0)?),
            }
        }
        match root {
            Some(root) if !matches!(&root.content, Content::Scalar { value: Value::Null, .. }) => Ok(root),
            _ => Err(Diagnostic::at(Mark::START, "", "the document is empty".into())),
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), Diagnostic> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                let mark = Mark::from(Span::empty(*error.marker())).within(self.text);
                Err(Diagnostic::at(mark, &self.path, not_yaml(error.info())))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Arc<Node>, Diagnostic> {
        if depth > MAX_DEPTH {
            return Err(self.mistake(span, format!("nested more than {MAX_DEPTH} levels deep")));
        }
        let (anchor, content) = match event {
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(self.mistake(span, "the alias stands inside what it stands for".into()));
                };
                self.charge(node.nodes, node.bytes, span)?;
                return Ok(node);
            }
            Event::Scalar(text, style, anchor, tag) => {
                let written: Box<str> = text.as_ref().into();
                let value = match Scalar::parse_from_cow_and_metadata(text, style, tag.as_ref()) {
                    Some(scalar) if tag.as_ref().is_none_or(|tag| tag.is_yaml_core_schema()) => {
                        self.scalar(scalar, &written, style, span)
                    }
                    _ => {
                        self.unknown_tag(tag.as_ref().map(ToString::to_string), span);
                        Value::Null
                    }
                };
                (anchor, Content::Scalar { value, written })
            }
            Event::SequenceStart(anchor, tag) => {
                if tag.is_some_and(|tag| !(tag.is_yaml_core_schema() && tag.suffix == "seq")) {
                    self.unknown_tag(None, span);
                }
                (anchor, self.sequence(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                if tag.is_some_and(|tag| !(tag.is_yaml_core_schema() && tag.suffix == "map")) {
                    self.unknown_tag(None, span);
                }
                (anchor, self.mapping(depth)?)
            }
            _ => return Err(self.mistake(span, "this is no YAML: a value is missing".into())),
        };
        let (mut nodes, mut bytes) = (1, 0);
        match &content {
            Content::Scalar { written, .. } => bytes += written.len(),
            Content::Sequence(items) => {
                for item in items {
                    nodes += item.nodes;
                    bytes += item.bytes;
                }
            }
            Content::Mapping(entries) => {
                for entry in entries {
                    nodes += entry.value.nodes;
                    bytes += entry.value.bytes + entry.key.len();
                }
            }
        }
        // What is inside was charged when it was read.
        self.charge(1, if let Content::Scalar { written, .. } = &content { written.len() } else { 0 }, span)?;
        let node = Arc::new(Node { mark: span.into(), content, nodes, bytes });
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn sequence(&mut self, depth: usize) -> Result<Content, Diagnostic> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok(Content::Sequence(items));
            }
            let length = self.path.len();
            pointer::push(&mut self.path, &items.len().to_string());
            items.push(self.node(event, span, depth + 1)?);
            self.path.truncate(length);
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Content, Diagnostic> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut seen = HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Content::Mapping(entries));
            }
            let key = self.key(event, span, depth)?;
            let length = self.path.len();
            if let Some(key) = &key {
                pointer::push(&mut self.path, key);
            }
            let (event, value_span) = self.next()?;
            let value = self.node(event, value_span, depth + 1)?;
            self.path.truncate(length);
            let Some(key) = key else { continue };
            self.charge(0, key.len(), span)?;
            if seen.insert(key.clone()) {
                entries.push(Entry { key, mark: span.into(), value });
            } else {
                let first = entries.iter().find(|entry| entry.key == key).map_or(0, |entry| entry.mark.line);
                pointer::push(&mut self.path, &key);
                let mistake = self.mistake(
                    span,
                    format!("the key {} is written twice; it stands in line {first} already", shown(&key)),
                );
                self.mistakes.push(mistake);
                self.path.truncate(length);
            }
        }
    }

    /// The text of a key; `None` when it is none, which is then noted.
    fn key(&mut self, event: Event<'t>, span: Span, depth: usize) -> Result<Option<String>, Diagnostic> {
        let merge = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<");
        let node = self.node(event, span, depth + 1)?;
        let wrong = match &node.content {
            Content::Scalar { .. } if merge => {
                "merge keys (`<<`) are not understood; write the members out".to_owned()
            }
            Content::Scalar { value: Value::String(key), .. } if key.len() > MAX_KEY_BYTES => {
                format!("a key of {} bytes; {MAX_KEY_BYTES} is the limit", key.len())
            }
            Content::Scalar { value: Value::String(key), .. } => return Ok(Some(key.clone())),
            Content::Scalar { value: Value::Null, .. } => "a key is missing before the `:`".to_owned(),
            Content::Scalar { written, .. } => {
                format!("keys are text: write \"{}\" in quotes", shown(written).trim_matches('`'))
            }
            Content::Sequence(_) | Content::Mapping(_) => "keys are text, not lists or mappings".to_owned(),
        };
        let mistake = self.mistake(span, wrong);
        self.mistakes.push(mistake);
        Ok(None)
    }

    fn scalar(&mut self, scalar: Scalar<'t>, written: &str, style: ScalarStyle, span: Span) -> Value {
        match scalar {
            Scalar::Null => Value::Null,
            Scalar::Boolean(value) => value.into(),
            Scalar::Integer(value) => value.into(),
            // Above i64 the parser answers with a float, which would lose digits.
            Scalar::FloatingPoint(_) if style == ScalarStyle::Plain && written.parse::<u64>().is_ok() => {
                written.parse::<u64>().map_or(Value::Null, Value::from)
            }
            Scalar::FloatingPoint(value) => Number::from_f64(value.into_inner()).map_or_else(
                || {
                    let mistake =
                        self.mistake(span, format!("{} is not a number that can be used", shown(written)));
                    self.mistakes.push(mistake);
                    Value::Null
                },
                Value::Number,
            ),
            Scalar::String(text) => text.into_owned().into(),
        }
    }

    fn unknown_tag(&mut self, tag: Option<String>, span: Span) {
        let tag = tag.map_or_else(|| "this tag".to_owned(), |tag| shown(&tag));
        let mistake =
            self.mistake(span, format!("{tag} does not fit its value or is not known; leave it out"));
        self.mistakes.push(mistake);
    }

    /// Counts what a value adds with its aliases expanded.
    fn charge(&mut self, nodes: usize, bytes: usize, span: Span) -> Result<(), Diagnostic> {
        self.nodes = self.nodes.saturating_add(nodes);
        self.bytes = self.bytes.saturating_add(bytes);
        if self.nodes > MAX_NODES || self.bytes > MAX_EXPANDED_BYTES {
            let limit = format!(
                "with its aliases expanded the document is too large: {MAX_NODES} values and \
                 {MAX_EXPANDED_BYTES} bytes of text are the limit"
            );
            return Err(self.mistake(span, limit));
        }
        Ok(())
    }

    fn mistake(&self, span: Span, message: String) -> Diagnostic {
        Diagnostic::at(span.into(), &self.path, message)
    }
}

fn not_yaml(info: &str) -> String {
    let hint = if info.contains("tab") { "; indent with spaces" } else { "" };
    format!("this is no YAML: {info}{hint}")
}
