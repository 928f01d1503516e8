//! One policy with its name, its place and what it does.

use std::{collections::HashMap, str::FromStr};

use aegis_core::{Asker, nearest::suggestion};
use cedar_policy::{
    ActionConstraint, Effect, EntityUid, Policy, PolicyId, PolicySet, ValidationMode, Validator,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    problem::{Problem, RulesError, place},
    reads::Reads,
    schema::{PolicedTool, Schema, SchemaError},
    source::Source,
};

/// Policies in all.
const MOST_RULES: usize = 10_000;
const ANNOTATIONS: [&str; 4] = ["id", "approval", "shadow", "description"];

/// A policy as people know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// `@id`, or the file's name without its ending, `#` and the policy's number in it.
    pub id: String,
    pub file: String,
    /// Where it begins, from 1.
    pub line: usize,
    pub effect: RuleEffect,
    /// Only recorded, not enforced: `@shadow`.
    pub shadow: bool,
    /// The rule's own words for whoever is asked: `@approval("…")`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The tools it can speak about.
    pub tools: Vec<String>,
    /// The arguments it looks at; `None` when that is all of them, or can't be told.
    pub reads: Option<Vec<String>>,
    pub text: String,
    #[serde(skip)]
    pub(super) asker: Asker,
    #[serde(skip)]
    pub(super) reads_session: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleEffect {
    Permit,
    Forbid,
    /// A forbid that a person's approval lifts.
    Ask,
}

impl Rule {
    /// The rule in the words of a record: `policies/files.cedar:12 (no-secrets)`.
    pub fn place(&self) -> String {
        match self.asker {
            Asker::Labels => format!("spec.policy.label_rules ({})", self.id),
            _ => format!("{}:{} ({})", self.file, self.line, self.id),
        }
    }
}

/// A rule with the policy behind it, ready to be put into slices.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) rule: Rule,
    pub(super) reads: Reads,
    pub(super) action: ActionConstraint,
    /// The policy with the effect `permit`, whatever its own: matching is what Cedar is asked for, and what a match
    /// means is the rule's effect.
    pub(super) matcher: Policy,
}

/// Whether a policy with this scope can match any call of the tool.
pub(super) fn speaks_of(action: &ActionConstraint, tool: &PolicedTool) -> bool {
    let names = |uid: &EntityUid| tool.is_or_is_in(uid.id().unescaped());
    match action {
        ActionConstraint::Any => true,
        ActionConstraint::Eq(uid) => uid.id().unescaped() == tool.spec.name,
        ActionConstraint::In(uids) => uids.iter().any(names),
    }
}

/// What came of reading some files.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) compiled: Vec<Compiled>,
    pub(super) warnings: Vec<Problem>,
}

/// Reads policies and holds them against the schema. All mistakes are told at once.
pub(super) fn read(sources: &[Source], schema: &Schema, asker: Asker) -> Result<Read, RulesError> {
    let mut read = Read::default();
    let mut problems = Vec::new();
    let mut places: HashMap<String, String> = HashMap::new();
    for source in sources.iter().filter(|source| source.has_policies()) {
        let before = read.compiled.len();
        read_one(source, schema, asker, &mut read, &mut problems)?;
        for compiled in &read.compiled[before..] {
            let rule = &compiled.rule;
            if let Some(earlier) = places.insert(rule.id.clone(), rule.place()) {
                let offset = line_start(&source.text, rule.line);
                let message = format!("the id `{}` is taken by {earlier}: give it another @id", rule.id);
                problems.push(Problem::at(&source.place(), &source.text, offset, message));
            }
        }
        if read.compiled.len() > MOST_RULES {
            problems.push(Problem::of_file(
                &source.place(),
                format!("there are more than {MOST_RULES} policies"),
            ));
            break;
        }
    }
    if problems.is_empty() { Ok(read) } else { Err(RulesError::Rejected(problems)) }
}

