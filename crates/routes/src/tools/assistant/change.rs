//! What the tools that change workspace files have in common.

use aegis_core::{
    Label,
    call::hex,
    caller::Tier,
    tool::{ApprovalRule, Mutability, Route},
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{
    Facts,
    files::{AppliedHunk, Revised},
};

pub(super) fn facts(name: &'static str, title: &'static str, description: &'static str) -> Facts {
    Facts {
        name: name.into(),
        aliases: Vec::new(),
        title: title.into(),
        category: "filesystem".into(),
        description: description.into(),
        tags: vec!["files".into()],
        tier: Tier::User,
        skip_judge: false,
        mutability: Mutability::Destructive,
        idempotent: false,
        approval: ApprovalRule::RequiredByDefault,
        route: Route::Files,
        targets: Vec::new(),
        label: Label::node(),
        examples: Vec::new(),
    }
}

/// One file before and after.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileChange {
    /// As the caller wrote it.
    pub(super) path: String,
    /// Whether what is there differs from what was asked for.
    pub(super) would_change: bool,
    /// Whether it was changed; never in a dry run.
    pub(super) changed: bool,
    /// `sha256:` and hexadecimal digits; null where there is no file.
    #[schemars(schema_with = "text_or_null")]
    pub(super) hash_before: Option<String>,
    #[schemars(schema_with = "text_or_null")]
    pub(super) hash_after: Option<String>,
    /// Bytes; 0 where there is no file.
    pub(super) size_before: u64,
    pub(super) size_after: u64,
    /// Where a file came from that was renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) renamed_from: Option<String>,
    /// Where each hunk of a patch went.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub(super) hunks: Vec<AppliedHunk>,
}

impl FileChange {
    pub(super) fn of(path: String, revised: Revised, dry_run: bool) -> Self {
        let would_change = revised.changes();
        let size = |content: &Option<Vec<u8>>| content.as_ref().map_or(0, |content| content.len() as u64);
        Self {
            path,
            would_change,
            changed: would_change && !dry_run,
            hash_before: revised.before.as_deref().map(hash),
            hash_after: revised.after.as_deref().map(hash),
            size_before: size(&revised.before),
            size_after: size(&revised.after),
            renamed_from: revised.renamed_from.map(|from| from.into_string()),
            hunks: revised.hunks,
        }
    }
}

/// Elsewhere an absent member says that there is nothing; here the contract has a null.
fn text_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "string"}, {"type": "null"}]})
}

fn hash(content: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(content)))
}

/// The answer about one file that was written.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Written<O> {
    pub(super) operation: O,
    pub(super) dry_run: bool,
    /// A person or a rule of the operator has let the change go ahead. A dry run asks nobody.
    pub(super) approved: bool,
    #[serde(flatten)]
    pub(super) file: FileChange,
}

impl<O> Written<O> {
    pub(super) fn of(operation: O, file: FileChange, dry_run: bool) -> Self {
        Self { operation, dry_run, approved: !dry_run, file }
    }
}
