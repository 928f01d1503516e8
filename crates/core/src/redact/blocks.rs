//! Secrets that something larger than words is around: an element of XML, or a block of YAML.

use std::ops::Range;

use super::names::names_secret;

/// Adds the secrets that are the content of an element or a block of a secret's name.
pub(super) fn look_at_blocks(text: &str, found: &mut Vec<Range<usize>>) {
    look_at_elements(text, found);
    look_at_yaml(text, found);
}

/// `<password>X</password>`
fn look_at_elements(text: &str, found: &mut Vec<Range<usize>>) {
    const CLOSES: &str = "</";
    let mut from = 0;
    for (close, _) in text.match_indices(CLOSES) {
        let rest = &text[close + CLOSES.len()..];
        let name = rest.split(['>', '<']).next().unwrap_or_default().trim_end();
        if names_secret(name.rsplit(':').next().unwrap_or_default()) {
            found.extend(begin_of(name, &text[from..close]).map(|begin| from + begin..close));
            // Looked through once, however many of them close.
            from = close + CLOSES.len();
        }
    }
}

/// Where the content of an element begins, whose start is in this text.
fn begin_of(name: &str, text: &str) -> Option<usize> {
    let is_start = |at: usize| {
        let after = &text[at + name.len()..];
        text[..at].ends_with('<') && after.starts_with(|next: char| next == '>' || next.is_whitespace())
    };
    let (start, _) = text.match_indices(name).find(|(at, _)| is_start(*at))?;
    text[start..].find('>').map(|end| start + end + 1)
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
        block = begins_block(body);
    }
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
