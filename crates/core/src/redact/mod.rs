//! What of a call's arguments may be written down.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::call::hex;

mod blocks;
mod names;
mod next;
mod programs;
mod quoted;
mod split;
mod words;

use names::{SECRET_BEGINNINGS, SHORTEST_KEY, WEB_SCHEMES};
pub use names::{is_secret_name, may_be_secret};
pub use words::{arguments_of, words};

const REDACTED: &str = "[redacted]";
/// Longer texts are stored as digest and preview.
const LONGEST_TEXT: usize = 256;
const PREVIEW_CHARS: usize = 64;
/// Arrays and objects keep this many members, and nest this deep, in the record.
const MOST_MEMBERS: usize = 64;
const DEEPEST: usize = 8;
/// When the whole is still larger than this, long members give way to digests.
const MOST_BYTES: usize = 32 * 1024;
const LONGEST_MEMBER: usize = 256;
/// Of the texts of one call, so much is looked at for secrets. Nothing is kept of what was not looked at.
const MOST_LOOKED_AT: usize = 256 << 10;

/// Members that name a program, and those that hold what it is given.
const PROGRAM_NAMES: [&str; 4] = ["command", "program", "cmd", "executable"];
const LIST_NAMES: [&str; 3] = ["args", "arguments", "argv"];

/// Shorter values are settings: `TOKEN_LIMIT=100`.
const SHORTEST_SECRET: usize = 8;

/// Whether a variable or a header of this name and value is a secret that somebody wrote down in plain text.
pub fn looks_secret(name: &str, value: &str) -> bool {
    if has_secret_beginning(value) || url_holds_secret(value) {
        return true;
    }
    let value = value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("Basic ")).unwrap_or(value);
    let is_setting = value.len() < SHORTEST_SECRET
        || value.contains(char::is_whitespace)
        || value.starts_with(['/', '.', '~', '$'])
        || value.contains("://")
        || value.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',')
        || says_how(name, value);
    may_be_secret(name) && !is_setting
}

/// Whether this is the way in which somebody proves who they are, and not the proof: `--auth required`.
fn says_how(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    (name == "auth" || name.ends_with("-auth"))
        && value.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn has_secret_beginning(value: &str) -> bool {
    let value =
        value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("token ")).unwrap_or(value).trim();
    value.len() >= 20 && SECRET_BEGINNINGS.iter().any(|beginning| value.starts_with(beginning))
}

/// Whether an address carries a password, or a secret among its parameters.
pub fn url_holds_secret(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split(['/', '#']).next().unwrap_or_default();
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
    if password.is_some_and(|(_, password)| !password.is_empty() && !password.starts_with('$')) {
        return true;
    }
    let parameters = query.split('#').next().unwrap_or_default().split('&');
    parameters
        .filter_map(|parameter| parameter.split_once('='))
        .any(|(name, value)| looks_secret(name, value))
}

/// The arguments of a program that look like secrets, with where in the argument the secret begins.
pub fn secret_arguments(arguments: &[String]) -> Vec<(usize, usize)> {
    let option = |argument: &str| argument.trim_start_matches('-').to_owned();
    let mut found = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| arguments[before].as_str()).unwrap_or_default();
        let after_option =
            before.starts_with('-') && !before.contains('=') && looks_secret(&option(before), argument);
        if has_secret_beginning(argument) || url_holds_secret(argument) || after_option {
            found.push((index, 0));
        } else if let Some((name, value)) = argument.split_once(['=', ':'])
            && !argument.contains("://")
            && looks_secret(&option(name), value.trim_start())
        {
            let blanks = value.len() - value.trim_start().len();
            found.push((index, name.len() + 1 + blanks));
        }
    }
    found
}

/// A copy of `arguments` fit for the record: whatever a caller sends, it stays within tens of kilobytes.
pub fn arguments(arguments: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = members(arguments, 0, &mut Budget(MOST_LOOKED_AT));
    if length(&kept) > MOST_BYTES {
        for value in kept.values_mut().filter(|value| length(value) > LONGEST_MEMBER) {
            *value = summary(value);
        }
    }
    kept
}

/// A text of the node's own that may repeat what a caller or a server sent, without the secrets in it.
pub fn message(text: &str) -> Cow<'_, str> {
    let whole = words::masked_text(text);
    if !whole.contains('`') {
        return whole;
    }
    // What it quotes is read by itself, too, as the argument that it was.
    let parts: Vec<Cow<'_, str>> = whole.split('`').map(quoted).collect();
    if parts.iter().all(|part| matches!(part, Cow::Borrowed(_))) {
        return whole;
    }
    parts.join("`").into()
}

