//! Policy: the caller's SecurityContext against the call, in a fixed order; then the operator's Cedar policies and the
//! rules about labels.
//!
//! tier and allowlist → deny list → rate → path, domain, command → policies. The first objection decides, and its own
//! reason is what the caller hears. Looking never spends a budget: [`PolicyGate::decide`] only reads,
//! [`PolicyGate::admit`] charges.

mod cedar;
mod commands;
mod contexts;
mod denials;
mod in_force;
mod labels;
mod rates;
mod reach;
mod targets;

use std::sync::Arc;

use aegis_core::{
    Ask, Caller, Gate, GateVerdict, Grant, Timestamp, ToolSpec, Violation, ViolationKind,
    config::{
        Capability, CommandCeiling, DenyEntry, SecurityContext,
        security_context::{CapabilityApproval, DenyTarget, OPERATOR_CONTEXT},
    },
    id::{ContextName, ContextVersion},
    label::{Label, TrustClass},
};
use aegis_stores::{
    Registry,
    registry::{MOST_CONTEXT_VERSIONS, RegistryError},
};
use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::{Map, Value};
use tokio::sync::Notify;

pub use cedar::{
    Example, ExampleVerdict, Held, LABEL_RULES, Problem, Rule, RuleEffect, Rules, RulesError, Ruling, Schema,
    SchemaError, Source, list_sources, warm_up,
};
pub use contexts::{CompiledContext, ContextSet};
pub use labels::{LabelBook, SESSION_MEMORY, SessionLabels};
pub use rates::Charge;

use cedar::Facts;
use commands::Bounds;
use denials::{explicitly_denied, moves_what_is_denied};
use rates::{Budget, RateBook, RateKey};
use reach::{opens_network, servers_of};
use targets::Targets;

#[derive(Debug)]
pub struct PolicyGate {
    contexts: ArcSwap<ContextSet>,
    rules: ArcSwap<Rules>,
    /// Why the policies that were read last are not those in force.
    refused_rules: ArcSwapOption<RulesError>,
    /// Told whenever policies were read, whatever came of it.
    read: Notify,
    labels: LabelBook,
    rates: Arc<RateBook>,
    versions: Versions,
    ceiling: CommandCeiling,
}

/// Where the versions of contexts are kept, so that a session keeps the one it was opened under across a restart.
#[derive(Debug)]
enum Versions {
    InMemory,
    In(Registry),
}

/// What the gate said, and the limits that go with a yes.
#[derive(Debug)]
pub struct Decision {
    pub verdict: GateVerdict,
    pub granted: Option<Granted>,
    /// Why policies or labels want a person to agree first; empty when the call is refused.
    pub asks: Vec<Ask>,
    /// Of the context and, where some can speak about the tool, of the rules that decided: `name@…+rules@…`.
    pub version: String,
    /// What the caller's session has read, sorted.
    pub labels: Vec<TrustClass>,
    /// Rules that look at an argument which was hidden, so that nobody knows what they would have said.
    pub undecidable: Vec<Arc<Rule>>,
}

/// The capability that let the call through.
#[derive(Debug, Clone)]
pub struct Granted {
    pub grant: Grant,
    /// Whether the capability itself wants a person to agree; its place is the grant's rule.
    pub approval: Option<CapabilityApproval>,
    /// As it was when the call was decided, whatever is in force when it is charged.
    budget: Budget,
}

/// What a decision goes by besides caller, tool and arguments.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// What the session has read.
    pub labels: &'a Arc<SessionLabels>,
    pub now: Timestamp,
    /// Arguments whose values are not known, as in a record that holds them in part.
    pub hidden: &'a [&'a str],
}

/// The version that a context has: `name@` and the start of a digest of its text.
pub fn version_of(context: &SecurityContext) -> ContextVersion {
    CompiledContext::new(context.clone()).version
}

