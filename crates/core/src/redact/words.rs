//! Secrets among the words of a command, or of any other text.
//!
//! A secret is known by what stands before it: an option (`--token X`), a variable or a member (`PASSWORD=X`,
//! `"password": "X"`), a header (`Authorization: Bearer X`), a parameter (`?sig=X`), the start of an address
//! (`https://ann:X@host`), or an element or a block around it. Some are known by how they begin. What is in doubt is
//! hidden: a record that says less can still be read, one that says too much can't be taken back.

use std::{borrow::Cow, ops::Range};

use super::{
    REDACTED,
    blocks::look_at_blocks,
    names::{is_password, is_scheme, looks_made_up, may_be_scheme},
    next::{AROUND, Next, after_cookie, after_value, inside, look_at_escaped, look_at_names},
    programs::{self, Program},
    quoted::look_at_quoted,
    split::{
        after_sign, blank_words, is_one_plain_word, is_tag, look_at_visible, password_after_name,
        passwords_in_addresses, shell_words, value_of_pair,
    },
};

/// Of a longer text no more is looked at, and nothing is kept of what was not.
const LONGEST: usize = 64 << 10;
/// A command within a command within a command.
const DEEPEST: usize = 4;
/// How a private key begins, as it is written in files.
const KEY_BEGINS: &str = "-----BEGIN";
const KEY_KIND: &str = "PRIVATE KEY";

/// Words without the secrets among them. The first may be the program that the others are for.
pub fn words(words: &[impl AsRef<str>]) -> Vec<Cow<'_, str>> {
    masked_words(words, Reader::list())
}

/// The arguments of a program without the secrets among them.
pub fn arguments_of<'w>(program: &str, words: &'w [impl AsRef<str>]) -> Vec<Cow<'w, str>> {
    let mut named = program.split_whitespace();
    let first = Program::named(named.next().unwrap_or_default());
    // `sudo mysql` is no name of a program, and says all the same what the arguments are of.
    let program = named.fold(first, |known, word| known.having(word));
    let reader = Reader { program, begins: false, ..Reader::list() };
    masked_words(words, reader)
}

fn masked_words(words: &[impl AsRef<str>], mut reader: Reader) -> Vec<Cow<'_, str>> {
    words
        .iter()
        .map(|word| {
            let word = bounded(word.as_ref());
            let found = look_at_visible(word, |word, found| {
                look_at_blocks(word, found);
                look_at_quoted(word, found);
                reader.read(word, 0, found);
            });
            masked(word, found)
        })
        .collect()
}

/// So much of a text as is looked at, without the secrets in it.
pub(super) fn masked_text(text: &str) -> Cow<'_, str> {
    let text = bounded(text);
    // Most are: a path, a name, a pattern.
    if is_one_plain_word(text) {
        return text.into();
    }
    masked(text, look_at_visible(text, look_at_text))
}

/// What of a text is looked at.
pub(super) fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

fn masked(text: &str, mut found: Vec<Range<usize>>) -> Cow<'_, str> {
    if found.is_empty() {
        return text.into();
    }
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let mut kept = String::with_capacity(text.len());
    let mut at = 0;
    for Range { start, end } in found {
        if start >= at {
            kept.push_str(&text[at..start]);
            kept.push_str(REDACTED);
        }
        at = at.max(end);
    }
    kept.push_str(&text[at..]);
    kept.into()
}

/// Adds the secrets of a text.
fn look_at_text(text: &str, found: &mut Vec<Range<usize>>) {
    // A shell's words would cut it.
    if let Some(key) = private_key(text) {
        found.push(key..text.len());
    }
    look_at_blocks(text, found);
    look_at_quoted(text, found);
    Reader::line(0).read_all(text, shell_words(text), 0, found);
}

/// Where a private key begins, which goes on to the end.
fn private_key(text: &str) -> Option<usize> {
    text.find(KEY_BEGINS).filter(|key| text[*key..].contains(KEY_KIND))
}

/// Reads words one after the other, and remembers what those before it mean for a word.
#[derive(Debug, Clone, Copy)]
struct Reader {
    next: Next,
    program: Program,
    /// Whether the name of a program may come.
    begins: bool,
    /// Whether the words are of a line that a shell would read.
    is_line: bool,
    depth: usize,
    /// How many more words may be of an entry that has a name and a password, as in `.netrc`.
    entry: u8,
}

impl Reader {
    fn line(depth: usize) -> Self {
        Self { next: Next::Plain, program: Program::UNKNOWN, begins: true, is_line: true, depth, entry: 0 }
    }

    fn list() -> Self {
        Self { is_line: false, ..Self::line(0) }
    }

    fn read_all(mut self, text: &str, words: Vec<Range<usize>>, at: usize, found: &mut Vec<Range<usize>>) {
        for word in words {
            self.read(&text[word.clone()], at + word.start, found);
        }
    }

    /// Adds the secrets of a word that begins at `at` of the whole.
    fn read(&mut self, word: &str, at: usize, found: &mut Vec<Range<usize>>) {
        // A line that goes on in the next one.
        if word.starts_with('\\') && word.trim_start_matches('\\').trim_start().is_empty() {
            return;
        }
        let bare = word.trim_matches(AROUND);
        let of_entry = self.entry == 1;
        self.entry = if matches!(bare, "login" | "machine") { 2 } else { self.entry.saturating_sub(1) };
        if let Some(next) = self.expected(word, bare, at, found) {
            self.next = next;
            return;
        }
        if self.begins && !bare.starts_with('-') {
            self.program = Program::named(bare);
            self.begins = programs::goes_before(bare);
        } else {
            self.program = self.program.having(bare);
        }
        // Of a list each word stands for itself, whatever it ends with.
        self.begins |= self.is_line && programs::ends_command(word);
        self.next = match self.look(word, bare, at, found) {
            Next::Named if is_password(bare) && of_entry => Next::Secret,
            Next::Named if is_password(bare) => Next::Password,
            next => next,
        };
    }

