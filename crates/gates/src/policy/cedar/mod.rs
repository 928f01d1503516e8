//! Operators' policies in Cedar. Contexts grant, policies restrict.
//!
//! A matching `forbid` denies. With `@approval("…")` it asks a person instead; a plain one wins over it. Where a
//! `permit` speaks of a tool, one must match. A policy that can't be evaluated denies. With `@shadow` a policy is
//! only recorded. Each tool has its own slice of the policies, so that those about other tools cost it nothing.

mod examples;
mod facts;
mod problem;
mod reads;
mod rule;
mod ruling;
mod schema;
mod slice;
mod source;
mod types;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    str::FromStr,
    sync::Arc,
};

use aegis_core::{Asker, Caller, ToolSpec, config::LabelRules, tool::Route};
use cedar_policy::PolicySet;

pub use examples::{Example, ExampleVerdict, Held};
pub use problem::{Problem, RulesError};
pub use rule::{Rule, RuleEffect};
pub use ruling::Ruling;
pub use schema::{Schema, SchemaError};
pub use source::{Source, list as list_sources};

pub(in crate::policy) use facts::Facts;
use schema::PolicedTool;
use slice::{CompiledRule, Slice};

use crate::policy::labels::SessionLabels;

/// The rules about labels that ship with the node.
pub const LABEL_RULES: &str = include_str!("label_rules.cedar");

/// Has Cedar's parser make its tables, which it does when it is first used and which takes longer than most policies:
/// a node that starts can do so aside.
pub fn warm_up() {
    let _ = PolicySet::from_str(LABEL_RULES);
}

/// Policies ready for use, cut into a slice per tool.
#[derive(Debug, Default)]
pub struct Rules {
    slices: HashMap<String, Slice>,
    /// For commands that reach nothing: what is said of sending is not said of them.
    without_egress: HashMap<String, Slice>,
    /// The tools that the rules were held against; `None` when there are no rules at all.
    known: Option<HashSet<String>>,
    rules: Vec<Arc<Rule>>,
    warnings: Vec<Problem>,
    examples: Vec<Held>,
    label_rules: LabelRules,
    version: String,
}

impl Rules {
    /// No policies, and no rules about labels.
    pub fn none() -> Self {
        Self { label_rules: LabelRules::Off, ..Self::default() }
    }

    /// Reads every `*.cedar` file of a directory, in the order of their names, holds the policies against the schema
    /// and their examples against the policies. One mistake, and nothing is taken. Blocks.
    ///
    /// A single file is read with the examples beside it.
    pub fn load(place: &Path, schema: &Schema, label_rules: LabelRules) -> Result<Self, RulesError> {
        Self::compile(&Source::read_all(place)?, schema, label_rules)
    }

    /// The same of texts that are already there.
    pub fn compile(sources: &[Source], schema: &Schema, label_rules: LabelRules) -> Result<Self, RulesError> {
        let mut read = rule::read(sources, schema, Asker::Policy)?;
        let mut compiled: Vec<Arc<CompiledRule>> =
            read.compiled.into_iter().map(|one| Arc::new(CompiledRule::new(one))).collect();
        // Examples are about the operator's own files, whatever the switch for the shipped rules says.
        let mut rules = Self::sliced(&compiled, schema)?;
        let checked = examples::check(sources, &rules, schema)?;
        read.warnings.extend(checked.warnings);
        if label_rules != LabelRules::Off {
            compiled.extend(shipped(schema, label_rules)?);
            rules = Self::sliced(&compiled, schema)?;
        }
        Ok(Self { warnings: read.warnings, examples: checked.held, label_rules, ..rules })
    }