/// So many characters of a text that a message is to repeat. Where that cuts something off, secrets are masked before:
/// what is left of a key may not look like one.
pub fn beginning(text: &str, longest: usize) -> Cow<'_, str> {
    /// Of what is cut off, enough is looked at to know what a secret at the cut is.
    const AROUND_THE_CUT: usize = 1024;
    let Some((cut, _)) = text.char_indices().nth(longest) else { return text.into() };
    let near = &text[..text.floor_char_boundary(cut + AROUND_THE_CUT)];
    message(near).chars().take(longest).collect()
}

fn quoted(part: &str) -> Cow<'_, str> {
    match without_password(part) {
        Cow::Borrowed(part) => words::masked_text(part),
        Cow::Owned(part) => words::masked_text(&part).into_owned().into(),
    }
}

/// As [`message`], of every text in what an event tells.
pub fn detail(detail: &mut Map<String, Value>) {
    detail.values_mut().for_each(told);
}

fn told(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(kept) = message(text) {
                *text = kept;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(told),
        Value::Object(members) => detail(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn length(value: &impl serde::Serialize) -> usize {
    serde_json::to_vec(value).map_or(0, |bytes| bytes.len())
}

/// How much of a call is still looked at.
struct Budget(usize);

impl Budget {
    /// Whether there is enough for so many bytes. Once there was not, there is nothing for what comes after, either.
    fn covers(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}

fn members(object: &Map<String, Value>, depth: usize, budget: &mut Budget) -> Map<String, Value> {
    // Which option means a password depends on the program.
    let program = PROGRAM_NAMES.iter().find_map(|name| object.get(*name)?.as_str());
    let value_is_secret = is_pair_of_secret(object);
    let mut kept: Map<String, Value> = object
        .iter()
        .take(MOST_MEMBERS)
        .map(|(name, member)| {
            if !is_short_and_plain(name) && !budget.covers(name.len()) {
                return (REDACTED.to_owned(), masked(member));
            }
            let value = match member {
                member if may_be_secret(&split::visible(name)) => masked(member),
                member if value_is_secret && name.eq_ignore_ascii_case("value") => masked(member),
                Value::Array(items) if LIST_NAMES.contains(&name.as_str()) => {
                    list(items, program, depth + 1, budget)
                }
                member => value(member, depth + 1, budget),
            };
            (clip(&member_name(name)), value)
        })
        .collect();
    if object.len() > MOST_MEMBERS {
        kept.insert("…".into(), (object.len() - MOST_MEMBERS).into());
    }
    kept
}

/// Whether one member names the secret that is the value of another: `{"name": "DB_PASSWORD", "value": "X"}`.
fn is_pair_of_secret(object: &Map<String, Value>) -> bool {
    const NAMES: [&str; 4] = ["name", "key", "variable", "header"];
    object.len() > 1
        && object.keys().any(|name| name.eq_ignore_ascii_case("value"))
        && object.iter().any(|(name, member)| {
            NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
                && member.as_str().is_some_and(may_be_secret)
        })
}

/// A name may hold what its value should: `{"token=X": 1}`.
fn member_name(name: &str) -> Cow<'_, str> {
    if is_short_and_plain(name) { name.into() } else { quoted(words::bounded(name)) }
}

/// Whether a name is too short to be a key, and of one word.
fn is_short_and_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'$');
    name.len() < SHORTEST_KEY && name.bytes().all(is_plain)
}

fn value(value: &Value, depth: usize, budget: &mut Budget) -> Value {
    match value {
        Value::String(text) => self::text(text, budget),
        Value::Object(_) if depth > DEEPEST => unread(value),
        Value::Array(items) => list(items, None, depth, budget),
        Value::Object(object) => Value::Object(members(object, depth, budget)),
        plain => plain.clone(),
    }
}

/// `program` is what the items are arguments of, where that is known.
fn list(items: &[Value], program: Option<&str>, depth: usize, budget: &mut Budget) -> Value {
    if depth > DEEPEST || items.len() > MOST_MEMBERS {
        return unread(&items);
    }
    match texts(items) {
        // What one word is may be said by the word before it.
        Some(texts) if budget.covers(texts.iter().map(|text| words::bounded(text).len()).sum()) => {
            let kept = match program {
                Some(program) => arguments_of(program, &texts),
                None => words(&texts),
            };
            kept.iter().zip(&texts).map(|(word, whole)| looked_at(word, whole)).collect()
        }
        Some(texts) => texts.iter().map(|text| unread_text(text)).collect(),
        None => items.iter().map(|item| value(item, depth + 1, budget)).collect(),
    }
}

fn texts(items: &[Value]) -> Option<Vec<&str>> {
    items.iter().map(Value::as_str).collect()
}

fn text(text: &str, budget: &mut Budget) -> Value {
    if !budget.covers(words::bounded(text).len()) {
        return unread_text(text);
    }
    looked_at(text, text)
}

/// What is kept of a text that the budget covers. As one of several words it may have been masked before.
fn looked_at(text: &str, whole: &str) -> Value {
    let text = without_password(text);
    let is_looked_at = |text: &str| words::bounded(text).len() == text.len();
    let all_is_looked_at = is_looked_at(whole) && is_looked_at(&text);
    let text = words::masked_text(&text);
    if all_is_looked_at && text.len() <= LONGEST_TEXT {
        return text.into();
    }
    let preview: String = text.chars().take(PREVIEW_CHARS).collect();
    let (digest, bytes) = match all_is_looked_at {
        true => (hex(&Sha256::digest(text.as_bytes())), text.len()),
        false => (REDACTED.to_owned(), whole.len()),
    };
    json!({"sha256": digest, "bytes": bytes, "preview": preview})
}

/// A URL may carry a password before its host; everything else of it is needed to know what was fetched. Web
/// addresses are read as leniently as a browser reads them: with any number of slashes, of either kind.
fn without_password(text: &str) -> Cow<'_, str> {
    let masked = || {
        let (scheme, rest) = text.split_once(':')?;
        let is_web = WEB_SCHEMES.iter().any(|web| scheme.trim().eq_ignore_ascii_case(web));
        if !is_web && !rest.starts_with("//") {
            return None;
        }
        let authority = rest.trim_start_matches(['/', '\\', '\t', '\n', '\r']);
        let end = authority.find(['/', '\\', '?', '#']).unwrap_or(authority.len());
        let at = authority[..end].rfind('@')?;
        Some(format!("{scheme}://[redacted]{}", &authority[at..]))
    };
    masked().map_or(Cow::Borrowed(text), Cow::Owned)
}

