//! What would come of a call, gate by gate, without making it. Nothing is charged, recorded or run.

use aegis_core::{
    Call, Caller, Grant, ToolSpec, Verdict, Violation, ViolationKind,
    approval::{Ask, Asker},
    tool::Target,
    verdict::ShadowEffect,
};
use aegis_gates::{
    approval::reasons,
    policy::{Circumstances, Decision},
};
use serde::Serialize;

use crate::Plane;

/// The whole answer.
#[derive(Debug, Serialize)]
pub struct Explanation {
    pub tool: String,
    pub ends: Ends,
    /// In the order a call meets them. Those after an objection are not reached.
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ends {
    Allowed,
    Denied,
    /// A person would be asked first.
    Asks,
}

#[derive(Debug, Serialize)]
pub struct Step {
    pub gate: &'static str,
    pub says: Says,
    /// What the call would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violation: Option<ViolationKind>,
    /// In words.
    pub text: String,
    /// Which rule, and where it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    Passes,
    Objects,
    Asks,
    /// A rule in shadow mode has an opinion, which is only recorded.
    WouldObject,
    WouldAsk,
}

/// What the policy gate looks at, in its order, and the violations that come from each.
const CHECKS: [(&str, &str, &[ViolationKind]); 5] = [
    (
        "allowlist",
        "the tier reaches the tool and a capability of the context names it",
        &[ViolationKind::ToolNotAllowed],
    ),
    ("deny list", "nothing on it is about this call", &[ViolationKind::ToolExplicitlyDenied]),
    (
        "rate",
        "within its limits; looking spends nothing",
        &[ViolationKind::RateLimitExceeded, ViolationKind::ConcurrentExecLimitExceeded],
    ),
    (
        "targets",
        "every path, domain and command lies within the capability's limits",
        &[
            ViolationKind::PathOutsideBoundary,
            ViolationKind::PathTraversalAttempt,
            ViolationKind::DomainNotAllowed,
            ViolationKind::CommandNotAllowed,
            ViolationKind::SubcommandNotAllowed,
            ViolationKind::InvalidArguments,
        ],
    ),
    ("policies", "no Cedar policy forbids it", &[ViolationKind::PolicyForbids]),
];

/// `circumstances` stand for what a real caller would bring with it.
pub fn explain(
    plane: &Plane,
    caller: &Caller,
    call: &Call,
    circumstances: &Circumstances<'_>,
) -> Explanation {
    let mut steps = Vec::new();
    let Some(tool) = plane.catalog().resolve(&call.tool) else {
        steps.push(objects("catalog", &plane.no_such_tool(caller, &call.tool)));
        return Explanation { tool: call.tool.clone(), ends: Ends::Denied, steps };
    };
    steps.push(passes("catalog", format!("`{}` is a tool of this node", tool.name), None));
    let ends = gates(plane, caller, &tool, call, circumstances, &mut steps);
    Explanation { tool: tool.name.to_string(), ends, steps }
}

fn gates(
    plane: &Plane,
    caller: &Caller,
    tool: &ToolSpec,
    call: &Call,
    circumstances: &Circumstances<'_>,
    steps: &mut Vec<Step>,
) -> Ends {
    let mut arguments = call.arguments.clone();
    // In the pipeline's order: whoever may not use the tool at all learns nothing about its arguments.
    if plane.policy().sees(caller, tool) {
        if let Err(violation) = plane.arguments().check(tool, &mut arguments) {
            steps.push(objects("arguments", &violation));
            return Ends::Denied;
        }
        steps.push(passes("arguments", "they fit the tool's schema", None));
    }
    let decision = plane.policy().decide_under(caller, tool, &arguments, circumstances);
    let (approval, place) = match &decision.granted {
        Some(granted) => (granted.approval, granted.grant.rule.as_str()),
        None => (None, ""),
    };
    let asks = reasons(tool, &arguments, approval, place, decision.asks.clone());
    policy(tool, &decision, &asks, steps)
}

fn policy(tool: &ToolSpec, decision: &Decision, asks: &[Ask], steps: &mut Vec<Step>) -> Ends {
    let objection = match &decision.verdict.verdict {
        Verdict::Deny(violation) => Some(violation),
        Verdict::Pass { .. } => None,
    };
    for (gate, holds, kinds) in CHECKS {
        if let Some(violation) = objection.filter(|violation| kinds.contains(&violation.kind)) {
            steps.push(objects(gate, violation));
            shadows(decision, steps);
            return Ends::Denied;
        }
        let rule = decision.granted.as_ref().filter(|_| gate == "allowlist");
        steps.push(passes(gate, holds, rule.map(|granted| granted.grant.rule.clone())));
        if gate == "deny list"
            && let Some(granted) = &decision.granted
        {
            steps.extend(closed_paths(tool, &granted.grant));
        }
    }
    if let Some(violation) = objection {
        steps.push(objects("policies", violation));
        shadows(decision, steps);
        return Ends::Denied;
    }
    shadows(decision, steps);
    let by_labels = asks.iter().any(|ask| ask.by == Asker::Labels)
        || decision.verdict.would_have.iter().any(|shadow| is_of_labels(&shadow.rule));
    if !by_labels {
        steps.push(passes("labels", "what the session has read holds nothing up", None));
    }
    if asks.is_empty() {
        steps.push(passes("approval", "no rule asks for a person", None));
        return Ends::Allowed;
    }
    steps.extend(asks.iter().map(asked));
    Ends::Asks
}

/// What the deny list's paths mean for a tool whose arguments don't say which files it touches.
fn closed_paths(tool: &ToolSpec, grant: &Grant) -> Option<Step> {
    let names_paths =
        |target: &Target| matches!(target, Target::Path { .. } | Target::Tree { .. } | Target::Patch { .. });
    if grant.denied_paths.is_empty() || tool.targets.iter().any(names_paths) {
        return None;
    }
    let listed: Vec<String> = grant.denied_paths.iter().map(|path| format!("`{path}`")).collect();
    let listed = listed.join(", ");
    let (text, hint) = match (tool.is_upstream(), tool.runs_programs()) {
        (true, _) => (
            format!(
                "the paths among the arguments of an MCP server's tool are not known, so nothing at {listed} is closed to it"
            ),
            Some(
                "what its server sees of this machine is set under spec.mcp_servers; a Cedar policy can look at the arguments",
            ),
        ),
        (false, true) => (format!("its sandbox shows nothing at {listed}, whatever the command does"), None),
        (false, false) => return None,
    };
    Some(Step {
        gate: "deny list",
        says: Says::Passes,
        violation: None,
        text,
        rule: Some(grant.deny_list.clone()),
        hint: hint.map(str::to_owned),
    })
}

fn shadows(decision: &Decision, steps: &mut Vec<Step>) {
    for shadow in &decision.verdict.would_have {
        let (says, text) = match shadow.effect {
            ShadowEffect::Deny => (Says::WouldObject, "in shadow mode; would forbid it"),
            ShadowEffect::AskApproval => (Says::WouldAsk, "in shadow mode; would ask a person"),
        };
        let gate = if is_of_labels(&shadow.rule) { "labels" } else { "policies" };
        let rule = Some(shadow.rule.clone());
        steps.push(Step { gate, says, violation: None, text: text.to_owned(), rule, hint: None });
    }
}

/// Whether a rule is one of those about labels that ship with the node; a shadow tells only its name.
fn is_of_labels(rule: &str) -> bool {
    rule.starts_with("spec.policy.label_rules")
}

fn asked(ask: &Ask) -> Step {
    let (gate, who) = match ask.by {
        Asker::Tool => ("approval", "the tool's own rule asks for a person"),
        Asker::Context => ("approval", "the security context asks for a person"),
        Asker::Policy => ("policies", "a Cedar policy asks for a person"),
        Asker::Labels => ("labels", "what the session has read asks for a person"),
    };
    let text = match &ask.reason {
        Some(reason) => format!("{who}: {reason}"),
        None => who.to_owned(),
    };
    Step { gate, says: Says::Asks, violation: None, text, rule: Some(ask.rule.clone()), hint: None }
}

fn passes(gate: &'static str, text: impl Into<String>, rule: Option<String>) -> Step {
    Step { gate, says: Says::Passes, violation: None, text: text.into(), rule, hint: None }
}

fn objects(gate: &'static str, violation: &Violation) -> Step {
    Step {
        gate,
        says: Says::Objects,
        violation: Some(violation.kind),
        text: format!("{} ({})", violation.message, violation.kind),
        rule: violation.rule.clone(),
        hint: violation.hint.clone(),
    }
}

#[cfg(test)]
mod tests {
    use aegis_core::{
        Label,
        caller::Tier,
        label::TrustClass,
        path::PathPrefix,
        tool::{ApprovalRule, Mutability, Route, UPSTREAM_TAG},
    };
    use serde_json::Value;

