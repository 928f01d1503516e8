use std::sync::Arc;

use aegis_core::{
    Failure,
    tool::{Example, Mutability, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::change::{self, FileChange, Written};
use crate::{
    Answer, Facts, Run, Tool,
    files::{Files, Revision},
    tool::{Intended, failure_members},
};

#[derive(Debug)]
pub struct FsAppendFile {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Existing file.
    #[schemars(length(min = 1))]
    path: String,
    /// Text to add; no newline is added for you.
    content: String,
    /// Report the change without making it.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Append,
}

impl FsAppendFile {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for FsAppendFile {
    type Input = Input;
    type Output = Written<Operation>;

    fn facts(&self) -> Facts {
        Facts {
            mutability: Mutability::Mutating,
            targets: vec![Target::Path { argument: "path".into() }],
            examples: vec![Example {
                title: "What appending would change".into(),
                arguments: json!({"path": "notes/today.md", "content": "# Today\n", "dryRun": true}),
            }],
            ..change::facts(
                "tool.fs-append-file",
                "Append to workspace file",
                "Add text to the end of a workspace file; a file that is not there is made. Tells hashes and sizes before and after; dryRun tells what would change and changes nothing.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Self::Output>, Failure> {
        let Input { path, content, dry_run } = input;
        let revised = self.files.revise(run, vec![Revision::append(path.clone(), content)], dry_run).await?;
        let file = revised.into_iter().next().map(|revised| FileChange::of(path, revised, dry_run));
        let file =
            file.ok_or_else(|| Failure::new(aegis_core::FailureKind::StorageError, "nothing was revised"))?;
        Ok(Written::of(Operation::Append, file, dry_run).into())
    }

    fn intended(input: Input) -> Option<Intended> {
        Some(Intended::Revisions(vec![Revision::append(input.path, input.content)]))
    }

    fn failure(name: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        let path = arguments.get("path").cloned().unwrap_or_default();
        failure_members([("tool", name.into()), ("path", path)], failure)
    }
}