fn read_one(
    source: &Source,
    schema: &Schema,
    asker: Asker,
    read: &mut Read,
    problems: &mut Vec<Problem>,
) -> Result<(), RulesError> {
    let (file, text) = (source.place(), source.text.as_str());
    let set = match PolicySet::from_str(text) {
        Ok(set) => set,
        Err(errors) => {
            problems.extend(errors.iter().map(|error| diagnosed(&file, text, error, 0)));
            return Ok(());
        }
    };
    if let Some(template) = set.templates().next() {
        let offset = text.find('?').unwrap_or(0);
        let message =
            format!("`{}` has a slot: templates are not understood here; write a policy", template.id());
        problems.push(Problem::at(&file, text, offset, message));
        return Ok(());
    }
    // What a rule says about tools that no server offers yet is read when they come; they can't be called before.
    let mut present = PolicySet::new();
    for policy in set.policies() {
        match without_awaited(policy, schema) {
            Ok(Some(policy)) => present.add(policy).map_err(|error| SchemaError::of(&error))?,
            Ok(None) => {
                let id = policy.annotation("id").map_or_else(|| policy.id().to_string(), str::to_owned);
                let message = format!("`{id}` waits for tools that no MCP server offers yet");
                read.warnings.push(Problem::of_file(&file, message));
            }
            Err(message) => problems.push(Problem::of_file(&file, message)),
        }
    }
    let set = present;
    let mut policies: Vec<&Policy> = set.policies().collect();
    policies.sort_by_key(|policy| number(policy.id()));
    let mut from = 0;
    let mut offsets = HashMap::new();
    for (index, policy) in policies.into_iter().enumerate() {
        let written = policy.to_string();
        let offset = find(text, &written, from).unwrap_or(from);
        from = (offset + 1).min(text.len());
        offsets.insert(policy.id().clone(), offset);
        match compile(policy, &written, source, index, place(text, offset).0, schema, asker) {
            Ok(compiled) => read.compiled.push(compiled),
            Err(message) => problems.push(Problem::at(&file, text, offset, message)),
        }
    }
    // The shipped rules are held against the schema by a test, not at each start.
    if asker != Asker::Labels {
        let checked = Validator::new(schema.compiled()?.clone()).validate(&set, ValidationMode::Strict);
        let start = |id: &PolicyId| offsets.get(id).copied().unwrap_or(0);
        problems.extend(
            checked.validation_errors().map(|error| diagnosed(&file, text, error, start(error.policy_id()))),
        );
        read.warnings.extend(
            checked
                .validation_warnings()
                .map(|warning| diagnosed(&file, text, warning, start(warning.policy_id()))),
        );
    }
    Ok(())
}

/// The policy without the actions in its scope that are still to come; `None` when nothing is left of it.
fn without_awaited(policy: &Policy, schema: &Schema) -> Result<Option<Policy>, String> {
    let awaited = |uid: &EntityUid| schema.awaits(uid.id().unescaped());
    let kept = match policy.action_constraint() {
        ActionConstraint::Any => return Ok(Some(policy.clone())),
        ActionConstraint::Eq(uid) => return Ok((!awaited(&uid)).then(|| policy.clone())),
        ActionConstraint::In(uids) if !uids.iter().any(awaited) => return Ok(Some(policy.clone())),
        ActionConstraint::In(uids) => uids.into_iter().filter(|uid| !awaited(uid)).collect::<Vec<_>>(),
    };
    if kept.is_empty() {
        return Ok(None);
    }
    let mut json = policy.to_json().map_err(|error| error.to_string())?;
    let entities: Vec<Value> = kept
        .iter()
        .map(|uid| json!({"type": uid.type_name().to_string(), "id": uid.id().unescaped()}))
        .collect();
    json["action"] = json!({"op": "in", "entities": entities});
    Policy::from_json(Some(policy.id().clone()), json).map(Some).map_err(|error| error.to_string())
}

