//! `tool.web-search`: search the web.

use aegis_core::{
    Failure, Label, Tier, TrustClass,
    label::Provenance,
    tool::{ApprovalRule, Example, Mutability, Route, Target},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    egress::Egress,
    tool::{Answer, Facts, Run, Tool},
    tools::web::engine::{Engine, Hit, Query, Safety, Words, shortened},
};

/// Snippets are previews here.
const LONGEST_SNIPPET: usize = 240;

const LABEL: Label = Label::new(TrustClass::ExternalUntrusted, "web-search");

#[derive(Debug)]
pub struct AssistantWebSearch {
    egress: Egress,
    engine: Engine,
}

impl AssistantWebSearch {
    pub fn new(egress: Egress, engine: Engine) -> Self {
        Self { egress, engine }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Input {
    /// Words to search for; blank is refused.
    query: Words,
    /// The most results wanted.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 10))]
    max_results: u32,
    /// Filter adult results.
    #[serde(default = "yes")]
    safe_mode: bool,
}

fn five() -> u32 {
    5
}

fn yes() -> bool {
    true
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Output {
    query: String,
    results: Vec<Hit>,
    provenance: Provenance,
}

impl Tool for AssistantWebSearch {
    type Input = Input;
    type Output = Output;

    fn facts(&self) -> Facts {
        Facts {
            name: "tool.web-search".into(),
            aliases: Vec::new(),
            title: "Search the web".into(),
            category: "web".into(),
            description: "Search the web and return titles, addresses and short snippets.".into(),
            tags: vec!["web".into(), "search".into()],
            tier: Tier::User,
            skip_judge: true,
            mutability: Mutability::ReadOnly,
            idempotent: true,
            approval: ApprovalRule::NotRequired,
            route: Route::Upstream,
            targets: vec![Target::Host { host: self.engine.endpoint().host().to_owned() }],
            label: LABEL,
            examples: vec![Example {
                title: "Two results".into(),
                arguments: json!({"query": "rust programming language", "maxResults": 2}),
            }],
        }
    }

    async fn run(&self, run: &Run<'_>, input: Input) -> Result<Answer<Output>, Failure> {
        let safety = if input.safe_mode { Safety::Strict } else { Safety::Off };
        let query = Query { words: &input.query, wanted: input.max_results as usize, safety };
        let mut results = self.engine.search(&self.egress, run, &query).await?;
        for hit in &mut results {
            hit.snippet = shortened(&hit.snippet, LONGEST_SNIPPET - 1);
        }
        let output =
            Output { query: input.query.as_str().to_owned(), results, provenance: Provenance::from(&LABEL) };
        Ok(Answer::from(output, self.engine.endpoint().origin()))
    }
}