    /// What comes of a word that the one before it announced; `None` when it is to be looked at like any other.
    fn expected(&self, word: &str, bare: &str, at: usize, found: &mut Vec<Range<usize>>) -> Option<Next> {
        let whole = at..at + word.len();
        match self.next {
            // An option that follows is no value, but for one in quotes.
            Next::Secret if !word.starts_with("--") && !bare.is_empty() => {
                found.push(whole);
                // A name within is that of a part: `credentials: {A: X`.
                let goes_on = is_scheme(bare) || bare.ends_with(':') || is_tag(word);
                Some(if goes_on { Next::Secret } else { after_value(bare) })
            }
            Next::Scheme if !word.starts_with("--") && !bare.is_empty() => {
                found.push(whole);
                Some(if may_be_scheme(bare) { Next::Credentials } else { after_value(bare) })
            }
            Next::Credentials if !word.starts_with("--") && !bare.contains("://") => {
                found.push(whole);
                Some(if word.ends_with(',') { Next::Credentials } else { Next::Plain })
            }
            Next::Inside(open) => {
                found.push(whole);
                Some(inside(open, word))
            }
            Next::Ticks => {
                found.push(whole);
                Some(if word.contains('`') { Next::Plain } else { Next::Ticks })
            }
            Next::List => {
                found.push(whole);
                Some(if word.contains(']') { Next::Plain } else { Next::List })
            }
            Next::Braces => {
                let end = word.find('}').unwrap_or(word.len());
                found.push(at..at + end);
                Some(if end < word.len() { Next::Plain } else { Next::Braces })
            }
            Next::Cookie => {
                found.push(whole);
                Some(after_cookie(word))
            }
            Next::AfterColon => {
                let password = password_after_name(word)?;
                found.push(at + password..at + word.len());
                Some(Next::Plain)
            }
            Next::Named | Next::Password => {
                let sign = after_sign(word).filter(|_| !word.starts_with("::"));
                match sign.map(|value| word.len() - value.len()).or_else(|| value_of_pair(word)) {
                    Some(value) if value == word.len() => Some(Next::Secret),
                    Some(value) => {
                        found.push(at + value..at + word.len());
                        Some(after_value(&word[value..]))
                    }
                    None if self.next == Next::Password && looks_made_up(bare) => {
                        found.push(whole);
                        Some(Next::Plain)
                    }
                    None => None,
                }
            }
            Next::Kind if bare.starts_with("PRIVATE") => {
                found.push(whole);
                Some(Next::Key)
            }
            Next::Kind if !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                Some(Next::Kind)
            }
            Next::Key => {
                found.push(whole);
                Some(Next::Key)
            }
            Next::Secret | Next::Scheme | Next::Credentials | Next::Kind | Next::Plain => None,
        }
    }

    fn look(&self, word: &str, bare: &str, at: usize, found: &mut Vec<Range<usize>>) -> Next {
        if bare.ends_with(KEY_BEGINS) {
            return Next::Kind;
        }
        if let Some(key) = private_key(word) {
            found.push(at + key..at + word.len());
        }
        if bare.eq_ignore_ascii_case("bearer") {
            return Next::Secret;
        }
        if self.program.is_user_option(bare) {
            return Next::AfterColon;
        }
        let place = |part: &str| part.as_ptr().addr() - word.as_ptr().addr();
        if let Some(user) = self.program.joined_user(bare)
            && let Some(password) = password_after_name(user)
        {
            found.push(at + place(user) + password..at + word.len());
            return Next::Plain;
        }
        if let Some(password) = self.program.password(bare) {
            if password.is_empty() {
                return Next::Secret;
            }
            found.push(at + place(password)..at + word.len());
            return Next::Plain;
        }
        let blank = word.find(char::is_whitespace);
        passwords_in_addresses(word, at, found);
        if blank.is_none() {
            look_at_escaped(word, at, found);
        }
        let before = found.len();
        let next = look_at_names(word, blank, at, found);
        // What was hidden to its end is not looked at again.
        let is_hidden = || found[before..].iter().any(|range| range.end == at + word.len());
        if blank.is_some() && (next.is_none() || !is_hidden()) {
            self.look_inside(word, at, found);
        }
        next.unwrap_or(Next::Plain)
    }

    /// A word with blanks is a text of its own.
    fn look_inside(&self, word: &str, at: usize, found: &mut Vec<Range<usize>>) {
        if self.depth >= DEEPEST {
            found.push(at..at + word.len());
            return;
        }
        let mut inside = word;
        // A quote at the end that another in the middle opened belongs to what is inside.
        while let Some(quote) = inside.chars().next().filter(|first| matches!(first, '"' | '\'')) {
            inside = &inside[1..];
            inside = inside.strip_suffix(quote).unwrap_or(inside);
        }
        let begin = inside.as_ptr().addr() - word.as_ptr().addr();
        let words = match shell_words(inside) {
            // Its quotes hold it together: it is split at every blank.
            one if one.len() < 2 => blank_words(inside),
            several => several,
        };
        Reader::line(self.depth + 1).read_all(inside, words, at + begin, found);
    }
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
