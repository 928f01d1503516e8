//! What is wrong with policy files, with the place and the line.

use std::{fmt, path::PathBuf};

use aegis_core::document::Diagnostic;
use serde::Serialize;

use super::schema::SchemaError;

/// After this many the rest is counted, not listed.
const MOST_PROBLEMS: usize = 50;

/// Something wrong with a policy file, or worth a second look. It shows as the message, the line and a caret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong and what to write instead.
    pub message: String,
    #[serde(skip)]
    rendered: String,
}

impl Problem {
    /// About the text at a byte offset.
    pub(super) fn at(file: &str, text: &str, offset: usize, message: impl Into<String>) -> Self {
        let (line, column) = place(text, offset);
        let diagnostic =
            Diagnostic { pointer: String::new(), line, column, message: one_line(&message.into()) };
        let rendered = diagnostic.render(text, file);
        Self { file: file.to_owned(), line, column, message: diagnostic.message, rendered }
    }

    /// About a file as a whole.
    pub(super) fn of_file(file: &str, message: impl Into<String>) -> Self {
        let message = one_line(&message.into());
        Self { file: file.to_owned(), line: 1, column: 1, rendered: format!("{file}: {message}\n"), message }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rendered.trim_end())
    }
}

/// Why a set of policies was not taken. Whatever was in force stays in force.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("{}", listed(.0))]
    Rejected(Vec<Problem>),
    #[error("the policies in {} can't be read: {source}", directory.display())]
    Unreadable { directory: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl RulesError {
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Rejected(problems) => problems,
            _ => &[],
        }
    }
}

fn listed(problems: &[Problem]) -> String {
    let mut shown: Vec<String> = problems.iter().take(MOST_PROBLEMS).map(ToString::to_string).collect();
    if problems.len() > MOST_PROBLEMS {
        shown.push(format!("and {} more; mend these first", problems.len() - MOST_PROBLEMS));
    }
    shown.join("\n")
}

/// Line and column of a byte offset, from 1, the column in characters.
pub(super) fn place(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line, before[start..].chars().count() + 1)
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_from_one_and_in_characters() {
        let text = "ab\nüx\n";
        assert_eq!(place(text, 0), (1, 1));
        assert_eq!(place(text, 3), (2, 1));
        assert_eq!(place(text, 4), (2, 1), "inside a character");
        assert_eq!(place(text, 5), (2, 2));
        assert_eq!(place(text, 999), (3, 1));
        let problem = Problem::at("x.cedar", text, 5, "two\n  lines");
        assert_eq!(problem.to_string(), "x.cedar:2:2: two; lines\n  |\n2 | üx\n  |  ^");
    }
}