    use super::*;

    fn tool(tag: &str, targets: Vec<Target>) -> ToolSpec {
        ToolSpec {
            name: "a.b".into(),
            aliases: Vec::new(),
            title: "".into(),
            category: "a".into(),
            description: "".into(),
            tags: vec![tag.to_owned().into()],
            tier: Tier::User,
            skip_judge: false,
            mutability: Mutability::ReadOnly,
            idempotent: false,
            approval: ApprovalRule::NotRequired,
            route: Route::Upstream,
            targets,
            label: Label::new(TrustClass::ExternalUntrusted, "x"),
            provenance: "".into(),
            input_schema: Value::Null,
            output_schema: Value::Null,
            structured_schema: Value::Null,
            examples: Vec::new(),
        }
    }

    #[test]
    fn what_closed_paths_mean_is_said_where_no_argument_is_a_path() {
        let grant = Grant {
            denied_paths: vec![PathPrefix::parse("/workspace/keys").unwrap()],
            deny_list: "security_contexts[mine].deny_list".into(),
            ..Grant::default()
        };
        let said = |tool: &ToolSpec| closed_paths(tool, &grant).map(|step| (step.text, step.rule.unwrap()));
        let (text, rule) = said(&tool(UPSTREAM_TAG, Vec::new())).unwrap();
        assert!(text.contains("nothing at `/workspace/keys` is closed to it"), "{text}");
        assert_eq!(rule, "security_contexts[mine].deny_list");
        let runs = Target::Program { program: "bash".into() };
        let (text, _) = said(&tool("exec", vec![runs])).unwrap();
        assert!(text.contains("shows nothing at `/workspace/keys`"), "{text}");
        assert!(said(&tool("files", vec![Target::Path { argument: "path".into() }])).is_none());
        assert!(said(&tool("web", Vec::new())).is_none());
        assert!(closed_paths(&tool(UPSTREAM_TAG, Vec::new()), &Grant::default()).is_none());
    }
}
