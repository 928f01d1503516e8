use std::sync::Arc;

use aegis_core::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Status, example};
use crate::{Answer, Facts, Run, Tool, files::Files};

#[derive(Debug)]
pub struct CreateDir {
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
    /// False when the directory was there already.
    created: bool,
}

impl CreateDir {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for CreateDir {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            aliases: vec!["fs.create.dir".into()],
            idempotent: true,
            examples: vec![example("A directory and its parents", json!({"path": "build/logs"}))],
            ..super::facts(
                "fs.create_dir",
                "Create directory",
                "Create a directory together with missing parents; an existing directory counts as success.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let (path, created) = self.files.create_dir(run, &input.path).await?;
        Ok(Output { status: Status::Success, path: path.into_string(), created }.into())
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}
