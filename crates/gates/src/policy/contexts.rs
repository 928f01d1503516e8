//! SecurityContexts ready for use: by name, each with the version of its text.

use std::collections::HashMap;

use aegis_core::{
    ToolSpec,
    call::hex,
    config::{DenyEntry, SecurityContext, security_context::DenyTarget},
    domain::DomainPattern,
};
use sha2::{Digest, Sha256};

#[derive(Debug, Default)]
pub struct ContextSet {
    by_name: HashMap<String, CompiledContext>,
}

#[derive(Debug)]
pub struct CompiledContext {
    pub source: SecurityContext,
    /// `name@` and the start of a digest of the context's text: the same rules have the same version anywhere.
    pub version: String,
}

impl CompiledContext {
    /// The domains that the deny list closes to a tool, for the route to heed at every hop.
    pub(super) fn denied_domains(&self, tool: &ToolSpec) -> Vec<DomainPattern> {
        let of_tool = |entry: &&DenyEntry| tool.names().any(|name| entry.tool.matches(name));
        let entries = self.source.deny_list.iter().filter(of_tool);
        entries
            .filter_map(|entry| match &entry.target {
                Some(DenyTarget::Name(domain)) => Some(domain.clone()),
                _ => None,
            })
            .collect()
    }
}

impl ContextSet {
    pub fn compile(contexts: &[SecurityContext]) -> Self {
        let compiled = |context: &SecurityContext| {
            let text = serde_json::to_vec(context).unwrap_or_default();
            let version = format!("{}@{}", context.name, &hex(&Sha256::digest(&text))[..12]);
            (context.name.to_string(), CompiledContext { source: context.clone(), version })
        };
        Self { by_name: contexts.iter().map(compiled).collect() }
    }

    pub fn get(&self, name: &str) -> Option<&CompiledContext> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = &CompiledContext> {
        self.by_name.values()
    }
}
