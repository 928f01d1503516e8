//! How commands end and how they print.

use std::{borrow::Cow, fmt::Write as _, io::IsTerminal};

use aegis_core::Violation;
use serde::Serialize;
use serde_json::{Value, json};

pub use crate::ending::Ending;
use crate::{
    cli::Global,
    client::Answer,
    ending::{Mistake, Obstacle},
};

/// `println!` that does not mind when nobody reads any more, as in `aegis tools list | head -1`.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

/// [`say`] without the line's end.
macro_rules! say_part {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = write!(std::io::stdout(), $($text)*);
    }};
}

pub(crate) use {say, say_part};

/// Text from outside as it may be shown in a terminal: nothing in it moves the cursor, begins a line or turns the
/// direction of writing.
pub fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(is_tricky) {
        return text.into();
    }
    text.chars()
        .fold(String::with_capacity(text.len()), |mut shown, character| {
            if is_tricky(character) {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(shown, "\\u{unit:04x}");
                }
            } else {
                shown.push(character);
            }
            shown
        })
        .into()
}

fn is_tricky(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Prints one JSON value on one line. Tricky characters stand in strings only, where `\u` means the same.
pub fn json_line(value: &impl Serialize) {
    match serde_json::to_string(value) {
        Ok(text) => say!("{}", harmless(&text)),
        Err(error) => eprintln!("error: the answer can't be written as JSON: {error}"),
    }
}

/// Line by line, since harmless text has no line breaks.
pub fn json_pretty(value: &Value) {
    for line in format!("{value:#}").lines() {
        say!("{}", harmless(line));
    }
}

/// An answer that is text: as it is for a program, harmless at a terminal.
pub fn answer(text: &str) {
    if std::io::stdout().is_terminal() {
        say!("{}", harmless_lines(text));
    } else {
        say!("{text}");
    }
}

/// Text whose line breaks and tabs are its own.
fn harmless_lines(text: &str) -> String {
    let keep = |character| matches!(character, '\n' | '\t');
    text.split_inclusive(keep)
        .map(|part| match part.strip_suffix(keep) {
            Some(rest) => format!("{}{}", harmless(rest), &part[rest.len()..]),
            None => harmless(part).into_owned(),
        })
        .collect()
}

/// A member that is text, as it may be shown in a terminal.
pub fn text(value: &Value) -> String {
    harmless(value.as_str().unwrap_or_default()).into_owned()
}

/// Shows the node's answer, in JSON or as `show` does, or why there is none.
pub fn finish(global: &Global, answer: Answer, show: impl FnOnce(&Value)) -> Ending {
    match answer {
        Answer::Ok(value) if global.json => json_line(&value),
        Answer::Ok(value) => show(&value),
        Answer::ToolFailed(_) => return Ending::Failed,
        Answer::Refused(violation) => return refusal(&violation, global.json),
    }
    Ending::Done
}

/// Tells why a call was refused, and ends accordingly.
pub fn refusal(violation: &Violation, as_json: bool) -> Ending {
    let ending = Ending::of(violation.kind);
    if as_json {
        json_line(&json!({"error": violation.to_jsonrpc()}));
        return ending;
    }
    let heading = if ending == Ending::Denied { "denied" } else { "error" };
    eprintln!("{heading} ({}): {}", violation.kind, harmless(&violation.message));
    if let Some(rule) = &violation.rule {
        eprintln!("  rule: {}", harmless(rule));
    }
    if let Some(hint) = &violation.hint {
        eprintln!("  next: {}", harmless(hint));
    }
    eprintln!("  more: aegis explain {}", violation.kind);
    ending
}

/// Tells why a command could not be carried out, and ends accordingly.
pub fn failure(error: &anyhow::Error, as_json: bool) -> Ending {
    if let Some(violation) = error.downcast_ref::<Violation>() {
        return refusal(violation, as_json);
    }
    let mistake = error.downcast_ref::<Mistake>();
    let obstacle = error.downcast_ref::<Obstacle>().map(|obstacle| obstacle.next.as_str());
    let next = mistake.and_then(|mistake| mistake.next.as_deref()).or(obstacle);
    let message = in_words(error);
    if as_json {
        let mut told = json!({ "message": message });
        if let Some(next) = next {
            told["data"] = json!({ "hint": next });
        }
        json_line(&json!({ "error": told }));
    } else {
        eprintln!("error: {message}");
        if let Some(next) = next {
            eprintln!("  next: {next}");
        }
    }
    if mistake.is_some() { Ending::Usage } else { Ending::Failed }
}

/// An error with its causes, each told once: many of them repeat their cause in their own words.
pub fn in_words(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        before if before.contains(&cause) => told,
        _ => format!("{told}: {cause}"),
    })
}

/// As [`table`], or where there are no rows, a sentence that says so and what to do next.
pub fn table_or<const N: usize>(headings: [&str; N], rows: &[[String; N]], nothing: &str) {
    if rows.is_empty() {
        say!("{nothing}");
    } else {
        table(headings, rows);
    }
}

/// Lines up rows under headings, as wide as their longest cell.
pub fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) {
    let mut widths = headings.map(|heading| heading.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        say!("{}", padded.join("  ").trim_end());
    };
    line(headings);
    for row in rows {
        line(std::array::from_fn(|index| row[index].as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once() {
        let cause = || std::io::Error::other("no such file");
        let repeated =
            anyhow::Error::new(cause()).context("a can't be read: no such file; see b").context("c");
        assert_eq!(in_words(&repeated), "c: a can't be read: no such file; see b");
        assert_eq!(in_words(&anyhow::Error::new(cause()).context("c")), "c: no such file");
    }

    #[test]
    fn nothing_from_outside_steers_the_terminal() {
        assert_eq!(harmless("plain ä 漢"), "plain ä 漢");
        assert_eq!(harmless("a\x1b[2J\nb\u{202e}c\u{9b}\x7f"), "a\\u001b[2J\\u000ab\\u202ec\\u009b\\u007f");
        assert_eq!(harmless_lines("a\tb\n\x1b]0;c\n\nd\r"), "a\tb\n\\u001b]0;c\n\nd\\u000d");
        let json = serde_json::to_string("x\u{202e}\x7f").unwrap();
        assert_eq!(serde_json::from_str::<String>(&harmless(&json)).unwrap(), "x\u{202e}\x7f");
    }
}
