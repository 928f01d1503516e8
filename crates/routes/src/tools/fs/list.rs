use std::sync::Arc;

use aegis_core::Failure;
use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Status, example};
use crate::{
    Answer, Facts, Run, Tool,
    files::{self, Files},
};

#[derive(Debug)]
pub struct List {
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
    /// Sorted by name.
    entries: Vec<Entry>,
    /// There are more entries than are listed here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    truncated: bool,
    /// How many entries the directory has, when not all are listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Entry {
    /// What is no UTF-8 in the name is shown as U+FFFD.
    name: String,
    /// Of a symbolic link: what it points to inside the volume; `file` when it leads nowhere or out.
    file_type: FileType,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(default)]
    symlink: bool,
    /// The name's bytes, when they are no UTF-8. No path can be written for such an entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FileType {
    File,
    Directory,
}

impl From<files::Entry> for Entry {
    fn from(entry: files::Entry) -> Self {
        let (name, name_base64) = match String::from_utf8(entry.name) {
            Ok(name) => (name, None),
            Err(error) => {
                let lossy = String::from_utf8_lossy(error.as_bytes()).into_owned();
                (lossy, Some(STANDARD.encode(error.as_bytes())))
            }
        };
        let file_type = if entry.is_directory { FileType::Directory } else { FileType::File };
        Self { name, file_type, symlink: entry.is_symlink, name_base64 }
    }
}

impl List {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for List {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            examples: vec![
                example("The workspace", json!({"path": "/workspace"})),
                example("A directory in it", json!({"path": "src"})),
            ],
            ..super::reading("fs.list", "List directory", "List the direct entries of one directory.")
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let (path, listing) = self.files.list(run, &input.path).await?;
        let truncated = listing.total > listing.entries.len() as u64;
        let origin = path.as_str().to_owned();
        let output = Output {
            status: Status::Success,
            path: path.into_string(),
            entries: listing.entries.into_iter().map(Entry::from).collect(),
            truncated,
            total: truncated.then_some(listing.total),
        };
        Ok(Answer::from(output, origin))
    }

    fn failure(_: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        super::failure(arguments, failure)
    }
}
