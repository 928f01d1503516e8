//! Secrets between quotes, found by the names before them wherever these stand. An apostrophe before, or quotes within
//! quotes, let a shell's words begin and end elsewhere.

use std::ops::Range;

use super::{
    names::{is_password, names_secret, sets_secret},
    split::{names, signed_after},
};

/// Adds what stands between quotes after the name of a secret.
pub(super) fn look_at_quoted(text: &str, found: &mut Vec<Range<usize>>) {
    if !text.contains(['"', '\'']) {
        return;
    }
    // Each search for an end begins after the one before it: a text is looked through once.
    let mut hidden = 0;
    let mut before = "";
    for run in names(text) {
        let name = &text[run.clone()];
        if run.start >= hidden
            && let Some(opening) = announced(text, before, name, run.end).and_then(|rest| opening(text, rest))
        {
            hidden = opening.end_of_value(text);
            found.extend((opening.value < hidden).then_some(opening.value..hidden));
        }
        before = name;
    }
}

/// What follows a name that ends at `end`, with its quotes, where that is a secret if it has some.
fn announced<'t>(text: &'t str, before: &str, name: &str, end: usize) -> Option<&'t str> {
    if let Some(value) = signed_after(text, end) {
        return names_secret(name).then_some(value);
    }
    let rest = &text[end..];
    // `setPassword("X")`
    if let Some(value) = rest.strip_prefix('(') {
        return sets_secret(name).then(|| value.trim_start());
    }
    // `--token "X"`, `WITH PASSWORD 'X'`, `IDENTIFIED BY 'X'`
    let announces = (name.starts_with('-') && names_secret(name))
        || is_password(name)
        || (name.eq_ignore_ascii_case("by") && before.eq_ignore_ascii_case("identified"));
    (announces && rest.starts_with(char::is_whitespace)).then(|| rest.trim_start())
}

/// A quote that opens, within others after so many backslashes.
#[derive(Debug, Clone, Copy)]
struct Opening {
    quote: u8,
    backslashes: usize,
    value: usize,
}

/// The quote that the end of the text begins with, after letters that say which kind of text it opens: `b"X"`, `$'X'`.
fn opening(text: &str, rest: &str) -> Option<Opening> {
    const MOST_LETTERS: usize = 2;
    let is_letter = |byte: &u8| b"$@bBfFrRuUL".contains(byte);
    let letters = rest.bytes().take(MOST_LETTERS).take_while(is_letter).count();
    let backslashes = rest[letters..].bytes().take_while(|byte| *byte == b'\\').count();
    let quote = *rest.as_bytes().get(letters + backslashes)?;
    let value = text.len() - rest.len() + letters + backslashes + 1;
    matches!(quote, b'"' | b'\'').then_some(Opening { quote, backslashes, value })
}

impl Opening {
    /// Where the value ends. One whose quote nothing closes goes on to the end.
    fn end_of_value(self, text: &str) -> usize {
        let bytes = text.as_bytes();
        let triple = [self.quote; 3];
        if bytes[self.value - 1..].starts_with(&triple) {
            let rest = &bytes[self.value + 2..];
            let end = rest.windows(triple.len()).position(|window| window == triple);
            return end.map_or(text.len(), |end| self.value + 2 + end);
        }
        let mut from = self.value;
        loop {
            let Some(close) = self.close(bytes, from) else { return text.len() };
            let Some(goes_on) = self.goes_on(&bytes[close..]) else {
                return close - self.backslashes;
            };
            from = close + goes_on;
        }
    }

    /// Where the quote stands that closes: as deep within others as the one that opened, and none that is part of the
    /// value, which has more backslashes.
    fn close(self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut backslashes = 0;
        (from..bytes.len()).find(|at| {
            let closes =
                bytes[*at] == self.quote && backslashes % (2 * (self.backslashes + 1)) == self.backslashes;
            backslashes = if bytes[*at] == b'\\' { backslashes + 1 } else { 0 };
            closes
        })
    }

    /// How much farther the value goes on, of which `rest` begins with the quote that closes: a shell and SQL write a
    /// quote within quotes by closing and opening them again.
    fn goes_on(self, rest: &[u8]) -> Option<usize> {
        if self.backslashes > 0 {
            return None;
        }
        let again: [&[u8]; 2] = [br"'\''", br#"'"'"'"#];
        let is_doubled =
            rest.get(1) == Some(&self.quote) && rest.get(2).is_some_and(u8::is_ascii_alphanumeric);
        again
            .iter()
            .find(|again| rest.starts_with(again))
            .map(|again| again.len())
            .or(is_doubled.then_some(2))
    }
}
