//! Policy: the caller's SecurityContext against the call, in a fixed order.
//!
//! tier and allowlist → deny list → rate → path, domain, command. The first objection decides, and its own reason
//! is what the caller hears. Looking never spends a budget: [`PolicyGate::decide`] only reads, [`PolicyGate::admit`]
//! charges.

mod commands;
mod contexts;
mod rates;
mod targets;

use std::sync::Arc;

use aegis_core::{
    Caller, Gate, GateVerdict, Grant, ToolSpec, Violation, ViolationKind,
    config::{Capability, SecurityContext},
    nearest::suggestion,
};
use arc_swap::ArcSwap;
use serde_json::{Map, Value};

pub use contexts::{CompiledContext, ContextSet};
pub use rates::Charge;

use rates::{Budget, RateBook, RateKey};
use targets::Targets;

#[derive(Debug)]
pub struct PolicyGate {
    contexts: ArcSwap<ContextSet>,
    rates: Arc<RateBook>,
}

/// What the gate said, and the limits that go with a yes.
#[derive(Debug)]
pub struct Decision {
    pub verdict: GateVerdict,
    pub granted: Option<Granted>,
}

/// The capability that let the call through.
#[derive(Debug, Clone)]
pub struct Granted {
    pub grant: Grant,
    /// As it was when the call was decided, whatever is in force when it is charged.
    budget: Budget,
}

/// A caller's context, and its capabilities that name the tool, with their places.
struct Named<'c> {
    context: &'c CompiledContext,
    matching: Vec<(usize, &'c Capability)>,
}

impl PolicyGate {
    pub fn new(contexts: &[SecurityContext]) -> Self {
        Self {
            contexts: ArcSwap::from_pointee(ContextSet::compile(contexts)),
            rates: Arc::new(RateBook::default()),
        }
    }

    /// Puts new contexts in force for every call that is decided from now on. Rate budgets live on.
    pub fn replace(&self, contexts: &[SecurityContext]) {
        self.contexts.store(Arc::new(ContextSet::compile(contexts)));
    }

    pub fn contexts(&self) -> Arc<ContextSet> {
        self.contexts.load_full()
    }

    /// Whether the caller may call the tool with some arguments. `tools/list` shows exactly these.
    pub fn sees(&self, caller: &Caller, tool: &ToolSpec) -> bool {
        let contexts = self.contexts.load();
        self.named(&contexts, caller, tool).is_ok()
    }

    /// Whether the call may go ahead now. Changes nothing.
    pub fn decide(&self, caller: &Caller, tool: &ToolSpec, arguments: &Map<String, Value>) -> Decision {
        let contexts = self.contexts.load();
        let version = contexts.get(caller.context.as_str()).map(|context| context.version.clone());
        let (verdict, granted) = match self.look(&contexts, caller, tool, arguments) {
            Ok(granted) => (GateVerdict::pass(Gate::Policy).by(granted.grant.rule.clone()), Some(granted)),
            Err(violation) => (GateVerdict::deny(Gate::Policy, violation), None),
        };
        let verdict = match version {
            Some(version) => verdict.under(version),
            None => verdict,
        };
        Decision { verdict, granted }
    }

    /// Charges the call to the caller's budgets; the last moment at which a rate can refuse it. The charge's
    /// concurrency slot is given back when it is dropped.
    pub fn admit(&self, caller: &Caller, tool: &ToolSpec, granted: &Granted) -> Result<Charge, Violation> {
        RateBook::charge(&self.rates, &RateKey::new(caller, tool), granted.budget)
            .map_err(|refused| refused.violation(tool, &granted.grant.rule))
    }

    /// The checks that need only the tool's name.
    fn named<'c>(
        &self,
        contexts: &'c ContextSet,
        caller: &Caller,
        tool: &ToolSpec,
    ) -> Result<Named<'c>, Violation> {
        let not_allowed = |message: String| Violation::new(ViolationKind::ToolNotAllowed, message);
        let Some(context) = contexts.get(caller.context.as_str()) else {
            return Err(not_allowed(format!("the security context `{}` does not exist", caller.context))
                .rule("spec.security_contexts")
                .hint(format!(
                    "define it in the node configuration or use another{}",
                    suggestion(caller.context.as_str(), contexts.names())
                )));
        };
        if !caller.tier.reaches(tool.tier) {
            return Err(not_allowed(format!(
                "`{}` is for the {} tier and the caller is of the {} tier",
                tool.name, tool.tier, caller.tier
            ))
            .rule(format!("tier of `{}`", tool.name))
            .hint("use a credential of that tier: `aegis token create --tier …`"));
        }
        let matching: Vec<(usize, &Capability)> = context
            .source
            .capabilities
            .iter()
            .enumerate()
            .filter(|(_, capability)| tool.names().any(|name| capability.tool_pattern.matches(name)))
            .collect();
        if matching.is_empty() {
            return Err(not_allowed(format!(
                "the security context `{}` has no capability for `{}`",
                caller.context, tool.name
            ))
            .rule(format!("security_contexts[{}].capabilities", caller.context))
            .hint(format!(
                "an operator can add `{{tool_pattern: {}}}` to the context, or give a credential of another context",
                tool.name
            )));
        }
        let denied = context
            .source
            .deny_list
            .iter()
            .find(|entry| entry.target.is_none() && tool.names().any(|name| entry.tool.matches(name)));
        if let Some(entry) = denied {
            return Err(explicitly_denied(caller, tool, &entry.to_string()));
        }
        Ok(Named { context, matching })
    }

    fn look(
        &self,
        contexts: &ContextSet,
        caller: &Caller,
        tool: &ToolSpec,
        arguments: &Map<String, Value>,
    ) -> Result<Granted, Violation> {
        let Named { context, matching } = self.named(contexts, caller, tool)?;
        let targets = Targets::of(tool, arguments)?;
        if let Some(entry) = context.source.deny_list.iter().find(|entry| {
            tool.names().any(|name| entry.tool.matches(name))
                && entry.target.as_ref().is_some_and(|target| targets.touch(target))
        }) {
            return Err(explicitly_denied(caller, tool, &entry.to_string()));
        }
        let key = RateKey::new(caller, tool);
        let mut first = None;
        for (index, capability) in matching {
            let place = format!("security_contexts[{}].capabilities[{index}]", caller.context);
            let checked = self
                .rates
                .peek(&key, Budget::of(capability))
                .map_err(|refused| refused.violation(tool, &place))
                .and_then(|()| targets.within(capability, tool, &place));
            match checked {
                Ok(()) => {
                    let grant = Grant {
                        rule: place,
                        paths: capability.path_allowlist.clone(),
                        domains: capability.domain_allowlist.clone(),
                        denied_domains: context.denied_domains(tool),
                        max_response_size: capability.max_response_size.map(|size| size.0),
                    };
                    return Ok(Granted { grant, budget: Budget::of(capability) });
                }
                Err(violation) => first = first.or(Some(violation)),
            }
        }
        Err(first.unwrap_or_else(|| {
            Violation::new(ViolationKind::ToolNotAllowed, format!("no capability covers `{}`", tool.name))
        }))
    }
}

fn explicitly_denied(caller: &Caller, tool: &ToolSpec, entry: &str) -> Violation {
    Violation::new(
        ViolationKind::ToolExplicitlyDenied,
        format!("`{}` is on the deny list of the security context `{}`", tool.name, caller.context),
    )
    .rule(format!("security_contexts[{}].deny_list: {entry}", caller.context))
    .hint("the deny list wins over every capability; only an operator can change it")
}
