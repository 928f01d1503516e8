//! SecurityContexts ready for use: those in force by name, and earlier versions that live sessions hold on to.

use std::{collections::HashMap, sync::Arc};

use aegis_core::{
    Caller, ToolSpec, Violation, ViolationKind,
    call::hex,
    config::{DenyEntry, SecurityContext, security_context::DenyTarget},
    domain::DomainPattern,
    id::{ContextName, ContextVersion},
    nearest::suggestion,
    path::PathPrefix,
};
use aegis_stores::registry::MOST_CONTEXT_VERSIONS;
use sha2::{Digest, Sha256};

#[derive(Debug, Default)]
pub struct ContextSet {
    by_name: HashMap<String, Arc<CompiledContext>>,
    /// No longer in force, the oldest first.
    earlier: Vec<Arc<CompiledContext>>,
    by_version: HashMap<ContextVersion, Arc<CompiledContext>>,
}

#[derive(Debug)]
pub struct CompiledContext {
    pub source: SecurityContext,
    /// `name@` and the start of a digest of the context's text: the same rules have the same version anywhere.
    pub version: ContextVersion,
}

impl CompiledContext {
    pub fn new(source: SecurityContext) -> Self {
        let text = serde_json::to_vec(&source).unwrap_or_default();
        let version = format!("{}@{}", source.name, &hex(&Sha256::digest(&text))[..12]);
        Self { version: ContextVersion::new(version), source }
    }

    /// The domains that the deny list closes to a tool, for the route to heed at every hop.
    pub(super) fn denied_domains(&self, tool: &ToolSpec) -> Vec<DomainPattern> {
        self.denied(tool, |target| match target {
            DenyTarget::Name(domain) => Some(domain.clone()),
            DenyTarget::Path(_) => None,
        })
    }

    /// The paths that the deny list closes to a tool, for the route to heed behind links and in sandboxes.
    pub(super) fn denied_paths(&self, tool: &ToolSpec) -> Vec<PathPrefix> {
        self.denied(tool, |target| match target {
            DenyTarget::Path(path) => Some(path.clone()),
            DenyTarget::Name(_) => None,
        })
    }

    /// Where the list stands that closes paths; empty when it closes none.
    pub(super) fn place_of_closed_paths(&self) -> String {
        let closes = |entry: &DenyEntry| matches!(entry.target, Some(DenyTarget::Path(_)));
        match self.source.deny_list.iter().any(closes) {
            true => format!("security_contexts[{}].deny_list", self.source.name),
            false => String::new(),
        }
    }

    /// The paths that the deny list closes to any tool, for a tool that could bend the way to them.
    pub(super) fn guarded_paths(&self, tool: &ToolSpec) -> Vec<PathPrefix> {
        let closed = self.source.deny_list.iter().filter_map(|entry| match &entry.target {
            Some(DenyTarget::Path(path)) => Some(path.clone()),
            _ => None,
        });
        if tool.mutability.mutates() { closed.collect() } else { Vec::new() }
    }

    fn denied<T>(&self, tool: &ToolSpec, kind: impl Fn(&DenyTarget) -> Option<T>) -> Vec<T> {
        let of_tool = |entry: &&DenyEntry| tool.names().any(|name| entry.tool.matches(name));
        let entries = self.source.deny_list.iter().filter(of_tool);
        entries.filter_map(|entry| entry.target.as_ref().and_then(&kind)).collect()
    }
}

impl ContextSet {
    pub fn compile(contexts: &[SecurityContext]) -> Self {
        Self::over(contexts, Vec::new())
    }

    /// These contexts in force, and beside them earlier ones (the oldest first) for the sessions that have them.
    pub(super) fn over(contexts: &[SecurityContext], earlier: Vec<Arc<CompiledContext>>) -> Self {
        let by_name: HashMap<String, Arc<CompiledContext>> = contexts
            .iter()
            .map(|context| (context.name.to_string(), Arc::new(CompiledContext::new(context.clone()))))
            .collect();
        let in_force = |version: &ContextVersion| by_name.values().any(|context| context.version == *version);
        let mut earlier: Vec<_> = earlier.into_iter().filter(|context| !in_force(&context.version)).collect();
        earlier.drain(..earlier.len().saturating_sub(MOST_CONTEXT_VERSIONS));
        let all = by_name.values().chain(&earlier);
        let by_version = all.map(|context| (context.version.clone(), Arc::clone(context))).collect();
        Self { by_name, earlier, by_version }
    }

    /// What is in force, as the registry keeps it.
    pub(super) fn texts(&self) -> Vec<(ContextName, ContextVersion, String)> {
        let text = |context: &CompiledContext| serde_json::to_string(&context.source).unwrap_or_default();
        self.iter()
            .map(|context| (context.source.name.clone(), context.version.clone(), text(context)))
            .collect()
    }

    /// The next set: what is in force now becomes an earlier version.
    pub(super) fn succeeded_by(&self, contexts: &[SecurityContext]) -> Self {
        let mut earlier = self.earlier.clone();
        earlier.extend(self.by_name.values().cloned());
        Self::over(contexts, earlier)
    }

    /// The same set without the earlier versions of one context.
    pub(super) fn without_earlier(&self, name: &ContextName) -> Self {
        let contexts: Vec<SecurityContext> =
            self.by_name.values().map(|context| context.source.clone()).collect();
        let earlier = self.earlier.iter().filter(|context| context.source.name != *name).cloned().collect();
        Self::over(&contexts, earlier)
    }

    /// The context that the caller's calls go by: the one its session was opened under, or else the one in force.
    pub(super) fn of(&self, caller: &Caller) -> Result<&CompiledContext, Violation> {
        let refused = |message: String| Violation::new(ViolationKind::ToolNotAllowed, message);
        if let Some(version) = &caller.pinned {
            return self
                .by_version
                .get(version)
                .filter(|context| context.source.name == caller.context)
                .map(AsRef::as_ref)
                .ok_or_else(|| {
                    refused(format!("the session was opened under `{version}`, which is no longer kept"))
                        .rule(format!(
                            "security_contexts[{}], as it was when the session was opened",
                            caller.context
                        ))
                        .hint("attest again: the new session goes by the context that is in force now")
                });
        }
        self.get(caller.context.as_str()).ok_or_else(|| {
            refused(format!("the security context `{}` does not exist", caller.context))
                .rule("spec.security_contexts")
                .hint(format!(
                    "define it in the node configuration or use another{}",
                    suggestion(caller.context.as_str(), self.names())
                ))
        })
    }

    pub fn get(&self, name: &str) -> Option<&CompiledContext> {
        self.by_name.get(name).map(AsRef::as_ref)
    }

    /// As [`ContextSet::get`], for a name that somebody wrote: when there is none, which one was meant.
    pub fn named(&self, name: &str) -> Result<&CompiledContext, Violation> {
        self.get(name).ok_or_else(|| {
            let shown: String = name.chars().take(80).collect();
            let close = suggestion(&shown, self.names());
            Violation::new(
                ViolationKind::UnknownName,
                format!("there is no security context `{shown}`{close}"),
            )
            .rule("spec.security_contexts")
            .hint("`aegis context list` shows those there are")
        })
    }

    /// A version that is in force, or that sessions may still hold on to.
    pub fn version(&self, version: &ContextVersion) -> Option<&CompiledContext> {
        self.by_version.get(version).map(AsRef::as_ref)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = &CompiledContext> {
        self.by_name.values().map(AsRef::as_ref)
    }
}
