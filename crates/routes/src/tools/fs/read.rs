use std::sync::Arc;

use aegis_core::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Status, example};
use crate::{Answer, Facts, Run, Tool, files::Files};

#[derive(Debug)]
pub struct Read {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// POSIX path; a relative path is resolved against /workspace.
    #[schemars(length(min = 1))]
    path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    status: Status,
    path: String,
    content: String,
    size_bytes: u64,
}

impl Read {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for Read {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            examples: vec![example("A file of the workspace", json!({"path": "src/main.rs"}))],
            ..super::reading("fs.read", "Read file", "Return the text of one file on a mounted volume.")
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let (path, content) = self.files.read_text(run, &input.path).await?;
        let origin = path.as_str().to_owned();
        let size_bytes = content.len() as u64;
        let path = path.into_string();
        Ok(Answer::from(Output { status: Status::Success, path, content, size_bytes }, origin))
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}
