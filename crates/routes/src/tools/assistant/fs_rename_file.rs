use std::sync::Arc;

use aegis_core::{
    Failure,
    tool::{Example, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::change;
use crate::{
    Answer, Facts, Run, Tool,
    files::Files,
    tool::{Intended, failure_members},
};

#[derive(Debug)]
pub struct FsRenameFile {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Current path.
    #[schemars(length(min = 1))]
    from_path: String,
    /// New path.
    #[schemars(length(min = 1))]
    to_path: String,
    /// Report the change without making it.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Rename,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// As the caller wrote it.
    from_path: String,
    to_path: String,
    operation: Operation,
    dry_run: bool,
    would_change: bool,
    changed: bool,
    /// A person or a rule of the operator has let the change go ahead. A dry run asks nobody.
    approved: bool,
}

impl FsRenameFile {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for FsRenameFile {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            // A directory takes all that is in it along.
            targets: ["fromPath", "toPath"].map(|argument| Target::Tree { argument: argument.into() }).into(),
            examples: vec![Example {
                title: "Whether the new name is free".into(),
                arguments: json!({"fromPath": "notes/today.md", "toPath": "notes/monday.md", "dryRun": true}),
            }],
            ..change::facts(
                "tool.fs-rename-file",
                "Rename workspace file",
                "Rename or move a workspace file or directory, making parent directories as needed. What is at the new \
                 path is never replaced. dryRun tells whether it can be done and changes nothing.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let Input { from_path, to_path, dry_run } = input;
        let renamed = self.files.rename(run, &from_path, &to_path, dry_run).await?;
        let output = Output {
            from_path,
            to_path,
            operation: Operation::Rename,
            dry_run,
            would_change: renamed.changes,
            changed: renamed.changes && !dry_run,
            approved: !dry_run,
        };
        Ok(output.into())
    }

    fn intended(input: Input) -> Option<Intended> {
        Some(Intended::Rename { from: input.from_path, to: input.to_path })
    }

    fn failure(name: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        let [from, to] = ["fromPath", "toPath"].map(|path| arguments.get(path).cloned().unwrap_or_default());
        failure_members([("tool", name.into()), ("fromPath", from), ("toPath", to)], failure)
    }
}
