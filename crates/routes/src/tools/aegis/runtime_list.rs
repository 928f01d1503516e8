use std::sync::Arc;

use aegis_core::{Failure, runtimes::Runtime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{example, facts, tags};
use crate::{Answer, Facts, Run, Tool};

#[derive(Debug)]
pub struct RuntimeList {
    runtimes: Arc<[Runtime]>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// Keep one language, e.g. `python`.
    language: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    tool: &'static str,
    runtimes: Vec<Row>,
    /// Whether a manifest may name an image of its own instead.
    custom_runtime_supported: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Row {
    language: String,
    version: String,
    image: String,
    description: String,
    deprecated: bool,
}

impl RuntimeList {
    pub fn new(runtimes: &Arc<[Runtime]>) -> Self {
        Self { runtimes: runtimes.clone() }
    }
}

impl Tool for RuntimeList {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            tags: tags(["manifest", "runtime"]),
            examples: vec![
                example("Every runtime", json!({})),
                example("Python", json!({"language": "python"})),
            ],
            ..facts(
                "aegis.runtime.list",
                "List runtimes",
                "runtime",
                "List the language and version pairs that an agent may declare in spec.runtime.",
            )
        }
    }

    async fn run(&self, _: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let wanted = |row: &&Runtime| {
            input.language.as_deref().is_none_or(|language| row.language.eq_ignore_ascii_case(language))
        };
        let runtimes = self
            .runtimes
            .iter()
            .filter(wanted)
            .map(|row| Row {
                language: row.language.clone(),
                version: row.version.clone(),
                image: row.image.clone(),
                description: row.description.clone(),
                deprecated: row.deprecated,
            })
            .collect();
        Ok(Output { tool: "aegis.runtime.list", runtimes, custom_runtime_supported: true }.into())
    }
}