impl PolicyGate {
    /// A gate that knows no versions of contexts but those that come in force while it lives.
    pub fn new(contexts: &[SecurityContext], rules: Rules, labels: LabelBook) -> Self {
        Self {
            contexts: ArcSwap::from_pointee(ContextSet::compile(contexts)),
            rules: ArcSwap::from_pointee(rules),
            refused_rules: ArcSwapOption::empty(),
            read: Notify::new(),
            labels,
            rates: Arc::default(),
            versions: Versions::InMemory,
            ceiling: CommandCeiling::default(),
        }
    }

    /// The same gate on a node that lets nobody run more commands than these.
    #[must_use]
    pub fn under(self, ceiling: CommandCeiling) -> Self {
        Self { ceiling, ..self }
    }

    /// A gate that keeps the versions of contexts in the registry, and knows those that are there.
    pub async fn open(
        contexts: &[SecurityContext],
        rules: Rules,
        labels: LabelBook,
        registry: Registry,
        ceiling: CommandCeiling,
    ) -> Result<Self, RegistryError> {
        let mut earlier = Vec::new();
        for row in registry.contexts(None, MOST_CONTEXT_VERSIONS).await? {
            match serde_json::from_str::<SecurityContext>(&row.text) {
                Ok(source) if row.retired.is_none() => {
                    earlier.push(Arc::new(CompiledContext { source, version: row.version }));
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(version = %row.version, %error, "an earlier context can't be read; sessions under it must attest again");
                }
            }
        }
        earlier.reverse();
        let contexts = ContextSet::over(contexts, earlier);
        registry.keep_contexts(contexts.texts()).await?;
        let gate = Self::new(&[], rules, labels);
        gate.contexts.store(Arc::new(contexts));
        Ok(Self { versions: Versions::In(registry), ceiling, ..gate })
    }

    /// Puts new contexts in force for every call that is decided from now on. Sessions that were opened under an
    /// earlier version keep it. Rate budgets live on.
    pub async fn replace(&self, contexts: &[SecurityContext]) -> Result<(), RegistryError> {
        if let Versions::In(registry) = &self.versions {
            registry.keep_contexts(ContextSet::compile(contexts).texts()).await?;
        }
        self.contexts.rcu(|before| before.succeeded_by(contexts));
        Ok(())
    }

    /// Takes the earlier versions of a context from the sessions that hold on to them: they must attest again.
    pub async fn retire(&self, name: &ContextName) -> Result<(), RegistryError> {
        if let Versions::In(registry) = &self.versions {
            let in_force = self.contexts.load().get(name.as_str()).map(|context| context.version.clone());
            let none = || ContextVersion::new("");
            registry.retire_contexts(name, &in_force.unwrap_or_else(none)).await?;
        }
        self.contexts.rcu(|before| before.without_earlier(name));
        Ok(())
    }

    pub fn contexts(&self) -> Arc<ContextSet> {
        self.contexts.load_full()
    }

    /// Whether the caller's context opens this name, whatever tool will have it: of one that is not there yet nothing else
    /// is known.
    pub fn opens_name(&self, caller: &Caller, name: &str) -> bool {
        self.contexts.load().of(caller).is_ok_and(|context| {
            let denies = |entry: &DenyEntry| entry.target.is_none() && entry.tool.matches(name);
            context.source.capabilities.iter().any(|capability| capability.tool_pattern.matches(name))
                && !context.source.deny_list.iter().any(denies)
        })
    }

    /// Whether the caller may call the tool with some arguments. `tools/list` shows exactly these.
    pub fn sees(&self, caller: &Caller, tool: &ToolSpec) -> bool {
        let contexts = self.contexts.load();
        let Ok(matching) = contexts.of(caller).and_then(|context| named(context, caller, tool)) else {
            return false;
        };
        let egress =
            matching.iter().all(|(_, capability)| opens_network(capability.domain_allowlist.as_deref()));
        let rules = self.rules.load();
        rules.know(&tool.name) && !rules.closes(tool, egress, caller, || self.labels.of(caller))
    }

