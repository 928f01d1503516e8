//! Texts cut into words, and words into names and values.

use std::{borrow::Cow, ops::Range};

use super::names::{SHORTEST_KEY, ends_with_web_scheme};

/// Words as a shell would split them, with their quotes.
pub(super) fn shell_words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        if quote.is_none() && !escaped && character.is_whitespace() {
            words.extend(start.take().map(|start| start..at));
            continue;
        }
        start.get_or_insert(at);
        match character {
            _ if escaped => escaped = false,
            '\\' if quote != Some('\'') => escaped = true,
            '"' | '\'' if quote == Some(character) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(character),
            _ => {}
        }
    }
    words.extend(start.map(|start| start..text.len()));
    words
}

pub(super) fn blank_words(text: &str) -> Vec<Range<usize>> {
    let start = |word: &str| word.as_ptr().addr() - text.as_ptr().addr();
    text.split_whitespace().map(|word| start(word)..start(word) + word.len()).collect()
}

/// Whether a text has no sign, no blank and no quote that could announce a secret, and nothing long enough to be a key.
pub(super) fn is_one_plain_word(text: &str) -> bool {
    let mut run = 0;
    text.bytes().all(|byte| {
        run = if is_part(byte) { run + 1 } else { 0 };
        byte == b'/' || (1..SHORTEST_KEY).contains(&run)
    })
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// What a reader does not see, and what a name is the same without: soft hyphens, joiners, marks of order.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}'
    )
}

/// A text without what nobody sees.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !text.contains(is_invisible) {
        return text.into();
    }
    text.replace(is_invisible, "").into()
}

/// What `look` finds in the text as it is seen, where that is in the text.
pub(super) fn look_at_visible(
    text: &str,
    look: impl FnOnce(&str, &mut Vec<Range<usize>>),
) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let seen = visible(text);
    look(&seen, &mut found);
    if let Cow::Owned(_) = seen {
        let kept = text.char_indices().filter(|(_, character)| !is_invisible(*character));
        let mut places: Vec<usize> = kept.flat_map(|(at, character)| at..at + character.len_utf8()).collect();
        places.push(text.len());
        for range in &mut found {
            *range = places[range.start]..places[range.end];
        }
    }
    found
}

/// Whether a word says of which type the value is that follows: `!!str`.
pub(super) fn is_tag(word: &str) -> bool {
    const LONGEST: usize = 16;
    let name = word.trim_start_matches('!');
    (1..=LONGEST).contains(&name.len())
        && name.len() < word.len()
        && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Runs of characters that names are made of.
pub(super) fn names(word: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = word.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && !is_part(bytes[at]) {
            at += 1;
        }
        let start = at;
        while at < bytes.len() && is_part(bytes[at]) {
            at += 1;
        }
        (start < at).then_some(start..at)
    })
}

/// Where the value begins that a name ending at `end` has, if it has one: after `=` or `:` and what may stand around it.
pub(super) fn value_after(word: &str, end: usize) -> Option<usize> {
    Some(word.len() - without_quotes(signed_after(word, end)?).len())
}

/// What follows the sign after a name ending at `end`, with its quotes.
pub(super) fn signed_after(word: &str, end: usize) -> Option<&str> {
    let rest = &word[end..];
    let sign = rest.trim_start_matches(['"', '\'', '\\', ']']).trim_start();
    // Of an address, or of a path through modules.
    let joins = sign.starts_with("://") || rest.starts_with("::");
    signed(sign).filter(|_| !joins)
}

/// What follows `=`, `:`, `:=`, `=>` or `+=`, without the quotes around it.
pub(super) fn after_sign(text: &str) -> Option<&str> {
    signed(text).map(without_quotes)
}

fn signed(text: &str) -> Option<&str> {
    let added = ["+=", "?=", "||=", "??="].iter().find_map(|sign| text.strip_prefix(sign));
    let value = added.or_else(|| text.strip_prefix(['=', ':']))?.trim_start_matches(['=', ':', '>']);
    Some(value.trim_start())
}

