//! The rules that can speak about one tool, and what they say about a call of it.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use aegis_core::{Caller, call::hex, tool::Target};
use cedar_policy::{Authorizer, Entities, PolicyId, PolicySet, Request};
use sha2::{Digest, Sha256};

use super::{
    facts::{CallerFacts, Facts, Stage, Unstatable},
    rule::{Compiled, Rule, speaks_of},
    schema::PolicedTool,
};
use crate::policy::labels::SessionLabels;

/// Answers kept per tool. When there are more they are all forgotten, which costs time and nothing else.
const MOST_KEPT: usize = 4096;

#[derive(Debug)]
pub(super) struct Slice {
    tool: Arc<PolicedTool>,
    stage: Stage,
    /// In the order of files and lines.
    pub(super) rules: Vec<Arc<Rule>>,
    compiled: Vec<Arc<CompiledRule>>,
    /// Policies that say the same for every call of a session, and those that look at the call.
    fixed: Part,
    varying: Part,
    kept: RwLock<HashMap<FixedKey, Arc<Findings>>>,
    /// A digest of the rules' texts: the same rules about this tool have the same version anywhere.
    pub(super) version: String,
}

#[derive(Debug, Default)]
struct Part {
    set: PolicySet,
    places: HashMap<PolicyId, usize>,
    reads_principal: bool,
    reads_session: bool,
}

/// All that the fixed part looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FixedKey {
    caller: Option<CallerFacts>,
    labels: Option<Arc<SessionLabels>>,
}

/// Which rules match, by their place in the slice, and which could not be evaluated.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) matched: Vec<usize>,
    pub(super) failed: Vec<(usize, String)>,
    /// Rules that look at an argument which is not known.
    pub(super) blind: Vec<usize>,
}

impl Slice {
    /// `None` when no rule speaks of the tool.
    pub(super) fn of(
        tool: &Arc<PolicedTool>,
        compiled: &[Arc<CompiledRule>],
    ) -> Result<Option<Self>, String> {
        let speaks = |one: &&Arc<CompiledRule>| speaks_of(&one.compiled.action, tool);
        let about: Vec<&Arc<CompiledRule>> = compiled.iter().filter(speaks).collect();
        if about.is_empty() {
            return Ok(None);
        }
        let mut fixed = Part::default();
        let mut varying = Part::default();
        for (place, one) in about.iter().enumerate() {
            let part = if one.compiled.reads.call { &mut varying } else { &mut fixed };
            part.add(&one.compiled, place)?;
        }
        let stage = Stage::of(tool).map_err(|error| error.to_string())?;
        Ok(Some(Self {
            tool: Arc::clone(tool),
            stage,
            rules: about.iter().map(|one| Arc::clone(&one.rule)).collect(),
            version: version(about.iter().map(|one| one.rule.as_ref())),
            compiled: about.into_iter().cloned().collect(),
            fixed,
            varying,
            kept: RwLock::default(),
        }))
    }

    /// What the rules say to this call.
    pub(super) fn findings(&self, facts: &Facts<'_>) -> Result<Findings, Unstatable> {
        let mut findings = Findings::clone(&*self.fixed_findings(facts.caller, facts.labels)?);
        if !self.varying.places.is_empty() {
            let (request, entities) = self.stage.whole(&self.tool, facts)?;
            self.varying.evaluate(&request, &entities, &mut findings);
            if !facts.hidden.is_empty() {
                findings.blind = self.blind(facts.hidden);
                let seeing = |place: &usize| !findings.blind.contains(place);
                findings.matched.retain(seeing);
                findings.failed.retain(|(place, _)| seeing(place));
            }
            findings.matched.sort_unstable();
            findings.failed.sort_unstable();
        }
        Ok(findings)
    }

    /// The rules that look at one of these arguments.
    fn blind(&self, hidden: &[&str]) -> Vec<usize> {
        let is_target =
            |name: &&str| self.tool.spec.targets.iter().any(|target| argument_of(target) == Some(name));
        let target = hidden.iter().any(is_target);
        let looks = |one: &CompiledRule| {
            let reads = &one.compiled.reads;
            reads.all_arguments
                || (reads.targets && target)
                || hidden.iter().any(|name| reads.arguments.contains(*name))
        };
        self.compiled.iter().enumerate().filter(|(_, one)| looks(one)).map(|(place, _)| place).collect()
    }

    /// What the rules that look at no call say to all calls of this session.
    pub(super) fn fixed_findings(
        &self,
        caller: &Caller,
        labels: &Arc<SessionLabels>,
    ) -> Result<Arc<Findings>, Unstatable> {
        if self.fixed.places.is_empty() {
            return Ok(Arc::default());
        }
        let key = FixedKey {
            caller: self.fixed.reads_principal.then(|| CallerFacts::of(caller)),
            labels: self.fixed.reads_session.then(|| Arc::clone(labels)),
        };
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(kept) = kept {
            return Ok(kept);
        }
        let findings = Arc::new(self.fixed_anew(caller, labels)?);
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(key, Arc::clone(&findings));
        Ok(findings)
    }

    pub(super) fn fixed_anew(&self, caller: &Caller, labels: &SessionLabels) -> Result<Findings, Unstatable> {
        let mut findings = Findings::default();
        let (request, entities) = self.stage.fixed(caller, labels)?;
        self.fixed.evaluate(&request, &entities, &mut findings);
        findings.matched.sort_unstable();
        findings.failed.sort_unstable();
        Ok(findings)
    }

    /// Whether the rule at this place looks at the call itself.
    pub(super) fn is_varying(&self, place: usize) -> bool {
        self.compiled.get(place).is_some_and(|one| one.compiled.reads.call)
    }
}

impl Part {
    fn add(&mut self, compiled: &Compiled, place: usize) -> Result<(), String> {
        self.places.insert(compiled.matcher.id().clone(), place);
        self.reads_principal |= compiled.reads.principal;
        self.reads_session |= compiled.reads.session;
        self.set.add(compiled.matcher.clone()).map_err(|error| error.to_string())
    }

    fn evaluate(&self, request: &Request, entities: &Entities, findings: &mut Findings) {
        let response = Authorizer::new().is_authorized(request, &self.set, entities);
        let diagnostics = response.diagnostics();
        findings.matched.extend(diagnostics.reason().filter_map(|id| self.places.get(id).copied()));
        for error in diagnostics.errors() {
            let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
            if let Some(place) = self.places.get(error.policy_id()) {
                findings.failed.push((*place, error.inner().to_string()));
            }
        }
    }
}

/// The start of a digest of what the rules say, in their order.
pub(super) fn version<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> String {
    let mut digest = Sha256::new();
    for rule in rules {
        digest.update(rule.id.as_bytes());
        digest.update([0, u8::from(rule.shadow)]);
        digest.update(rule.text.as_bytes());
        digest.update([0]);
    }
    format!("rules@{}", &hex(&digest.finalize())[..12])
}

fn argument_of(target: &Target) -> Option<&str> {
    match target {
        Target::Path { argument }
        | Target::Tree { argument }
        | Target::Patch { argument, .. }
        | Target::Url { argument }
        | Target::Server { argument }
        | Target::Choice { argument, .. } => Some(argument),
        Target::Command { command, .. } => Some(command),
        Target::Host { .. } | Target::Program { .. } => None,
    }
}

/// A rule as it is shared by the slices of all tools it speaks of.
#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) rule: Arc<Rule>,
    pub(super) compiled: Compiled,
}

impl CompiledRule {
    pub(super) fn new(compiled: Compiled) -> Self {
        Self { rule: Arc::new(compiled.rule.clone()), compiled }
    }
}
