use std::sync::Arc;

use aegis_core::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Status, example};
use crate::{
    Answer, Facts, Run, Tool,
    files::{self, Files, Revision},
    tool::Intended,
};

#[derive(Debug)]
pub struct MultiEdit {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// POSIX path; a relative path is resolved against /workspace.
    #[schemars(length(min = 1))]
    path: String,
    /// Ordered edits; each one sees the result of those before it.
    #[schemars(length(max = 1000))]
    edits: Vec<OneEdit>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneEdit {
    #[schemars(length(min = 1))]
    target_content: String,
    replacement_content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    status: Status,
    path: String,
    applied: u64,
}

impl MultiEdit {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for MultiEdit {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            examples: vec![example(
                "Rename a function and its one use",
                json!({
                    "path": "src/lib.rs",
                    "edits": [
                        {"target_content": "fn old_name(", "replacement_content": "fn new_name("},
                        {"target_content": "= old_name(", "replacement_content": "= new_name("}
                    ]
                }),
            )],
            ..super::facts(
                "fs.multi_edit",
                "Edit file in several places",
                "Apply a list of unique-passage replacements in order, all or nothing.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let edits = edits(input.edits);
        let (path, report) = self.files.multi_edit(run, &input.path, edits).await?;
        let applied = report.lines.len() as u64;
        Ok(Output { status: Status::Success, path: path.into_string(), applied }.into())
    }

    fn intended(input: Input) -> Option<Intended> {
        Some(Intended::Revisions(vec![Revision::edits(input.path, edits(input.edits))]))
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}

fn edits(edits: Vec<OneEdit>) -> Vec<files::Edit> {
    edits
        .into_iter()
        .map(|edit| files::Edit { target: edit.target_content, replacement: edit.replacement_content })
        .collect()
}
