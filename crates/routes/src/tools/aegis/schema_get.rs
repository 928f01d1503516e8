use std::borrow::Cow;

use aegis_core::{Failure, FailureKind, manifest, nearest::suggestion};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{example, facts, tags};
use crate::{Answer, Facts, Run, Tool, tool::failure_members};

#[derive(Debug)]
pub struct SchemaGet;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Schema name: `agent/manifest/v1` or `workflow/manifest/v1`.
    // Listed as examples, not as an enum: an unknown key is answered with the known ones, not refused.
    #[schemars(extend("examples" = manifest::SCHEMA_KEYS))]
    key: String,
}

/// A JSON Schema.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct Output(Value);

impl JsonSchema for Output {
    fn schema_name() -> Cow<'static, str> {
        "Output".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "required": ["type"], "properties": {"type": {}}, "additionalProperties": true})
    }
}

impl Tool for SchemaGet {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            tags: tags(["manifest", "schema"]),
            examples: vec![example("The schema of agents", json!({"key": "agent/manifest/v1"}))],
            ..facts(
                "aegis.schema.get",
                "Get manifest schema",
                "schema",
                "Return the JSON Schema of a manifest kind, agent or workflow. Read it before you write a manifest.",
            )
        }
    }

    async fn run(&self, _: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        manifest::schema(&input.key).map(|schema| Output(schema).into()).ok_or_else(|| {
            let guess = suggestion(&input.key, manifest::SCHEMA_KEYS);
            let message =
                format!("no schema under that key; there are {}{guess}", manifest::SCHEMA_KEYS.join(" and "));
            Failure::new(FailureKind::UnknownSchemaKey, message)
                .with("supported_keys", Value::from(manifest::SCHEMA_KEYS.to_vec()))
        })
    }

    fn failure(_: &str, _: &Map<String, Value>, failure: &Failure) -> Map<String, Value> {
        failure_members([], failure)
    }
}
