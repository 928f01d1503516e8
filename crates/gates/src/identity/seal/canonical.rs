//! The bytes a client signed, rebuilt from the body it sent.
//!
//! Clients sort the members of every object, leave white space out and escape as little as JSON allows. They do not
//! agree on how a number is written, so numbers are copied as they came; nor on how names beyond the basic plane sort,
//! so there are two orders. The reader goes over the text once, writes canonical text as it goes, and remembers the
//! objects whose members did not come in order; when there are any, one more pass puts them right. Every byte is
//! copied at most twice, however deep the text nests.

mod scalars;

use std::{cmp::Ordering, fmt};

/// How deep arrays and objects nest, counted from the envelope. Less than what the parser of arguments takes.
pub const DEEPEST: u32 = 100;
/// The longest text that is read: positions are kept in 32 bits, and a body is held in memory several times.
pub const LONGEST: usize = 8 << 20;

/// How names sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// By code point, as Python does.
    CodePoint,
    /// By UTF-16 code unit, as JavaScript does. Differs for names with characters beyond U+FFFF.
    Utf16,
}

impl Order {
    fn compare(self, one: &str, other: &str) -> Ordering {
        match self {
            Self::CodePoint => one.cmp(other),
            Self::Utf16 => one.encode_utf16().cmp(other.encode_utf16()),
        }
    }
}

/// Why a text can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error("it is longer than {} MiB", LONGEST >> 20)]
    TooLong,
    #[error("it is not JSON: byte {at} can't stand there")]
    Syntax { at: usize },
    #[error("it nests deeper than {DEEPEST} levels")]
    TooDeep,
    #[error("`{name}` is there twice in one object")]
    Duplicate { name: String },
    #[error("the escape at byte {at} is half of a surrogate pair")]
    LoneSurrogate { at: usize },
}

/// A value in canonical form.
pub fn canonical(text: &str, order: Order) -> Result<Vec<u8>, Unreadable> {
    let mut reader = Reader::new(text, order)?;
    reader.space();
    reader.value()?;
    reader.end()?;
    Ok(reader.finish())
}

/// Where a member or an object stands in what was written.
#[derive(Clone, Copy)]
struct Span {
    from: u32,
    to: u32,
}

struct Member {
    /// In `names`.
    name: Span,
    /// In `out`, from the quote of its name to the end of its value.
    written: Span,
}

/// An object whose members did not come in order.
struct Unsorted {
    written: Span,
    /// Its members in order, in `sorted`.
    members: Span,
}

pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    order: Order,
    depth: u32,
    /// Canonical text, but for the order of members.
    pub(super) out: Vec<u8>,
    /// The unescaped names of the objects that are open.
    names: String,
    /// The members of the objects that are open, the innermost last.
    members: Vec<Member>,
    unsorted: Vec<Unsorted>,
    sorted: Vec<Span>,
    astral_names: bool,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("at", &self.at).finish_non_exhaustive()
    }
}

