use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Findings;
use crate::document::shown;

/// A JSON Schema written inside a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EmbeddedSchema(pub Value);

impl EmbeddedSchema {
    pub(crate) fn check(&self, pointer: &str, findings: &mut Findings) {
        if let Err(error) = jsonschema::meta::validate(&self.0) {
            let path = error.instance_path().as_str();
            let keyword = path.rsplit('/').next().unwrap_or_default();
            let given = shown(&error.instance().to_string());
            findings.error(
                format!("{pointer}{path}"),
                format!("this is no JSON Schema: {given} can't stand at `{keyword}`"),
            );
        }
    }
}

impl JsonSchema for EmbeddedSchema {
    fn schema_name() -> Cow<'static, str> {
        "EmbeddedSchema".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object", "description": "A JSON Schema."})
    }
}
