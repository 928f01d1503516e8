//! `web.search`: titles, addresses and snippets.

use std::fmt::Write as _;

use aegis_core::{
    Failure, Label, Tier, TrustClass,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::engine::{Engine, Hit, Query, Safety, Words};
use crate::{
    egress::Egress,
    tool::{Answer, Facts, Run, Tool},
};

#[derive(Debug)]
pub struct WebSearch {
    egress: Egress,
    engine: Engine,
}

impl WebSearch {
    pub fn new(egress: Egress, engine: Engine) -> Self {
        Self { egress, engine }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Words to search for; blank is refused.
    query: Words,
    /// The most results wanted.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    max_results: u32,
}

fn ten() -> u32 {
    10
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    query: String,
    results: Vec<Hit>,
}

impl Tool for WebSearch {
    type Input = Input;
    type Output = Output;

    const ANSWERS_TEXT: bool = true;

    fn facts(&self) -> Facts {
        Facts {
            name: "web.search".into(),
            aliases: Vec::new(),
            title: "Search the web".into(),
            category: "web".into(),
            description:
                "Run a web search and return titles, addresses and snippets. Read a result with web.fetch."
                    .into(),
            tags: vec!["web".into(), "search".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: Mutability::ReadOnly,
            idempotent: true,
            approval: ApprovalRule::NotRequired,
            route: Route::Upstream,
            targets: vec![Target::Host { host: self.engine.endpoint().host().to_owned() }],
            label: Label::new(TrustClass::ExternalUntrusted, "web-search"),
            examples: vec![Example {
                title: "Three results".into(),
                arguments: json!({"query": "openat2 RESOLVE_BENEATH", "max_results": 3}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let query =
            Query { words: &input.query, wanted: input.max_results as usize, safety: Safety::Moderate };
        let results = self.engine.search(&self.egress, run, &query).await?;
        let output = Output { query: input.query.as_str().to_owned(), results };
        Ok(Answer::from(output, self.engine.endpoint().origin()))
    }

    fn text(output: &Output) -> Option<String> {
        let mut text = String::new();
        for (index, Hit { title, url, snippet }) in output.results.iter().enumerate() {
            let _ = writeln!(text, "{}. {title}\n   {url}", index + 1);
            if !snippet.is_empty() {
                let _ = writeln!(text, "   {snippet}");
            }
        }
        if output.results.is_empty() {
            let _ = writeln!(text, "No results for: {}", output.query);
        }
        text.truncate(text.trim_end().len());
        Some(text)
    }
}
