use std::sync::Arc;

use aegis_core::{
    Failure,
    caller::Tier,
    label::Provenance,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Answer, Facts, Run, Tool,
    files::{Content, FileError, Files},
    tool::failure_members,
    tools::fs::FROM_A_FILE,
};

/// What is read of a file when the caller sets no bound: more seldom helps a model.
const DEFAULT_MAX_BYTES: u64 = 512 << 10;

#[derive(Debug)]
pub struct LocalFileRead {
    files: Arc<Files>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// File to read.
    #[schemars(length(min = 1))]
    path: String,
    /// Text or base64.
    #[serde(default)]
    encoding: Encoding,
    /// Read at most this much.
    #[schemars(range(min = 1, max = 10_485_760))]
    max_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    #[default]
    Utf8,
    Base64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// As the caller wrote it.
    path: String,
    content: String,
    encoding: Encoding,
    /// Bytes read, before encoding.
    bytes: u64,
    /// The file goes on after what was read.
    truncated: bool,
    /// How large the whole file is.
    size_bytes: u64,
    provenance: Provenance,
}

impl LocalFileRead {
    pub fn new(files: &Arc<Files>) -> Self {
        Self { files: files.clone() }
    }
}

impl Tool for LocalFileRead {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.local-file-read".into(),
            aliases: Vec::new(),
            title: "Read workspace file".into(),
            category: "filesystem".into(),
            description: "Read one workspace file, or the beginning of a long one, as text or as base64."
                .into(),
            tags: vec!["files".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: Mutability::ReadOnly,
            idempotent: true,
            approval: ApprovalRule::NotRequired,
            route: Route::Files,
            targets: vec![Target::Path { argument: "path".into() }],
            label: FROM_A_FILE,
            examples: vec![
                Example { title: "A text".into(), arguments: json!({"path": "./src/config.ts"}) },
                Example {
                    title: "The first bytes of an image".into(),
                    arguments: json!({"path": "logo.png", "encoding": "base64", "maxBytes": 4096}),
                },
            ],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let limit = input.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
        let encoding = input.encoding;
        let (path, (content, bytes, size_bytes)) = self
            .files
            .read_start(run, &input.path, limit, move |Content { bytes, size }| {
                Ok(match encoding {
                    Encoding::Utf8 => {
                        let cut = size > bytes.len() as u64;
                        let text = text_of(bytes, cut)?;
                        let read = text.len() as u64;
                        (text, read, size)
                    }
                    Encoding::Base64 => (STANDARD.encode(&bytes), bytes.len() as u64, size),
                })
            })
            .await?;
        let output = Output {
            path: input.path,
            content,
            encoding,
            bytes,
            truncated: size_bytes > bytes,
            size_bytes,
            provenance: Provenance::from(&FROM_A_FILE),
        };
        Ok(Answer::from(output, path.into_string()))
    }

    fn failure(name: &str, arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        let path = arguments.get("path").cloned().unwrap_or_default();
        failure_members([("tool", name.into()), ("path", path)], failure)
    }
}

/// The bytes as text. Where they were cut, the cut may have gone through a character, which is then left out.
fn text_of(mut bytes: Vec<u8>, cut: bool) -> Result<String, FileError> {
    if cut
        && let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
    {
        if error.valid_up_to() == 0 {
            return Err(FileError::CharacterCut);
        }
        bytes.truncate(error.valid_up_to());
    }
    String::from_utf8(bytes).map_err(|error| FileError::NotUtf8(error.utf8_error().valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_goes_between_characters() {
        assert_eq!(text_of("a\u{e9}".as_bytes()[..2].to_vec(), true).unwrap(), "a");
        assert!(matches!(text_of("a\u{e9}".as_bytes()[..2].to_vec(), false), Err(FileError::NotUtf8(1))));
        assert!(matches!(text_of(vec![0xff, b'a'], true), Err(FileError::NotUtf8(0))));
        assert!(matches!(text_of("\u{e9}".as_bytes()[..1].to_vec(), true), Err(FileError::CharacterCut)));
    }
}
