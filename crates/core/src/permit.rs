//! The right to act, once. Routes run nothing without one.

use crate::{
    caller::Caller,
    config::SandboxChoice,
    domain::DomainPattern,
    id::CallId,
    path::PathPrefix,
    trace::{Place, TraceContext},
    verdict::{Gate, GateVerdict},
};

/// What the policy gate granted: the limits that stay in force while the route works, e.g. at each redirect.
#[derive(Debug, Clone, Default)]
pub struct Grant {
    /// The rule that allowed the call, in the operator's words.
    pub rule: String,
    /// `None`: any path of the caller's volumes.
    pub paths: Option<Vec<PathPrefix>>,
    /// `None`: any domain that the node's egress rules let out.
    pub domains: Option<Vec<DomainPattern>>,
    /// Paths that the deny list closes to this tool. The gate has looked at what the call names; where links lead, and
    /// what a program does, only the route sees.
    pub denied_paths: Vec<PathPrefix>,
    /// Of a call that changes something, the paths that the deny list closes to any tool at all. On the way to them only
    /// directories are made: a link or a file there would decide what others find behind the name.
    pub guarded_paths: Vec<PathPrefix>,
    /// Where the deny list stands that both come from; empty when it closes no path.
    pub deny_list: String,
    /// No symbolic link is followed: what let the call through speaks of the path as it is written.
    pub no_links: bool,
    /// Domains that the deny list names for this tool; they win over `domains`.
    pub denied_domains: Vec<DomainPattern>,
    /// What confines the programs that it runs; `None`: what the node is set to.
    pub sandbox: Option<SandboxChoice>,
    /// `None`: any MCP server behind the node.
    pub servers: Option<Vec<String>>,
    pub max_response_size: Option<u64>,
}

/// Proof that every required gate passed for this caller, this tool and this call.
///
/// There is no `Clone`: a permit is used once. Its fields are private and [`Permit::grant`] is the only
/// constructor; clippy's `disallowed-methods` keeps every crate but the plane from calling it.
#[derive(Debug)]
pub struct Permit {
    call: CallId,
    tool: String,
    caller: Caller,
    grant: Grant,
    trace: Option<TraceContext>,
}

/// Some required gate did not pass, or was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the {0:?} gate did not pass")]
pub struct NotPermitted(pub Gate);

impl Permit {
    pub fn grant(
        call: CallId,
        tool: &str,
        caller: Caller,
        grant: Grant,
        verdicts: &[GateVerdict],
    ) -> Result<Self, NotPermitted> {
        for gate in Gate::REQUIRED {
            let mut said = verdicts.iter().filter(|verdict| verdict.gate == gate).peekable();
            if said.peek().is_none() || !said.all(GateVerdict::passed) {
                return Err(NotPermitted(gate));
            }
        }
        Ok(Self { call, tool: tool.to_owned(), caller, grant, trace: None })
    }

    /// For a call that its caller traces.
    #[must_use]
    pub fn traced(mut self, trace: Option<TraceContext>) -> Self {
        self.trace = trace;
        self
    }

    /// Where the call stands in a trace, for whom it asks in turn.
    pub fn place(&self) -> Place {
        Place::of(self.call, self.trace.as_ref())
    }

    /// What the caller's `tracestate` said.
    pub fn trace_state(&self) -> Option<&str> {
        self.trace.as_ref().and_then(TraceContext::state)
    }

    pub fn call(&self) -> CallId {
        self.call
    }

    /// The one tool it is for.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    pub fn limits(&self) -> &Grant {
        &self.grant
    }
}
