use std::{fmt::Write, sync::Arc};

use aegis_core::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{FilesSkipped, example, on_one_line};
use crate::{
    Answer, Facts, Run, Tool,
    files::{Files, Found},
};

#[derive(Debug)]
pub struct Glob {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Glob such as **/*.rs; a pattern without '/' is matched on the file name.
    #[schemars(length(min = 1))]
    pattern: String,
    /// Directory where the walk starts.
    #[schemars(length(min = 1))]
    path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// One path per line, relative to the start and sorted; a last line says when it was cut.
    result: String,
    /// How many paths are shown.
    matches: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_skipped: Option<FilesSkipped>,
    /// There are more paths than are shown.
    truncated: bool,
}

impl Glob {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for Glob {
    type Input = Input;
    type Output = Output;

    const ANSWERS_TEXT: bool = true;

    fn facts(&self) -> Facts {
        Facts {
            targets: super::whole_tree(),
            tags: vec!["files".into(), "search".into()],
            examples: vec![
                example("By name, at any depth", json!({"pattern": "*.toml", "path": "/workspace"})),
                example("By path", json!({"pattern": "src/**/*.rs", "path": "/workspace"})),
            ],
            ..super::reading(
                "fs.glob",
                "Find files",
                "Find files below a directory whose path matches a glob. `*` stays within one directory, `**` crosses \
                 them.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let (path, found) = self.files.glob(run, &input.path, input.pattern).await?;
        let output = Output {
            result: text_of(&found),
            matches: found.hits as u64,
            files_skipped: FilesSkipped::from(&found.skipped),
            truncated: found.cut,
        };
        Ok(Answer::from(output, path.into_string()))
    }

    fn text(output: &Output) -> Option<String> {
        Some(output.result.clone())
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}

fn text_of(found: &Found) -> String {
    let mut text = String::new();
    for file in &found.files {
        text.push_str(&on_one_line(&file.path));
        text.push('\n');
    }
    if found.cut {
        // Writing to a string can't fail.
        let _ = write!(text, "[cut: more than {} paths; narrow the pattern or the path]", found.hits);
    } else {
        text.pop();
    }
    text
}
