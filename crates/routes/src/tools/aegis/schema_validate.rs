use std::sync::Arc;

use aegis_core::{Failure, document::Diagnostic, manifest, runtimes::Runtime};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{example, facts, tags};
use crate::{Answer, Facts, Run, Tool};

#[derive(Debug)]
pub struct SchemaValidate {
    runtimes: Arc<[Runtime]>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Manifest kind.
    kind: Kind,
    /// Whole manifest as YAML text.
    #[schemars(length(min = 1))]
    manifest_yaml: String,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Kind {
    Agent,
    Workflow,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    valid: bool,
    /// Each with line, column, JSON pointer and what to write instead; null when valid.
    #[schemars(schema_with = "texts_or_null")]
    errors: Option<Vec<String>>,
    /// What a valid manifest's author should still hear about, e.g. keys that nothing reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

fn texts_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]})
}

impl SchemaValidate {
    pub fn new(runtimes: &Arc<[Runtime]>) -> Self {
        Self { runtimes: runtimes.clone() }
    }
}

impl Tool for SchemaValidate {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        let manifest = "apiVersion: 100monkeys.ai/v1\nkind: Agent\nmetadata: {name: echo, version: 1.0.0}\n\
                        spec:\n  runtime: {language: python, version: \"3.12\"}\n  task: {instruction: Say hello.}\n";
        Facts {
            tags: tags(["manifest", "schema"]),
            examples: vec![example("A small agent", json!({"kind": "agent", "manifest_yaml": manifest}))],
            ..facts(
                "aegis.schema.validate",
                "Validate manifest",
                "schema",
                "Check manifest YAML against its schema and rules without storing it. Lists every mistake with its \
                 place.",
            )
        }
    }

    async fn run(&self, _: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let runtimes = self.runtimes.clone();
        // A megabyte of hostile YAML takes long enough to hold up everyone else on this thread.
        let checked = tokio::task::spawn_blocking(move || check(&input, &runtimes)).await;
        Ok(checked
            .unwrap_or_else(|error| Output {
                valid: false,
                errors: Some(vec![format!("the check did not finish: {error}")]),
                warnings: Vec::new(),
            })
            .into())
    }
}

fn check(input: &Input, runtimes: &[Runtime]) -> Output {
    let result = match input.kind {
        Kind::Agent => {
            manifest::agent::parse_for(&input.manifest_yaml, runtimes).map(|checked| checked.warnings)
        }
        Kind::Workflow => manifest::workflow::parse(&input.manifest_yaml).map(|checked| checked.warnings),
    };
    let lines = |diagnostics: Vec<Diagnostic>| diagnostics.iter().map(ToString::to_string).collect();
    match result {
        Ok(warnings) => Output { valid: true, errors: None, warnings: lines(warnings) },
        Err(errors) => Output { valid: false, errors: Some(lines(errors)), warnings: Vec::new() },
    }
}
