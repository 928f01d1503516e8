//! The policy gate against the cases in `corpus/policy/`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

use std::{path::Path, sync::Arc};

use aegis::node::{ActiveConfig, catalog};
use aegis_core::{
    Caller, Door, Tier, Verdict,
    config::{NodeConfig, SecurityContext},
    document,
};
use aegis_gates::{ArgumentsGate, PolicyGate};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cases {
    contexts: Vec<SecurityContext>,
    cases: Vec<Case>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Case {
    /// The first of the file's own contexts when left out.
    context: Option<String>,
    tier: Option<Tier>,
    tool: String,
    arguments: Map<String, Value>,
    /// `pass`, or the violation.
    verdict: String,
}

#[test]
fn policy_cases() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/policy");
    let mut count = 0;
    let mut wrong = Vec::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let file = file.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        let parsed = document::parse::<Cases>(&text).unwrap_or_else(|mistakes| {
            panic!(
                "{}: {}",
                file.display(),
                mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
            )
        });
        for case in &parsed.value.cases {
            count += 1;
            let verdict = decide(&parsed.value.contexts, case);
            if verdict != case.verdict {
                wrong.push(format!(
                    "{}: {} {:?}: {verdict}, expected {}",
                    file.display(),
                    case.tool,
                    case.arguments,
                    case.verdict
                ));
            }
        }
    }
    println!("{count} policy cases");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count >= 40);
}

fn decide(contexts: &[SecurityContext], case: &Case) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut config = NodeConfig::default();
    config.spec.security_contexts = contexts.to_vec();
    let policy = PolicyGate::new(&config.contexts());
    let catalog = catalog(&Arc::new(ActiveConfig::new(None, config)), dir.path(), Arc::new(|| true)).unwrap();
    let arguments = ArgumentsGate::new(catalog.specs().map(AsRef::as_ref));
    let tool = catalog.resolve(&case.tool).unwrap();
    let context = case.context.as_deref().unwrap_or_else(|| contexts[0].name.as_str());
    let caller = Caller {
        tenant: "local".into(),
        user: "someone".into(),
        tier: case.tier.unwrap_or(Tier::User),
        context: context.into(),
        credential: "test".into(),
        door: Door::Rest,
        session: None,
    };
    let mut checked = case.arguments.clone();
    if let Err(violation) = arguments.check(tool, &mut checked) {
        return violation.kind.to_string();
    }
    let decision = policy.decide(&caller, tool, &checked);
    match decision.verdict.verdict {
        Verdict::Pass { .. } => "pass".to_owned(),
        Verdict::Deny(violation) => violation.kind.to_string(),
    }
}