    /// Whether the call may go ahead now. Changes nothing.
    pub fn decide(&self, caller: &Caller, tool: &ToolSpec, arguments: &Map<String, Value>) -> Decision {
        self.decide_without(caller, tool, arguments, &[])
    }

    /// As [`PolicyGate::decide`], where some arguments are not known and never will be.
    pub fn decide_without(
        &self,
        caller: &Caller,
        tool: &ToolSpec,
        arguments: &Map<String, Value>,
        hidden: &[&str],
    ) -> Decision {
        let labels = self.labels.of(caller);
        let circumstances = Circumstances { labels: &labels, now: Timestamp::now(), hidden };
        self.decide_under(caller, tool, arguments, &circumstances)
    }

    /// Whether the call might go ahead under circumstances that are told, not looked up. Changes nothing.
    pub fn decide_under(
        &self,
        caller: &Caller,
        tool: &ToolSpec,
        arguments: &Map<String, Value>,
        circumstances: &Circumstances<'_>,
    ) -> Decision {
        let contexts = self.contexts.load();
        let labels = circumstances.labels.classes().to_vec();
        let denied = |violation: Violation, version: String| {
            let verdict = GateVerdict::deny(Gate::Policy, violation);
            let verdict = if version.is_empty() { verdict } else { verdict.under(version.clone()) };
            let labels = labels.clone();
            Decision { verdict, granted: None, asks: Vec::new(), version, labels, undecidable: Vec::new() }
        };
        let context = match contexts.of(caller) {
            Ok(context) => context,
            Err(violation) => return denied(violation, String::new()),
        };
        let version = context.version.to_string();
        let looked = named(context, caller, tool).and_then(|matching| {
            let targets = Targets::of(tool, arguments)?;
            self.look(context, caller, tool, &matching, &targets).map(|granted| (granted, targets))
        });
        let (granted, targets) = match looked {
            Ok(looked) => looked,
            Err(violation) => return denied(violation, version),
        };
        let facts = Facts {
            caller,
            labels: circumstances.labels,
            arguments,
            targets: &targets,
            egress: opens_network(granted.grant.domains.as_deref()),
            now: circumstances.now,
            hidden: circumstances.hidden,
        };
        let rules = self.rules.load();
        if !rules.know(&tool.name) {
            return denied(self.unread(tool), version);
        }
        let ruling = rules.judge(tool, &facts).unwrap_or_default();
        let version =
            if ruling.version.is_empty() { version } else { format!("{version}+{}", ruling.version) };
        let mut decision = match ruling.forbidden {
            Some(violation) => denied(violation, version),
            None => Decision {
                verdict: GateVerdict::pass(Gate::Policy)
                    .by(granted.grant.rule.clone())
                    .under(version.clone()),
                granted: Some(granted),
                asks: ruling.asks,
                version,
                labels,
                undecidable: Vec::new(),
            },
        };
        decision.verdict.would_have = ruling.would_have;
        decision.undecidable = ruling.undecidable;
        decision
    }

    /// Takes on the label of what the caller is about to be given. Free when nothing about it is new.
    pub async fn observe(&self, caller: &Caller, label: &Label) -> Result<(), RegistryError> {
        self.labels.observe(caller, label).await
    }

    /// What the caller's session has read, with where it came from. Bounded.
    pub fn read_by(&self, caller: &Caller) -> Vec<Label> {
        self.labels.read_by(caller)
    }

    /// Charges the call to the caller's budgets; the last moment at which a rate can refuse it. The charge's
    /// concurrency slot is given back when it is dropped.
    pub fn admit(&self, caller: &Caller, tool: &ToolSpec, granted: &Granted) -> Result<Charge, Violation> {
        RateBook::charge(&self.rates, &RateKey::new(caller, tool), granted.budget)
            .map_err(|refused| refused.violation(tool, &granted.grant.rule))
    }

