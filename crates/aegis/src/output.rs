//! How commands end and how they print.

use std::{borrow::Cow, fmt::Write as _, process::ExitCode};

use aegis_core::{Violation, violation::Layer};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{cli::Global, client::Answer};

/// Exit codes that scripts can rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Done,
    Failed,
    /// Bad usage; clap uses the same code.
    Usage,
    /// Policy said no.
    Denied,
    /// A person has to agree first.
    Waiting,
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(match ending {
            Ending::Done => 0,
            Ending::Failed => 1,
            Ending::Usage => 2,
            Ending::Denied => 3,
            Ending::Waiting => 4,
        })
    }
}

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

/// A member that is text, as it may be shown in a terminal.
pub fn text(value: &Value) -> String {
    harmless(value.as_str().unwrap_or_default()).into_owned()
}

/// Shows the node's answer, in JSON or as `show` does, or why there is none.
pub fn finish(global: &Global, answer: Answer, show: impl FnOnce(&Value)) -> anyhow::Result<Ending> {
    Ok(shown(global, answer, show))
}

/// As [`finish`], where a refusal is never bad usage: the command was right, the state is another.
pub fn finish_change(global: &Global, answer: Answer, show: impl FnOnce(&Value)) -> Ending {
    match shown(global, answer, show) {
        Ending::Usage => Ending::Failed,
        other => other,
    }
}

fn shown(global: &Global, answer: Answer, show: impl FnOnce(&Value)) -> Ending {
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
    if as_json {
        json_line(&json!({"error": violation.to_jsonrpc()}));
    } else {
        eprintln!("{}: {}", heading(violation), harmless(&violation.message));
        if let Some(rule) = &violation.rule {
            eprintln!("  rule: {}", harmless(rule));
        }
        if let Some(hint) = &violation.hint {
            eprintln!("  next: {}", harmless(hint));
        }
        eprintln!("  more: aegis explain {}", violation.kind);
    }
    match violation.kind.layer() {
        Layer::Policy | Layer::Routing => Ending::Denied,
        Layer::Contract => Ending::Usage,
        Layer::Identity | Layer::Node => Ending::Failed,
    }
}

fn heading(violation: &Violation) -> String {
    match violation.kind.layer() {
        Layer::Policy | Layer::Routing => format!("denied ({})", violation.kind),
        _ => format!("error ({})", violation.kind),
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
    fn nothing_from_outside_steers_the_terminal() {
        assert_eq!(harmless("plain ä 漢"), "plain ä 漢");
        assert_eq!(harmless("a\x1b[2J\nb\u{202e}c\u{9b}\x7f"), "a\\u001b[2J\\u000ab\\u202ec\\u009b\\u007f");
        let json = serde_json::to_string("x\u{202e}\x7f").unwrap();
        assert_eq!(serde_json::from_str::<String>(&harmless(&json)).unwrap(), "x\u{202e}\x7f");
    }
}