/// A place in what was written that can be gone back to.
pub(super) struct Mark {
    out: usize,
    unsorted: usize,
    sorted: usize,
    astral_names: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, order: Order) -> Result<Self, Unreadable> {
        if text.len() > LONGEST {
            return Err(Unreadable::TooLong);
        }
        Ok(Self {
            text,
            at: 0,
            order,
            depth: 0,
            out: Vec::with_capacity(text.len()),
            names: String::new(),
            members: Vec::new(),
            unsorted: Vec::new(),
            sorted: Vec::new(),
            astral_names: false,
        })
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Whether another order of names could give other bytes.
    pub(super) fn has_astral_names(&self) -> bool {
        self.astral_names
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn wrong(&self) -> Unreadable {
        Unreadable::Syntax { at: self.at }
    }

    pub(super) fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Goes past one byte that must be there.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Unreadable> {
        if self.peek() != Some(byte) {
            return Err(self.wrong());
        }
        self.at += 1;
        Ok(())
    }

    /// Goes past a comma (true) or the closing byte (false) after a member or an item.
    pub(super) fn more(&mut self, closing: u8) -> Result<bool, Unreadable> {
        self.space();
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                self.space();
                Ok(true)
            }
            Some(byte) if byte == closing => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.wrong()),
        }
    }

    pub(super) fn end(&mut self) -> Result<(), Unreadable> {
        self.space();
        if self.at == self.text.len() { Ok(()) } else { Err(self.wrong()) }
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            out: self.out.len(),
            unsorted: self.unsorted.len(),
            sorted: self.sorted.len(),
            astral_names: self.astral_names,
        }
    }

    pub(super) fn back_to(&mut self, mark: &Mark) {
        self.out.truncate(mark.out);
        self.unsorted.truncate(mark.unsorted);
        self.sorted.truncate(mark.sorted);
        self.astral_names = mark.astral_names;
    }

    pub(super) fn descend(&mut self) -> Result<(), Unreadable> {
        if self.depth >= DEEPEST {
            return Err(Unreadable::TooDeep);
        }
        self.depth += 1;
        Ok(())
    }

    pub(super) fn value(&mut self) -> Result<(), Unreadable> {
        match self.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'"') => self.string(false),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true"),
            Some(b'f') => self.literal("false"),
            Some(b'n') => self.literal("null"),
            _ => Err(self.wrong()),
        }
    }

    fn object(&mut self) -> Result<(), Unreadable> {
        self.descend()?;
        let start = self.out.len();
        let (base, names) = (self.members.len(), self.names.len());
        let mut in_order = true;
        self.at += 1;
        self.out.push(b'{');
        self.space();
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            loop {
                if self.members.len() > base {
                    self.out.push(b',');
                }
                let from = self.out.len();
                let name = self.name()?;
                if let Some(last) = self.members.get(base..).and_then(<[Member]>::last) {
                    in_order &= self.compare(last.name, name).is_lt();
                }
                self.space();
                self.expect(b':')?;
                self.out.push(b':');
                self.space();
                self.value()?;
                self.members.push(Member { name, written: span(from, self.out.len()) });
                if !self.more(b'}')? {
                    break;
                }
            }
        }
        self.out.push(b'}');
        if !in_order {
            self.sort(base, span(start, self.out.len()))?;
        }
        self.members.truncate(base);
        self.names.truncate(names);
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), Unreadable> {
        self.descend()?;
        self.at += 1;
        self.out.push(b'[');
        self.space();
        if self.peek() == Some(b']') {
            self.at += 1;
        } else {
            loop {
                self.value()?;
                if !self.more(b']')? {
                    break;
                }
                self.out.push(b',');
            }
        }
        self.out.push(b']');
        self.depth -= 1;
        Ok(())
    }

    /// A member's name: canonical in what is written, unescaped in `names`, since that is what sorts.
    fn name(&mut self) -> Result<Span, Unreadable> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong());
        }
        let from = self.names.len();
        self.string(true)?;
        self.astral_names |= self.names.as_bytes()[from..].iter().any(|byte| *byte >= 0xf0);
        Ok(span(from, self.names.len()))
    }

    fn compare(&self, one: Span, other: Span) -> Ordering {
        self.order.compare(self.named(one), self.named(other))
    }

    fn named(&self, name: Span) -> &str {
        &self.names[name.from as usize..name.to as usize]
    }

    fn sort(&mut self, base: usize, written: Span) -> Result<(), Unreadable> {
        let mut members = self.members.split_off(base);
        members.sort_unstable_by(|one, other| self.compare(one.name, other.name));
        for pair in members.windows(2) {
            if let [one, other] = pair
                && self.named(one.name) == self.named(other.name)
            {
                let name = self.named(one.name).chars().take(60).collect();
                return Err(Unreadable::Duplicate { name });
            }
        }
        let from = self.sorted.len();
        self.sorted.extend(members.iter().map(|member| member.written));
        self.unsorted.push(Unsorted { written, members: span(from, self.sorted.len()) });
        Ok(())
    }

    /// What was written, with the members of every object in order.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.unsorted.is_empty() {
            return self.out;
        }
        self.unsorted.sort_unstable_by_key(|object| object.written.from);
        let mut target = Vec::with_capacity(self.out.len() + 1024);
        self.copy(span(0, self.out.len()), &mut target);
        target
    }

    fn copy(&self, part: Span, target: &mut Vec<u8>) {
        let mut at = part.from;
        loop {
            // Objects that have been copied begin before `at`.
            let next = self.unsorted.partition_point(|object| object.written.from < at);
            let Some(object) = self.unsorted.get(next).filter(|object| object.written.from < part.to) else {
                target.extend_from_slice(self.written(span(at as usize, part.to as usize)));
                return;
            };
            target.extend_from_slice(self.written(Span { from: at, to: object.written.from + 1 }));
            let members = &self.sorted[object.members.from as usize..object.members.to as usize];
            for (index, member) in members.iter().enumerate() {
                if index > 0 {
                    target.push(b',');
                }
                self.copy(*member, target);
            }
            at = object.written.to - 1;
        }
    }

    fn written(&self, part: Span) -> &[u8] {
        &self.out[part.from as usize..part.to as usize]
    }
}

/// Positions fit: no text is longer than `LONGEST`, and canonical text is never longer than its source.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
fn span(from: usize, to: usize) -> Span {
    Span { from: from as u32, to: to as u32 }
}
