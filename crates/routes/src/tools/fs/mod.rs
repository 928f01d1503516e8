//! Files of the caller's volumes.

mod create_dir;
mod delete;
mod edit;
mod glob;
mod grep;
mod list;
mod multi_edit;
mod read;
mod write;

use std::sync::Arc;

use aegis_core::{
    Failure, Label, TrustClass, VolumePath,
    caller::Tier,
    tool::{ApprovalRule, Example, Mutability, Route, Target, Text},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use self::{
    create_dir::CreateDir, delete::Delete, edit::Edit, glob::Glob, grep::Grep, list::List,
    multi_edit::MultiEdit, read::Read, write::Write,
};
use crate::{
    Catalog, Facts,
    files::{Files, Skipped},
    tool::failure_members,
};

pub fn register(catalog: Catalog, files: &Arc<Files>) -> Catalog {
    catalog
        .with(Read::new(files))
        .with(Write::new(files))
        .with(List::new(files))
        .with(CreateDir::new(files))
        .with(Delete::new(files))
        .with(Edit::new(files))
        .with(MultiEdit::new(files))
        .with(Grep::new(files))
        .with(Glob::new(files))
}

/// The label of whatever stood in a file: anybody may have written it.
pub(crate) const FROM_A_FILE: Label = Label::new(TrustClass::ExternalUntrusted, "filesystem");

/// What the tools of this group have in common.
fn facts(name: &'static str, title: &'static str, description: &'static str) -> Facts {
    Facts {
        name: name.into(),
        aliases: Vec::new(),
        title: title.into(),
        category: "fs".into(),
        description: description.into(),
        tags: vec!["files".into()],
        tier: Tier::User,
        skip_judge: false,
        mutability: Mutability::Mutating,
        idempotent: false,
        approval: ApprovalRule::NotRequired,
        route: Route::Files,
        targets: vec![Target::Path { argument: "path".into() }],
        label: Label::node(),
        examples: Vec::new(),
    }
}

/// The target of a tool that goes through everything below its path.
fn whole_tree() -> Vec<Target> {
    vec![Target::Tree { argument: "path".into() }]
}

/// [`facts`] of a tool that only looks, and shows what it finds.
fn reading(name: &'static str, title: &'static str, description: &'static str) -> Facts {
    Facts {
        skip_judge: true,
        mutability: Mutability::ReadOnly,
        idempotent: true,
        label: FROM_A_FILE,
        ..facts(name, title, description)
    }
}

fn example(title: impl Into<Text>, arguments: Value) -> Example {
    Example { title: title.into(), arguments }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Success,
}

/// Files left out of a search, by reason. Reasons without files are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FilesSkipped {
    /// Files with NUL bytes.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub binary: u64,
    /// Text in another encoding than UTF-8.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub not_utf8: u64,
    /// Files with several names, which the node's configuration keeps from being read.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub hard_linked: u64,
    /// Files with a line too long to search.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub long_lines: u64,
    /// Files and directories that the node may not read.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(default)]
    pub unreadable: u64,
}

impl FilesSkipped {
    fn from(skipped: &Skipped) -> Option<Self> {
        (skipped.total() > 0).then_some(Self {
            binary: skipped.binary,
            not_utf8: skipped.not_utf8,
            hard_linked: skipped.hard_linked,
            long_lines: skipped.long_lines,
            unreadable: skipped.unreadable,
        })
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Every failure of this group names the path, as the node understood it.
fn failure(arguments: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
    let written = arguments.get("path").and_then(Value::as_str).unwrap_or_default();
    let path = VolumePath::parse(written).map_or_else(|_| written.to_owned(), VolumePath::into_string);
    failure_members([("status", json!("error")), ("path", path.into())], failure)
}

/// A path as part of a line of text: a name with a line break must not look like another line.
fn on_one_line(path: &str) -> std::borrow::Cow<'_, str> {
    if !path.contains(char::is_control) {
        return path.into();
    }
    path.chars()
        .flat_map(|character| {
            let (escaped, plain) = match character.is_control() {
                true => (Some(character.escape_default()), None),
                false => (None, Some(character)),
            };
            escaped.into_iter().flatten().chain(plain)
        })
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_not_forge_a_line() {
        assert_eq!(on_one_line("src/é.rs"), "src/é.rs");
        assert_eq!(on_one_line("a\nb.rs:1:x"), "a\\nb.rs:1:x");
    }
}
