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
pub struct Grep {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Regular expression (Rust regex syntax).
    #[schemars(length(min = 1))]
    pattern: String,
    /// Directory where the walk starts.
    #[schemars(length(min = 1))]
    path: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    /// One hit per line as path:line_number:content, paths relative to the start; a last line says when it was cut.
    result: String,
    /// How many lines are shown.
    matches: u64,
    files_searched: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    files_skipped: Option<FilesSkipped>,
    /// There are more matches than are shown.
    truncated: bool,
}

impl Grep {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for Grep {
    type Input = Input;
    type Output = Output;

    const ANSWERS_TEXT: bool = true;

    fn facts(&self) -> Facts {
        Facts {
            targets: super::whole_tree(),
            tags: vec!["files".into(), "search".into()],
            examples: vec![
                example(
                    "Where functions are defined",
                    json!({"pattern": r"^\s*(pub )?fn \w+", "path": "src"}),
                ),
                example("Whatever the case", json!({"pattern": "(?i)todo", "path": "/workspace"})),
            ],
            ..super::reading(
                "fs.grep",
                "Search in files",
                "Search the files below a directory for lines matching a regular expression. Hidden files are searched; \
                 binary files and other encodings than UTF-8 are not.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let (path, found) = self.files.grep(run, &input.path, input.pattern).await?;
        let output = Output {
            result: text_of(&found),
            matches: found.hits as u64,
            files_searched: found.searched,
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
        let path = on_one_line(&file.path);
        for line in &file.lines {
            // Writing to a string can't fail.
            let _ = writeln!(text, "{path}:{}:{}", line.number, line.text);
        }
    }
    if found.cut {
        let _ = write!(text, "[cut: more than {} matches; narrow the pattern or the path]", found.hits);
    } else {
        text.pop();
    }
    text
}
