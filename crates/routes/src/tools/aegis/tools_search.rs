use aegis_core::{Failure, FailureKind};
use globset::GlobBuilder;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    example, facts,
    row::{self, Row},
    tags,
};
use crate::{Answer, Facts, Run, Tool};

const MAX_PATTERN: usize = 256;

#[derive(Debug)]
pub struct ToolsSearch;

#[derive(Debug, Deserialize, JsonSchema)]
pub struct Input {
    /// Words looked for in names and descriptions, in any case.
    query: Option<String>,
    /// Glob on the name, e.g. `aegis.*.list`.
    name_pattern: Option<String>,
    /// Keep tools of one source: `builtin`, `mcp_server` or `seal_gateway`.
    source: Option<String>,
    /// Keep tools of one category, e.g. `fs` or `web`.
    category: Option<String>,
    /// Tags that must all be present.
    tags: Option<Vec<String>>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    tool: &'static str,
    /// The query as given.
    #[schemars(schema_with = "text_or_null")]
    query: Option<String>,
    /// Hits in names first.
    tools: Vec<Row>,
    total: usize,
}

fn text_or_null(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"type": "string"}, {"type": "null"}]})
}

impl Tool for ToolsSearch {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            tags: tags(["discovery"]),
            examples: vec![
                example("Tools that have to do with files", json!({"query": "file"})),
                example("By the shape of the name", json!({"name_pattern": "aegis.schema.*"})),
            ],
            ..facts(
                "aegis.tools.search",
                "Search tools",
                "tools",
                "Search the tools that your security context lets you call, by words, name pattern, source, category \
                 or tags.",
            )
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let pattern = input.name_pattern.as_deref().map(glob).transpose()?;
        let mut rows = row::visible(run);
        rows.retain(|row| {
            pattern.as_ref().is_none_or(|pattern| pattern.is_match(row.name()))
                && input.source.as_deref().is_none_or(|source| row.is_from(source))
                && input.category.as_deref().is_none_or(|category| row.is_in(category))
                && input.tags.iter().flatten().all(|tag| row.has_tag(tag))
        });
        let words: Vec<String> =
            input.query.iter().flat_map(|query| query.split_whitespace()).map(str::to_lowercase).collect();
        let mut ranked: Vec<(u8, Row)> =
            rows.into_iter().filter_map(|row| rank(&row, &words).map(|rank| (rank, row))).collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        let tools: Vec<Row> = ranked.into_iter().map(|(_, row)| row).collect();
        Ok(Output { tool: "aegis.tools.search", query: input.query, total: tools.len(), tools }.into())
    }
}

/// Smaller is better; `None` when some word is nowhere.
fn rank(row: &Row, words: &[String]) -> Option<u8> {
    let name = row.name().to_lowercase();
    let description = row.description().to_lowercase();
    if !words.iter().all(|word| name.contains(word.as_str()) || description.contains(word.as_str())) {
        return None;
    }
    let in_name = words.iter().filter(|word| name.contains(word.as_str())).count();
    Some(match in_name {
        _ if words == [name.as_str()] => 0,
        count if count == words.len() => 1,
        0 => 3,
        _ => 2,
    })
}

fn glob(pattern: &str) -> Result<globset::GlobMatcher, Failure> {
    let refused = |reason: String| {
        Failure::new(
            FailureKind::InvalidPattern,
            format!("name_pattern is no glob: {reason}; write e.g. aegis.*.list"),
        )
    };
    if pattern.len() > MAX_PATTERN {
        return Err(refused(format!("it has {} bytes, {MAX_PATTERN} is the limit", pattern.len())));
    }
    let glob = GlobBuilder::new(pattern).case_insensitive(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| refused(error.kind().to_string()))
}