fn compile(
    policy: &Policy,
    written: &str,
    source: &Source,
    index: usize,
    line: usize,
    schema: &Schema,
    asker: Asker,
) -> Result<Compiled, String> {
    for (name, _) in policy.annotations() {
        if !ANNOTATIONS.contains(&name) {
            let close = suggestion(name, ANNOTATIONS);
            return Err(format!(
                "the annotation @{name} means nothing here{close} (known: @id, @approval, @shadow, @description)"
            ));
        }
    }
    let worded = |name| policy.annotation(name).map(str::to_owned).filter(|text| !text.trim().is_empty());
    let effect = match (policy.effect(), policy.annotation("approval")) {
        (Effect::Forbid, Some(_)) => RuleEffect::Ask,
        (Effect::Forbid, None) => RuleEffect::Forbid,
        (Effect::Permit, None) => RuleEffect::Permit,
        (Effect::Permit, Some(_)) => {
            return Err("@approval stands only before a forbid, which an approval then lifts".into());
        }
    };
    let id = match policy.annotation("id") {
        Some(id) if id.trim().is_empty() || id.len() > 128 || id.chars().any(char::is_control) => {
            return Err("an @id is 1 to 128 bytes of text without control characters".into());
        }
        Some(id) => id.to_owned(),
        None => format!("{}#{}", source.stem(), index + 1),
    };
    let action = policy.action_constraint();
    let mut json = policy.to_json().map_err(|error| error.to_string())?;
    let reads = Reads::of(&json);
    json["effect"] = Value::from("permit");
    let matcher = Policy::from_json(Some(PolicyId::new(&id)), json).map_err(|error| error.to_string())?;
    let rule = Rule {
        id,
        file: source.place(),
        line,
        effect,
        shadow: policy.annotation("shadow").is_some(),
        reason: worded("approval"),
        description: worded("description"),
        tools: schema
            .tools()
            .filter(|tool| speaks_of(&action, tool))
            .map(|tool| tool.spec.name.to_string())
            .collect(),
        reads: (!reads.all_arguments).then(|| reads.arguments.iter().cloned().collect()),
        text: written.to_owned(),
        asker,
        reads_session: reads.session,
    };
    Ok(Compiled { rule, reads, action, matcher })
}

/// The parser numbers the policies of a text in their order: `policy0`, `policy1`, …
fn number(id: &PolicyId) -> usize {
    let id: &str = id.as_ref();
    id.strip_prefix("policy").and_then(|number| number.parse().ok()).unwrap_or(usize::MAX)
}

/// Where a policy stands, passing over copies of it in comments.
fn find(text: &str, written: &str, from: usize) -> Option<usize> {
    let mut from = from;
    loop {
        let offset = from + text.get(from..)?.find(written)?;
        let line = text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        if !text[line..offset].contains("//") {
            return Some(offset);
        }
        from = offset + written.chars().next().map_or(1, char::len_utf8);
    }
}

fn line_start(text: &str, line: usize) -> usize {
    text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum()
}

/// A complaint of Cedar's with its place in the file; `start` is where its policy begins.
fn diagnosed(file: &str, text: &str, complaint: &dyn miette::Diagnostic, start: usize) -> Problem {
    let said = complaint.to_string();
    // Cedar names a policy by the number it gave it, which is not what its author calls it.
    let said = match said.strip_prefix("for policy `").and_then(|rest| rest.split_once("`, ")) {
        Some((_, rest)) => rest.to_owned(),
        None => said,
    };
    let help = complaint.help().map(|help| format!(" ({help})")).unwrap_or_default();
    let mut labels = complaint.labels().into_iter().flatten();
    let (offset, label) = match labels.next() {
        Some(label) => (label.offset(), label.label().map(|label| format!(": {label}")).unwrap_or_default()),
        None => (start, String::new()),
    };
    Problem::at(file, text, offset, format!("{said}{label}{help}"))
}