/// What stands for a text that nobody has looked at.
fn unread_text(text: &str) -> Value {
    if text.len() <= LONGEST_TEXT {
        return REDACTED.into();
    }
    json!({"sha256": REDACTED, "bytes": text.len()})
}

/// What stands for a value that nobody has looked at. Somewhere in it may be a secret, and whoever knows the rest could
/// find that from a digest by trying.
fn unread(value: &impl serde::Serialize) -> Value {
    json!({"sha256": REDACTED, "bytes": length(value)})
}

/// What stands for a value without the secrets in it.
fn summary(value: &Value) -> Value {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    json!({"sha256": hex(&Sha256::digest(&bytes)), "bytes": bytes.len()})
}

/// A digest of a secret would let one test guesses against the log, so nothing of it is kept.
fn masked(value: &Value) -> Value {
    if value.is_null() { Value::Null } else { REDACTED.into() }
}

/// Whether the record may hold less of this value than the call did. What a caller wrote to look like a redaction
/// counts as one: better not to know than to guess.
pub fn hides(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(REDACTED),
        Value::Array(items) => items.iter().any(hides),
        Value::Object(members) => {
            (members.contains_key("sha256") && members.contains_key("bytes")) || hides_any(members)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether the record may hold less than the call did, of arguments that it has as these.
pub fn hides_any(kept: &Map<String, Value>) -> bool {
    kept.iter().any(|(name, member)| hides_name(name) || hides(member))
}

/// Whether the record may hold less of the names than the call did, where it has a member of this name.
pub fn hides_name(name: &str) -> bool {
    name == "…" || name.contains(REDACTED) || name.chars().count() >= LONGEST_TEXT
}

fn clip(name: &str) -> String {
    name.chars().take(LONGEST_TEXT).collect()
}

#[cfg(test)]
mod spelling_tests;
#[cfg(test)]
mod tests;
