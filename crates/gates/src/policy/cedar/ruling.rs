//! What the rules that match mean together: forbid wins, then a missing permit, then the asks.

use std::sync::Arc;

use aegis_core::{
    Ask, Asker, Violation, ViolationKind,
    verdict::{Shadow, ShadowEffect},
};

use super::{
    rule::{Rule, RuleEffect},
    slice::{Findings, Slice},
};

/// What Cedar says to a call that the caller's context grants.
#[derive(Debug, Default)]
pub struct Ruling {
    pub forbidden: Option<Violation>,
    /// Reasons to ask a person first; none when the call is forbidden.
    pub asks: Vec<Ask>,
    /// What rules in shadow mode would have done.
    pub would_have: Vec<Shadow>,
    /// Every rule that matched, in the order of files and lines.
    pub matched: Vec<Arc<Rule>>,
    /// Rules that might have said something, had the arguments they look at been known.
    pub undecidable: Vec<Arc<Rule>>,
    /// Of the rules that can speak about the tool.
    pub version: String,
}

impl Ruling {
    /// The call could not be put before the rules: refused, for what they would have said is not known.
    pub(super) fn unstatable(slice: &Slice, tool: &str, reason: &str) -> Self {
        let violation =
            Violation::new(ViolationKind::PolicyForbids, format!("`{tool}` is forbidden: {reason}"))
                .rule(slice.rules.first().map(|rule| rule.place()).unwrap_or_default())
                .hint("a call that its policies can't judge is refused; the operator can narrow the policy");
        Self { forbidden: Some(violation), version: slice.version.clone(), ..Self::default() }
    }

    pub(super) fn of(slice: &Slice, tool: &str, findings: &Findings) -> Self {
        let matched = || findings.matched.iter().map(|place| &slice.rules[*place]);
        let blind = || findings.blind.iter().map(|place| &slice.rules[*place]);
        let enforced = |effect| matched().filter(move |rule| !rule.shadow && rule.effect == effect);
        let failed = findings.failed.iter().map(|(place, error)| (&slice.rules[*place], error));
        let broken = failed.clone().find(|(rule, _)| !rule.shadow);
        let forbidden = match (broken, enforced(RuleEffect::Forbid).next()) {
            (_, Some(rule)) => Some(forbids(tool, rule)),
            (Some((rule, error)), None) => Some(breaks(tool, rule, error)),
            (None, None) => {
                let permits = |rule: &&Arc<Rule>| !rule.shadow && rule.effect == RuleEffect::Permit;
                let open =
                    enforced(RuleEffect::Permit).next().is_some() || blind().any(|rule| permits(&rule));
                if open { None } else { closed(slice, tool) }
            }
        };
        let asks = match &forbidden {
            Some(_) => Vec::new(),
            None => enforced(RuleEffect::Ask).map(|rule| ask(rule)).collect(),
        };
        let mut would_have: Vec<Shadow> = matched()
            .filter(|rule| rule.shadow)
            .filter_map(|rule| {
                let effect = match rule.effect {
                    RuleEffect::Permit => return None,
                    RuleEffect::Forbid => ShadowEffect::Deny,
                    RuleEffect::Ask => ShadowEffect::AskApproval,
                };
                Some(Shadow { effect, rule: rule.place() })
            })
            .collect();
        would_have.extend(
            failed
                .filter(|(rule, _)| rule.shadow)
                .map(|(rule, _)| Shadow { effect: ShadowEffect::Deny, rule: rule.place() }),
        );
        // A permit that is tried out would close the tool to whatever no permit matches.
        let tried = slice.rules.iter().find(|rule| rule.shadow && rule.effect == RuleEffect::Permit);
        if let Some(rule) = tried
            && !matched().chain(blind()).any(|rule| rule.effect == RuleEffect::Permit)
        {
            would_have.push(Shadow { effect: ShadowEffect::Deny, rule: rule.place() });
        }
        Self {
            forbidden,
            asks,
            would_have,
            matched: matched().cloned().collect(),
            undecidable: blind().filter(|rule| !rule.shadow).cloned().collect(),
            version: slice.version.clone(),
        }
    }
}

fn ask(rule: &Rule) -> Ask {
    // Whoever wrote the rule: what asks because of what was read is not settled by an approval of something else.
    let by = if rule.reads_session { Asker::Labels } else { rule.asker };
    Ask { by, rule: rule.place(), reason: rule.reason.clone() }
}

fn forbids(tool: &str, rule: &Rule) -> Violation {
    let why = rule.description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    Violation::new(
        ViolationKind::PolicyForbids,
        format!("the policy `{}` forbids this call of `{tool}`{why}", rule.id),
    )
    .rule(rule.place())
    .hint(match rule.asker {
        Asker::Labels => "a new session has read nothing yet",
        _ => "other arguments may pass; `aegis policy list --json` has the policy's text, for operators",
    })
}

fn breaks(tool: &str, rule: &Rule, error: &str) -> Violation {
    Violation::new(
        ViolationKind::PolicyForbids,
        format!("the policy `{}` can't be evaluated for this call of `{tool}`: {error}", rule.id),
    )
    .rule(rule.place())
    .hint("a call that its policies can't judge is refused; the operator can mend the policy")
}

/// A tool that a permit speaks of is open only where one matches.
fn closed(slice: &Slice, tool: &str) -> Option<Violation> {
    let mut permits =
        slice.rules.iter().filter(|rule| !rule.shadow && rule.effect == RuleEffect::Permit).peekable();
    permits.peek()?;
    let places: Vec<String> = permits.by_ref().take(3).map(|rule| rule.place()).collect();
    let more = permits.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(
        Violation::new(
            ViolationKind::PolicyForbids,
            format!(
                "no policy permits this call of `{tool}`, and where permits speak of a tool one must match"
            ),
        )
        .rule(format!("{}{more}", places.join(", ")))
        .hint("call it as a permit describes, or ask the operator for one"),
    )
}
