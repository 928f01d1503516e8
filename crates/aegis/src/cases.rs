//! Policy cases as data: contexts, policies, calls, and what must come of each. `corpus/policy` is written like this,
//! and so can be an operator's own tests.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{
    Caller, Door, Label, Tier, Timestamp, TrustClass, Verdict,
    config::{LabelRules, NodeConfig, SecurityContext},
    document,
    verdict::ShadowEffect,
};
use aegis_gates::{
    ArgumentsGate, PolicyGate,
    approval::reasons,
    policy::{Circumstances, LabelBook, Rules, Schema, SessionLabels, Source},
};
use aegis_routes::Catalog;
use anyhow::{Context, anyhow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ending::Mistake;

/// One file of cases.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// Laid over those that ship.
    #[serde(default)]
    contexts: Vec<SecurityContext>,
    /// Cedar, as in a policy file.
    policies: Option<String>,
    /// What the shipped rules about labels do; left out, they are off.
    label_rules: Option<LabelRules>,
    cases: Vec<Case>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The first of the file's own contexts when left out.
    context: Option<String>,
    tier: Option<Tier>,
    user: Option<String>,
    tenant: Option<String>,
    tool: String,
    #[serde(default)]
    arguments: Map<String, Value>,
    /// What the session has read.
    #[serde(default)]
    having: Vec<TrustClass>,
    /// When the call is made; left out, a Monday at noon.
    at: Option<String>,
    /// `pass`, `ask`, or the violation.
    verdict: String,
    /// What rules in shadow mode would have done: `deny`, `ask` or, left out, nothing.
    would_have: Option<String>,
}

/// What came of a case.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub file: String,
    pub case: String,
    pub expected: String,
    pub found: String,
}

impl Outcome {
    pub fn holds(&self) -> bool {
        self.expected == self.found
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}, expected {}", self.file, self.case, self.found, self.expected)
    }
}

/// The files of cases that a path names: itself, or those in the directory.
pub fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let is_policy =
        |file: &Path| file.extension().is_some_and(|ending| ending == "cedar" || ending == "examples");
    if !path.is_dir() {
        if is_policy(path) {
            return Err(no_cases(path, "is a policy file, and cases are YAML").into());
        }
        return Ok(vec![path.to_owned()]);
    }
    let entries = fs::read_dir(path).with_context(|| format!("can't read {}", path.display()))?;
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    let policies = files.iter().any(|file| is_policy(file));
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml"));
    files.sort();
    if files.is_empty() {
        let why = if policies { "holds policies, and no cases (*.yaml)" } else { "holds no cases (*.yaml)" };
        return Err(no_cases(path, why).into());
    }
    Ok(files)
}

fn no_cases(path: &Path, why: &str) -> Mistake {
    let path = path.display();
    let next = format!(
        "`aegis policy check {path}` runs the examples that policies carry; how cases are written is in docs/policy.md"
    );
    Mistake::new(format!("{path} {why}"), next)
}

/// Decides every case of a file.
pub fn run(file: &Path, catalog: &Catalog, schema: &Schema) -> anyhow::Result<Vec<Outcome>> {
    let name = file.display().to_string();
    let text = fs::read_to_string(file).with_context(|| format!("can't read {name}"))?;
    let parsed = document::parse::<Cases>(&text)
        .map_err(|mistakes| anyhow!("{}", document::render(&mistakes, &text, &name)))?;
    let cases = parsed.value;
    let mut config = NodeConfig::default();
    config.spec.security_contexts = cases.contexts.clone();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let sources: Vec<Source> =
        cases.policies.iter().map(|policies| Source::new(format!("{stem}.cedar"), policies)).collect();
    let rules = Rules::compile(&sources, schema, cases.label_rules.unwrap_or(LabelRules::Off))
        .with_context(|| format!("the policies of {name} can't be used"))?;
    let gate = PolicyGate::new(&config.contexts(), rules, LabelBook::forgetful());
    cases.cases.iter().map(|case| decide(&name, &cases, case, catalog, &gate)).collect()
}

fn decide(
    file: &str,
    cases: &Cases,
    case: &Case,
    catalog: &Catalog,
    gate: &PolicyGate,
) -> anyhow::Result<Outcome> {
    let first = cases.contexts.first().map_or("workspace", |context| context.name.as_str());
    let context = case.context.as_deref().unwrap_or(first);
    let now = match &case.at {
        Some(text) => Timestamp::parse(text).with_context(|| format!("{file}: `{text}` is no time"))?,
        None => Timestamp::from_millis(1_767_614_400_000),
    };
    let caller = Caller {
        tenant: case.tenant.as_deref().unwrap_or("local").into(),
        user: case.user.as_deref().unwrap_or("someone").into(),
        tier: case.tier.unwrap_or(Tier::User),
        context: context.into(),
        credential: "case".into(),
        door: Door::Rest,
        session: None,
        pinned: None,
    };
    let mut shown = format!("{} {} as {context}", case.tool, Value::from(case.arguments.clone()));
    if !case.having.is_empty() {
        let names: Vec<&str> = case.having.iter().map(|class| class.as_str()).collect();
        shown = format!("{shown} having {}", names.join(","));
    }
    let told = |found: String, shadow: Option<&str>| Outcome {
        file: file.to_owned(),
        case: shown.clone(),
        expected: worded(&case.verdict, case.would_have.as_deref()),
        found: worded(&found, shadow),
    };
    let Some(tool) = catalog.resolve(&case.tool) else { return Ok(told("ToolNotFound".into(), None)) };
    let mut arguments = case.arguments.clone();
    if let Err(violation) = ArgumentsGate::new([tool.as_ref()]).check(&tool, &mut arguments) {
        return Ok(told(violation.kind.to_string(), None));
    }
    let read: Vec<Label> = case.having.iter().map(|class| Label::new(*class, "case")).collect();
    let labels = Arc::new(SessionLabels::of(&read));
    let decision =
        gate.decide_under(&caller, &tool, &arguments, &Circumstances { labels: &labels, now, hidden: &[] });
    let shadow = decision.verdict.would_have.first().map(|shadow| match shadow.effect {
        ShadowEffect::Deny => "deny",
        ShadowEffect::AskApproval => "ask",
    });
    Ok(match decision.verdict.verdict {
        Verdict::Deny(violation) => told(violation.kind.to_string(), shadow),
        Verdict::Pass { .. } => {
            let (approval, place) = decision
                .granted
                .map_or((None, String::new()), |granted| (granted.approval, granted.grant.rule));
            let asks = reasons(&tool, &arguments, approval, &place, decision.asks);
            told(if asks.is_empty() { "pass".into() } else { "ask".into() }, shadow)
        }
    })
}

fn worded(verdict: &str, shadow: Option<&str>) -> String {
    match shadow {
        Some(shadow) => format!("{verdict} (would have: {shadow})"),
        None => verdict.to_owned(),
    }
}
