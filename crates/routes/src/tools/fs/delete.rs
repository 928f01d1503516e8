use std::sync::Arc;

use aegis_core::{Failure, tool::Mutability};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Status, example};
use crate::{Answer, Facts, Run, Tool, files::Files};

#[derive(Debug)]
pub struct Delete {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// POSIX path; a relative path is resolved against /workspace.
    #[schemars(length(min = 1))]
    path: String,
    /// Needed to remove a directory that is not empty.
    #[serde(default)]
    recursive: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    status: Status,
    path: String,
    /// Files and directories that are gone.
    deleted: u64,
}

impl Delete {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for Delete {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            targets: super::whole_tree(),
            mutability: Mutability::Destructive,
            examples: vec![
                example("One file", json!({"path": "notes/old.md"})),
                example("A directory with all that is in it", json!({"path": "build", "recursive": true})),
            ],
            ..super::facts(
                "fs.delete",
                "Delete",
                "Delete a file, or a directory and, when asked, everything below it. Symbolic links are removed, never \
                 followed.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let (path, deleted) = self.files.delete(run, &input.path, input.recursive).await?;
        Ok(Output { status: Status::Success, path: path.into_string(), deleted: deleted.entries }.into())
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}
