//! Diagnostics as people read them.

use std::fmt::{self, Write as _};

use super::Diagnostic;

const MAX_SHOWN: usize = 60;
/// How much of a long line is shown on either side of the place.
const WINDOW: usize = 70;

/// Text out of a document, safe to show in one line of a terminal or a log: in backquotes, cut, without control
/// characters.
pub(crate) fn shown(text: &str) -> String {
    let mut shown = String::from("`");
    for (count, c) in text.chars().enumerate() {
        if count == MAX_SHOWN {
            shown.push('…');
            break;
        }
        push_visible(&mut shown, c);
    }
    shown.push('`');
    shown
}

/// The text in one line, with what could not be seen written out.
pub(super) fn visible(text: String) -> String {
    if text.chars().all(is_visible) {
        return text;
    }
    let mut line = String::with_capacity(text.len());
    text.chars().for_each(|c| push_visible(&mut line, c));
    line
}

fn push_visible(line: &mut String, c: char) {
    if is_visible(c) { line.push(c) } else { line.extend(c.escape_default()) }
}

/// Also no line separators and no marks that turn the direction of writing, which could hide what a line says.
fn is_visible(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        self.write_body(f)
    }
}

impl Diagnostic {
    fn write_body(&self, out: &mut impl fmt::Write) -> fmt::Result {
        if !self.pointer.is_empty() {
            write!(out, "{}: ", visible(self.pointer.clone()))?;
        }
        out.write_str(&self.message)
    }

    /// The message with the line it is about and a caret under the place:
    ///
    /// ```text
    /// agent.yaml:3:5: /spec/runtime: …
    ///   |
    /// 3 |     runtme: {language: python}
    ///   |     ^
    /// ```
    pub fn render(&self, text: &str, file_name: &str) -> String {
        let mut out = format!("{file_name}:{}:{}: ", self.line, self.column);
        // Writing to a String does not fail.
        let _ = self.write_body(&mut out);
        out.push('\n');
        let Some(line) = text.lines().nth(self.line.saturating_sub(1)) else { return out };
        let column = self.column.saturating_sub(1);
        let start = column.saturating_sub(WINDOW);
        let cut = line.chars().count() > start + 2 * WINDOW;
        let mut source = if start > 0 { "…".to_owned() } else { String::new() };
        let mut caret = " ".repeat(source.chars().count());
        for (index, c) in line.chars().enumerate().skip(start).take(2 * WINDOW) {
            let from = source.chars().count();
            push_visible(&mut source, if c == '\t' { ' ' } else { c });
            if index < column {
                caret.push_str(&" ".repeat(source.chars().count() - from));
            }
        }
        if cut {
            source.push('…');
        }
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let _ = write!(out, "{margin} |\n{number} | {source}\n{margin} | {caret}^\n");
        out
    }
}

/// Every diagnostic with its line of the source.
pub fn render(diagnostics: &[Diagnostic], text: &str, file_name: &str) -> String {
    diagnostics.iter().map(|diagnostic| diagnostic.render(text, file_name)).collect::<Vec<_>>().join("\n")
}
