use std::sync::Arc;

use aegis_core::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Status, example};
use crate::{
    Answer, Facts, Run, Tool,
    files::{self, EditReport, Files, Revision},
    tool::Intended,
};

#[derive(Debug)]
pub struct Edit {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// POSIX path; a relative path is resolved against /workspace.
    #[schemars(length(min = 1))]
    path: String,
    /// Passage to find; must be non-empty and unique in the file.
    #[schemars(length(min = 1))]
    target_content: String,
    /// Text put in its place; may be empty.
    replacement_content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    status: Status,
    path: String,
    message: String,
}

impl Edit {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for Edit {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            examples: vec![example(
                "Change one line",
                json!({
                    "path": "src/lib.rs",
                    "target_content": "const LIMIT: usize = 10;",
                    "replacement_content": "const LIMIT: usize = 20;"
                }),
            )],
            ..super::facts(
                "fs.edit",
                "Edit file",
                "Swap one passage of a file for another; the passage has to occur exactly once.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let edit = files::Edit { target: input.target_content, replacement: input.replacement_content };
        let (path, report) = self.files.edit(run, &input.path, edit).await?;
        Ok(Output { status: Status::Success, path: path.into_string(), message: message(&report) }.into())
    }

    fn intended(input: Input) -> Option<Intended> {
        let edit = files::Edit { target: input.target_content, replacement: input.replacement_content };
        Some(Intended::Revisions(vec![Revision::edits(input.path, vec![edit])]))
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}

fn message(report: &EditReport) -> String {
    let line = report.lines.first().copied().unwrap_or_default();
    let (old, new) = (report.old_size, report.new_size);
    let difference = match new.abs_diff(old) {
        0 => "the same length".to_owned(),
        bytes => {
            let unit = if bytes == 1 { "byte" } else { "bytes" };
            format!("{bytes} {unit} {}", if new > old { "longer" } else { "shorter" })
        }
    };
    format!("1 replacement at line {line}, {difference}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_where_and_how_much() {
        for (old_size, new_size, text) in [
            (10, 13, "1 replacement at line 4, 3 bytes longer"),
            (10, 9, "1 replacement at line 4, 1 byte shorter"),
            (10, 10, "1 replacement at line 4, the same length"),
        ] {
            assert_eq!(message(&EditReport { lines: vec![4], old_size, new_size }), text);
        }
    }
}