    fn sliced(compiled: &[Arc<CompiledRule>], schema: &Schema) -> Result<Self, RulesError> {
        let (mut slices, mut without_egress) = (HashMap::new(), HashMap::new());
        let add = |tool: &Arc<PolicedTool>, slices: &mut HashMap<String, Slice>| {
            let slice = Slice::of(tool, compiled)
                .map_err(|error| RulesError::Rejected(vec![Problem::of_file("policies", error)]))?;
            slices.extend(slice.map(|slice| (tool.spec.name.to_string(), slice)));
            Ok::<_, RulesError>(())
        };
        for tool in schema.tools() {
            add(tool, &mut slices)?;
            if let Some(quiet) = tool.without_egress() {
                add(&Arc::new(quiet), &mut without_egress)?;
            }
        }
        let rules = compiled.iter().map(|one| Arc::clone(&one.rule)).collect();
        let version = slice::version(compiled.iter().map(|one| one.rule.as_ref()));
        let known = schema.tools().map(|tool| tool.spec.name.to_string()).collect();
        Ok(Self { slices, without_egress, known: Some(known), rules, version, ..Self::none() })
    }

    fn slice(&self, tool: &ToolSpec, egress: bool) -> Option<&Slice> {
        let quiet = tool.runs_programs() && tool.route != Route::Upstream && !egress;
        let slices = if quiet { &self.without_egress } else { &self.slices };
        slices.get(tool.name.as_ref())
    }

    /// Whether the rules were held against this tool. One that came after them is closed until they are read anew.
    pub(in crate::policy) fn know(&self, tool: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(tool))
    }

    /// What the rules say to a call; `None` when none of them can speak about the tool.
    pub(in crate::policy) fn judge(&self, tool: &ToolSpec, facts: &Facts<'_>) -> Option<Ruling> {
        let slice = self.slice(tool, facts.egress)?;
        Some(match slice.findings(facts) {
            Ok(findings) => Ruling::of(slice, &tool.name, &findings),
            Err(error) => Ruling::unstatable(slice, &tool.name, &error.to_string()),
        })
    }

    /// Whether the rules close the tool to this session whatever the arguments are.
    pub(in crate::policy) fn closes(
        &self,
        tool: &ToolSpec,
        egress: bool,
        caller: &Caller,
        labels: impl FnOnce() -> Arc<SessionLabels>,
    ) -> bool {
        let Some(slice) = self.slice(tool, egress) else { return false };
        let Ok(findings) = slice.fixed_findings(caller, &labels()) else { return true };
        let forbids = |place: &usize| {
            let rule = &slice.rules[*place];
            !rule.shadow && rule.effect == RuleEffect::Forbid
        };
        let breaks = |(place, _): &(usize, String)| !slice.rules[*place].shadow;
        if findings.matched.iter().any(forbids) || findings.failed.iter().any(breaks) {
            return true;
        }
        let mut permits = slice
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| !rule.shadow && rule.effect == RuleEffect::Permit)
            .peekable();
        permits.peek().is_some()
            && permits.all(|(place, _)| !slice.is_varying(place) && !findings.matched.contains(&place))
    }

    /// Every rule, in the order of files and lines; the shipped ones last.
    pub fn list(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// The rules that can speak about a tool.
    pub fn about(&self, tool: &str) -> &[Arc<Rule>] {
        self.slices.get(tool).map_or(&[], |slice| &slice.rules)
    }

    /// Of all rules together; the same rules have the same version anywhere.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Of the rules about a tool; `None` when there are none.
    pub fn version_about(&self, tool: &str) -> Option<&str> {
        self.slices.get(tool).map(|slice| slice.version.as_str())
    }

    pub fn label_rules(&self) -> LabelRules {
        self.label_rules
    }

    /// What is valid and probably not meant.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// The examples of the files, all of which hold.
    pub fn examples(&self) -> &[Held] {
        &self.examples
    }
}

fn shipped(schema: &Schema, mode: LabelRules) -> Result<Vec<Arc<CompiledRule>>, RulesError> {
    let source = Source::new("label_rules.cedar", LABEL_RULES);
    let read = rule::read(&[source], schema, Asker::Labels)?;
    Ok(read
        .compiled
        .into_iter()
        .map(|mut one| {
            one.rule.shadow |= mode == LabelRules::Shadow;
            Arc::new(CompiledRule::new(one))
        })
        .collect())
}

#[cfg(test)]
mod tests;
