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
    if !text.contains("</") {
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
        if !head.ends_with('/') && names_secret(name.rsplit(':').next().unwrap_or_default()) {
            // An attribute with a `<` in it ends who knows where.
            let begin = if has_content { tag + 1 + head.len() + 1 } else { at };
            open.entry(name).or_insert((begin, 0)).1 += 1;
        }
    }
}

/// `token: |` with the value in the lines after it.
fn look_at_yaml(text: &str, found: &mut Vec<Range<usize>>) {
    if !text.contains('\n') {
        return;
    }
    let mut at = 0;
    // The column of the name, while what belongs to it is farther to the right.
    let mut block: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let (start, body) = (at, line.trim_end());
        at += line.len();
        let column = body.len() - body.trim_start().len();
        if block.is_some_and(|name| body.is_empty() || column > name) {
            found.extend((!body.is_empty()).then(|| start + column..start + body.len()));
            continue;
        }
        block = begins_block(body).or_else(|| begins_block(without_comment(body)?));
    }
}

/// A line of YAML before its comment, if it has one.
fn without_comment(line: &str) -> Option<&str> {
    let (at, _) = line.match_indices('#').find(|(at, _)| line[..*at].ends_with([' ', '\t']))?;
    Some(line[..at].trim_end())
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