fn without_quotes(value: &str) -> &str {
    value.trim_start_matches(['"', '\'', '\\'])
}

/// Where the value begins of a member that is called just that, after one that had the name: `"value": "X"`.
pub(super) fn value_of_pair(word: &str) -> Option<usize> {
    let first = names(word).next()?;
    word[first.clone()].eq_ignore_ascii_case("value").then(|| value_after(word, first.end))?
}

/// Where a digest or a signature ends that begins at `value`: too long to be a word, and made of nothing else.
pub(super) fn end_of_proof(word: &str, value: usize) -> Option<usize> {
    const SHORTEST: usize = 32;
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=_-%".contains(&byte);
    let length = word[value..].bytes().take_while(|byte| is_digit(*byte)).count();
    (length >= SHORTEST).then_some(value + length)
}

/// Whether a run of the word, whose first `?` is at `query`, is a parameter of an address: `?name=` or `&name=`.
pub(super) fn is_parameter(word: &str, query: Option<usize>, run: &Range<usize>) -> bool {
    query.is_some_and(|query| query < run.start)
        && word[..run.start].ends_with(['?', '&'])
        && word[run.end..].starts_with('=')
}

/// Where the value of a parameter ends that begins at `value`.
pub(super) fn end_of_parameter(word: &str, value: usize) -> usize {
    let ends = |character: char| matches!(character, '&' | '#' | '"' | '\'') || character.is_whitespace();
    word[value..].find(ends).map_or(word.len(), |end| value + end)
}

/// Where the password begins in `name:password`. Two numbers are a user and a group.
pub(super) fn password_after_name(word: &str) -> Option<usize> {
    let (name, password) = word.split_once(':')?;
    let is_number = password.bytes().all(|byte| byte.is_ascii_digit());
    (!is_number).then_some(name.len() + 1)
}

pub(super) fn passwords_in_addresses(word: &str, at: usize, found: &mut Vec<Range<usize>>) {
    for (colon, sign) in word.match_indices("://") {
        let start = colon + sign.len();
        let end = word[start..].find(['/', '\\', '?', '#', '"', '\'']).map_or(word.len(), |end| start + end);
        let Some(host) = word[start..end].rfind('@').map(|host| start + host) else { continue };
        // The name of a user alone is no secret, but for tokens that stand in its place.
        if ends_with_web_scheme(&word[..colon]) || word[start..host].contains(':') {
            found.push(at + start..at + host);
        }
    }
}

/// A word in which `%6F` is read as what it stands for, and where each byte of that, and its end, is in the word. Blanks
/// and what is not ASCII stay as they are: no word falls apart.
pub(super) fn percent_decoded(word: &str) -> Option<(String, Vec<usize>)> {
    let (mut decoded, mut places) = (String::new(), Vec::new());
    let mut rest = word;
    while let Some(character) = rest.chars().next() {
        let at = word.len() - rest.len();
        let (read, length) = escaped(rest).unwrap_or((character, character.len_utf8()));
        decoded.push(read);
        places.extend(at..at + read.len_utf8());
        rest = &rest[length..];
    }
    places.push(word.len());
    (decoded.len() < word.len()).then_some((decoded, places))
}

/// The character that an escape at the start of the text stands for, and how long that is. An escape of the sign itself,
/// as in `%253D`, is read through to its end.
fn escaped(text: &str) -> Option<(char, usize)> {
    let mut length = 3;
    let mut byte = escaped_byte(text.strip_prefix('%')?)?;
    while byte == b'%'
        && let Some(inner) = escaped_byte(&text[length..])
    {
        byte = inner;
        length += 2;
    }
    byte.is_ascii_graphic().then_some((char::from(byte), length))
}

fn escaped_byte(text: &str) -> Option<u8> {
    let digits = text.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u8::from_str_radix(digits, 16).ok()
}
