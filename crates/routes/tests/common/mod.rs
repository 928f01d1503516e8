//! What tests of routes share.

use aegis_core::{
    Approval, Caller, Door, Gate, GateVerdict, Grant, Permit, ToolSpec, Violation,
    approval::{Desk, Pending, Question},
    caller::Tier,
    id::{CallId, ContextName, CredentialId, TenantId, UserId},
    tool::Directory,
};

/// A permit as the plane would give it.
#[allow(clippy::disallowed_methods, reason = "these tests stand where the plane stands")]
pub(crate) fn permit(tenant: &str, tool: &str, grant: Grant) -> Permit {
    let caller = Caller {
        tenant: TenantId::new(tenant),
        user: UserId::new("someone"),
        tier: Tier::User,
        context: ContextName::new("workspace"),
        credential: CredentialId::new("credential"),
        door: Door::Cli,
        session: None,
        pinned: None,
    };
    let verdicts = Gate::REQUIRED.map(GateVerdict::pass);
    Permit::grant(CallId::fresh(), tool, caller, grant, &verdicts).unwrap()
}

/// Knows no tools.
pub(crate) struct EmptyDirectory;

impl Directory for EmptyDirectory {
    fn visible(&self, _: &Caller) -> Vec<std::sync::Arc<ToolSpec>> {
        Vec::new()
    }
}

impl Desk for EmptyDirectory {
    fn ask<'a>(&'a self, _: &'a Caller, _: Question) -> Pending<'a, Result<Option<Approval>, Violation>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
