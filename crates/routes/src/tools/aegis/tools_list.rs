use aegis_core::Failure;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    example, facts,
    row::{self, Row, Source},
    tags,
};
use crate::{Answer, Facts, Run, Tool};

#[derive(Debug)]
pub struct ToolsList;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// Page size; everything when left out.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<usize>,
    /// Rows to skip.
    #[schemars(range(min = 0))]
    offset: Option<usize>,
    /// Keep tools of one source.
    source: Option<Source>,
    /// Keep tools of one category, e.g. `fs` or `web`.
    category: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    tool: &'static str,
    tools: Vec<Row>,
    /// How many there are on all pages.
    total: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
}

impl Tool for ToolsList {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            tags: tags(["discovery"]),
            examples: vec![
                example("Every tool", json!({})),
                example("The file tools", json!({"category": "fs"})),
            ],
            ..facts(
                "aegis.tools.list",
                "List tools",
                "tools",
                "List the tools that your security context lets you call, by pages, source or category.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let mut rows = row::visible(run);
        rows.retain(|row| {
            input.source.is_none_or(|source| row.is_from(source.as_str()))
                && input.category.as_deref().is_none_or(|category| row.is_in(category))
        });
        let total = rows.len();
        let tools = rows
            .into_iter()
            .skip(input.offset.unwrap_or(0))
            .take(input.limit.unwrap_or(usize::MAX))
            .collect();
        Ok(Output { tool: "aegis.tools.list", tools, total, limit: input.limit, offset: input.offset }.into())
    }
}
