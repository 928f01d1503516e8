//! Secrets that something larger than words is around: an element of XML, or a block of YAML.

use std::{collections::HashMap, ops::Range};

use super::names::names_secret;

/// Adds the secrets that are the content of an element or a block of a secret's name.
pub(super) fn look_at_blocks(text: &str, found: &mut Vec<Range<usize>>) {
    look_at_elements(text, found);
    look_at_yaml(text, found);
}

/// `<password>X</password>`
fn look_at_elements(text: &str, found: &mut Vec<Range<usize>>) {
    if !text.contains('<') || !(text.contains("</") || text.contains("/>")) {
        return;
    }
    // Of each name: where the content of the outermost begins, and how many are open.
    let mut open: HashMap<&str, (usize, usize)> = HashMap::new();
    let mut pieces = text.split('<');
    let mut at = pieces.next().map_or(0, str::len);
    for piece in pieces {
        let tag = at;
        at += 1 + piece.len();
        let (head, has_content) = piece.split_once('>').map_or((piece, false), |(head, _)| (head, true));
        if let Some(name) = head.strip_prefix('/').map(str::trim_end) {
            if let Some((begin, count)) = open.get_mut(name) {
                found.push(*begin..tag);
                *count -= 1;
                if *count == 0 {
                    open.remove(name);
                }
            }
            continue;
        }
        let name = head.split(|c: char| c == '/' || c.is_whitespace()).next().unwrap_or_default();
        let named = head.len() > name.len() && names_secret_in_attribute(&head[name.len()..]);
        let values = || ["value", "content"].iter().find_map(|value| attribute(&head[name.len()..], value));
        if named && let Some(value) = values() {
            let start = tag + 1 + name.len() + value.start;
            found.push(start..start + value.len());
        }
        let is_secret = named || names_secret(name.rsplit(':').next().unwrap_or_default());
        // Within one that is, each of the same name has an end of its own.
        if !head.ends_with('/') && (is_secret || open.contains_key(name)) {
            // An attribute with a `<` in it ends who knows where.
            let begin = if has_content { tag + 1 + head.len() + 1 } else { at };
            open.entry(name).or_insert((begin, 0)).1 += 1;
        }
    }
}

/// Whether an element says by an attribute whose value it has: `<property name="password">`.
fn names_secret_in_attribute(attributes: &str) -> bool {
    ["name", "key"]
        .iter()
        .any(|name| attribute(attributes, name).is_some_and(|value| names_secret(&attributes[value])))
}

/// Where the value of an attribute is, between its quotes.
fn attribute(attributes: &str, name: &str) -> Option<Range<usize>> {
    attributes.match_indices(name).find_map(|(at, _)| {
        let is_whole = attributes[..at].ends_with(char::is_whitespace);
        let rest = attributes[at + name.len()..].trim_start().strip_prefix('=')?.trim_start();
        let quote = rest.chars().next().filter(|quote| is_whole && matches!(quote, '"' | '\''))?;
        let start = attributes.len() - rest.len() + 1;
        let length = rest[1..].find(quote).unwrap_or(rest.len() - 1);
        Some(start..start + length)
    })
}

/// `token: |` with the value in the lines after it, and `tokens:` with a list of them.
fn look_at_yaml(text: &str, found: &mut Vec<Range<usize>>) {
    if !text.contains('\n') {
        return;
    }
    let mut at = 0;
    // The column of the name, while what belongs to it is farther to the right.
    let mut block: Option<usize> = None;
    // The same of a list, whose items may stand below the name; whether the first has come.
    let mut list: Option<(usize, bool)> = None;
    for line in text.split_inclusive('\n') {
        let (start, body) = (at, line.trim_end());
        at += line.len();
        let column = body.len() - body.trim_start().len();
        if block.is_some_and(|name| body.is_empty() || column > name) {
            found.extend((!body.is_empty()).then(|| start + column..start + body.len()));
            continue;
        }
        if let Some((name, begun)) = list {
            let is_item = column >= name && matches!(&body.as_bytes()[column..], [b'-'] | [b'-', b' ', ..]);
            if body.is_empty() || is_item || (begun && column > name) {
                found.extend((!body.is_empty()).then(|| start + column..start + body.len()));
                list = Some((name, begun || is_item));
                continue;
            }
        }
        list = begins_list(body).or_else(|| begins_list(without_comment(body)?)).map(|name| (name, false));
        block = begins_block(body).or_else(|| begins_block(without_comment(body)?));
    }
}

/// A line of YAML before its comment, if it has one.
fn without_comment(line: &str) -> Option<&str> {
    let (at, _) = line.match_indices('#').find(|(at, _)| line[..*at].ends_with([' ', '\t']))?;
    Some(line[..at].trim_end())
}

/// The column of the name of secrets, when nothing follows it in its line.
fn begins_list(line: &str) -> Option<usize> {
    let member = line.strip_suffix(':')?.trim_start_matches([' ', '\t', '-']);
    let name = member.trim_end().trim_matches(['"', '\'']);
    // `tokens` alone may be how many.
    let one = name.strip_suffix(['s', 'S']).unwrap_or(name);
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    (is_name && (names_secret(name) || names_secret(one))).then_some(line.len() - 1 - member.len())
}

/// The column of the secret's name, when the line says that its value comes in the next ones.
fn begins_block(line: &str) -> Option<usize> {
    let marks = line.trim_end_matches(|mark: char| mark.is_ascii_digit() || matches!(mark, '+' | '-'));
    if !marks.ends_with(['|', '>']) {
        return None;
    }
    let member = line.trim_start_matches([' ', '\t', '-']);
    let (name, mark) = member.split_once(':')?;
    let is_block = mark.split_whitespace().last().is_some_and(|mark| mark.starts_with(['|', '>']));
    (is_block && names_secret(name.trim().trim_matches(['"', '\'']))).then_some(line.len() - member.len())
}
