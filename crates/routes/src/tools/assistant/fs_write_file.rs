use std::sync::Arc;

use aegis_core::{
    Failure,
    tool::{Example, Target},
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
pub struct FsWriteFile {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Target file.
    #[schemars(length(min = 1))]
    path: String,
    /// New text.
    content: String,
    /// Report the change without making it.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Write,
}

impl FsWriteFile {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for FsWriteFile {
    type Input = Input;
    type Output = Written<Operation>;

    fn facts(&self) -> Facts {
        Facts {
            idempotent: true,
            targets: vec![Target::Path { argument: "path".into() }],
            examples: vec![Example {
                title: "What writing would change".into(),
                arguments: json!({"path": "notes/today.md", "content": "# Today\n", "dryRun": true}),
            }],
            ..change::facts(
                "tool.fs-write-file",
                "Write workspace file",
                "Create a workspace file, or overwrite it with the given text, making parent directories as needed. Tells hashes and sizes before and after; dryRun tells what would change and changes nothing.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Self::Output>, Failure> {
        let Input { path, content, dry_run } = input;
        let revised = self.files.revise(run, vec![Revision::write(path.clone(), content)], dry_run).await?;
        let file = revised.into_iter().next().map(|revised| FileChange::of(path, revised, dry_run));
        let file =
            file.ok_or_else(|| Failure::new(aegis_core::FailureKind::StorageError, "nothing was revised"))?;
        Ok(Written::of(Operation::Write, file, dry_run).into())
    }

    fn intended(input: Input) -> Option<Intended> {
        Some(Intended::Revisions(vec![Revision::write(input.path, input.content)]))
    }

    fn failure(name: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        let path = arguments.get("path").cloned().unwrap_or_default();
        failure_members([("tool", name.into()), ("path", path)], failure)
    }
}
