use std::sync::Arc;

use aegis_core::{Failure, tool::Mutability};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Status, example};
use crate::{
    Answer, Facts, Run, Tool,
    files::{Files, Revision},
    tool::Intended,
};

#[derive(Debug)]
pub struct Write {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// POSIX path; a relative path is resolved against /workspace.
    #[schemars(length(min = 1))]
    path: String,
    /// Complete new text of the file; the empty string is allowed.
    content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    status: Status,
    path: String,
    bytes_written: u64,
}

impl Write {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for Write {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            mutability: Mutability::Destructive,
            idempotent: true,
            examples: vec![example(
                "A new file, with its directories",
                json!({"path": "notes/today.md", "content": "# Today\n"}),
            )],
            ..super::facts(
                "fs.write",
                "Write file",
                "Create or overwrite one file with the given text, making parent directories as needed. Readers see \
                 the old text or the new one, never a mix.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let (path, bytes_written) = self.files.write(run, &input.path, input.content).await?;
        Ok(Output { status: Status::Success, path: path.into_string(), bytes_written }.into())
    }

    fn intended(input: Input) -> Option<Intended> {
        Some(Intended::Revisions(vec![Revision::write(input.path, input.content)]))
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}