    /// Why nobody may call a tool that the policies in force were not read with.
    fn unread(&self, tool: &ToolSpec) -> Violation {
        let told = |why: &str| {
            let message = format!("`{}` can't be called yet: {why}", tool.name);
            Violation::new(ViolationKind::UpstreamUnavailable, message)
        };
        if self.refused_rules.load().is_some() {
            return told("the policies can't be read, and without them it stays closed")
                .hint("an operator looks at `aegis policy list`, and mends the files");
        }
        told("its MCP server has only just offered it, and the policies are being read with it")
            .hint("make the call again in a moment")
            .retry_after(1)
    }

    fn look(
        &self,
        context: &CompiledContext,
        caller: &Caller,
        tool: &ToolSpec,
        matching: &[(usize, &Capability)],
        targets: &Targets,
    ) -> Result<Granted, Violation> {
        if let Some(entry) = context.source.deny_list.iter().find(|entry| {
            tool.names().any(|name| entry.tool.matches(name))
                && entry.target.as_ref().is_some_and(|target| targets.touch(target))
        }) {
            return Err(explicitly_denied(caller, tool, entry));
        }
        // Under another name the path would be open again, so whoever may not touch it may not move it either.
        let moves = |entry: &&DenyEntry| match &entry.target {
            Some(DenyTarget::Path(closed)) => targets.would_move(closed),
            _ => false,
        };
        if let Some(entry) = context.source.deny_list.iter().find(moves) {
            return Err(moves_what_is_denied(caller, tool, entry));
        }
        let bounds = Bounds {
            unconstrained: context.source.name.as_str() == OPERATOR_CONTEXT,
            ceiling: &self.ceiling,
        };
        let key = RateKey::new(caller, tool);
        let mut first = None;
        for (index, capability) in matching {
            let place = format!("security_contexts[{}].capabilities[{index}]", caller.context);
            let checked = self
                .rates
                .peek(&key, Budget::of(capability))
                .map_err(|refused| refused.violation(tool, &place))
                .and_then(|()| targets.within(capability, tool, &place, bounds));
            match checked {
                Ok(()) => {
                    let grant = Grant {
                        rule: place,
                        paths: capability.path_allowlist.clone(),
                        domains: capability.domain_allowlist.clone(),
                        denied_paths: context.denied_paths(tool),
                        guarded_paths: context.guarded_paths(tool),
                        deny_list: context.place_of_closed_paths(),
                        no_links: false,
                        sandbox: capability.sandbox.clone(),
                        denied_domains: context.denied_domains(tool),
                        servers: servers_of(matching),
                        max_response_size: capability.max_response_size.map(|size| size.0),
                    };
                    return Ok(Granted {
                        grant,
                        approval: capability.approval,
                        budget: Budget::of(capability),
                    });
                }
                Err(violation) => first = first.or(Some(violation)),
            }
        }
        Err(first.unwrap_or_else(|| {
            Violation::new(ViolationKind::ToolNotAllowed, format!("no capability covers `{}`", tool.name))
        }))
    }
}

/// The checks that need only the tool's name. Returns the capabilities that name it, with their places.
fn named<'c>(
    context: &'c CompiledContext,
    caller: &Caller,
    tool: &ToolSpec,
) -> Result<Vec<(usize, &'c Capability)>, Violation> {
    let not_allowed = |message: String| Violation::new(ViolationKind::ToolNotAllowed, message);
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
            "an operator can add `{{tool_pattern: {}{}}}` to the context, or give a credential of another context",
            tool.name,
            commands::example_for(tool)
        )));
    }
    let denied = context
        .source
        .deny_list
        .iter()
        .find(|entry| entry.target.is_none() && tool.names().any(|name| entry.tool.matches(name)));
    match denied {
        Some(entry) => Err(explicitly_denied(caller, tool, entry)),
        None => Ok(matching),
    }
}

#[cfg(test)]
mod closed_tests;
#[cfg(test)]
mod egress_tests;
#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
