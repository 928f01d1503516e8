use std::sync::Arc;

use aegis_core::{
    Failure, FailureKind,
    patch::{FilePatch, Patch},
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
pub struct FsApplyPatch {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Target file; taken from the patch header when absent.
    path: Option<String>,
    /// Unified diff.
    #[schemars(length(min = 1))]
    patch: String,
    /// Report the change without making it.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Patch,
}

/// The first file of the patch, and below it all of them where there are several.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    #[serde(flatten)]
    first: Written<Operation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    files: Vec<FileChange>,
    /// What the patch asked for and was not done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    notes: Vec<String>,
}

impl FsApplyPatch {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for FsApplyPatch {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            targets: vec![
                Target::Path { argument: "path".into() },
                Target::Patch { argument: "patch".into(), instead: "path".into() },
            ],
            examples: vec![Example {
                title: "Whether a patch fits".into(),
                arguments: json!({
                    "patch": "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-old\n+new\n",
                    "dryRun": true
                }),
            }],
            ..change::facts(
                "tool.fs-apply-patch",
                "Apply patch",
                "Apply a unified diff to one workspace file or to several: all of it or nothing. Files may be made, \
                 deleted and renamed as git writes it. Tells where each hunk went and how far off its lines were, with \
                 hashes and sizes before and after; dryRun tells the same and changes nothing.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let dry_run = input.dry_run;
        let patch = patch_of(input)?;
        let notes = patch.iter().filter(|file| file.executable).map(|file| {
            format!("`{}` is made without the executable bit that the patch gives it", file.path())
        });
        let notes = notes.collect();
        let paths: Vec<String> = patch.iter().map(|file| file.path().to_owned()).collect();
        let revisions = patch.into_iter().map(Revision::patch).collect();
        let revised = self.files.revise(run, revisions, dry_run).await?;
        let change = |(path, revised)| FileChange::of(path, revised, dry_run);
        let mut files: Vec<FileChange> = paths.into_iter().zip(revised).map(change).collect();
        let first = if files.len() == 1 { files.pop() } else { files.first().cloned() };
        let first = first.ok_or_else(|| Failure::new(FailureKind::PatchFailed, "the patch names no file"))?;
        Ok(Output { first: Written::of(Operation::Patch, first, dry_run), files, notes }.into())
    }

    fn intended(input: Input) -> Option<Intended> {
        let patch = patch_of(input).ok()?;
        Some(Intended::Revisions(patch.into_iter().map(Revision::patch).collect()))
    }

    fn failure(name: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        let path = arguments.get("path").cloned().unwrap_or_default();
        failure_members([("tool", name.into()), ("path", path)], failure)
    }
}

/// The patch with its paths as they are meant.
fn patch_of(input: Input) -> Result<Vec<FilePatch>, Failure> {
    let failed = |message: String| Failure::new(FailureKind::PatchFailed, message);
    let mut files = Patch::parse(&input.patch).map_err(|error| failed(error.to_string()))?.files;
    if let Some(path) = input.path {
        let [file] = &mut files[..] else {
            return Err(failed(format!(
                "the patch is for {} files and `path` names one; leave `path` out",
                files.len()
            )));
        };
        if file.old.is_some() && file.new.is_some() && file.old != file.new {
            return Err(failed(
                "the patch renames its file and `path` names only one; leave `path` out".into(),
            ));
        }
        for name in [&mut file.old, &mut file.new].into_iter().flatten() {
            name.clone_from(&path);
        }
    }
    Ok(files)
}
