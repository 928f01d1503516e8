//! Who may decide. Never who asked.

use aegis_core::{
    Approval, Caller, Tier, Violation, ViolationKind,
    config::{
        ToolPattern,
        security_context::{APPROVER_CAPABILITY, OPERATOR_CONTEXT},
    },
    id::{TenantId, UserId},
};

use super::Approvals;

impl Approvals {
    /// Whether the caller may decide this request now.
    pub fn may_decide(&self, approval: &Approval, caller: &Caller) -> Result<(), Violation> {
        if !self.is_approver_of(&approval.caller.tenant, caller) {
            return Err(no_approver(caller, &approval.caller.tenant));
        }
        // By person, not by credential: an operator's token also carries what it asks in the role of an agent.
        let own = &approval.caller;
        not_for_oneself(caller, &own.tenant, &own.user).map_err(|violation| match approval.way_out() {
            Some(way) => violation.hint(way),
            None => violation.hint(format!(
                "let another person decide, with a credential of another user; who asked can take it back: `aegis \
                 approvals cancel {}`",
                approval.id
            )),
        })
    }

    /// Whether the caller may decide what others of this tenant ask: operators for every tenant, holders of
    /// [`APPROVER_CAPABILITY`] for their own.
    pub fn is_approver_of(&self, tenant: &TenantId, caller: &Caller) -> bool {
        if caller.tier == Tier::Operator && caller.context.as_str() == OPERATOR_CONTEXT {
            return true;
        }
        caller.tenant == *tenant && self.holds_grant(caller)
    }

    fn holds_grant(&self, caller: &Caller) -> bool {
        let contexts = self.policy.contexts();
        // As in force, also for a session that keeps an older version: a right taken away is gone at once.
        let Some(context) = contexts.get(caller.context.as_str()) else { return false };
        let granted = context
            .source
            .capabilities
            .iter()
            .any(|capability| capability.tool_pattern == ToolPattern::Exact(APPROVER_CAPABILITY.into()));
        let denied = context
            .source
            .deny_list
            .iter()
            .any(|entry| entry.target.is_none() && entry.tool.matches(APPROVER_CAPABILITY));
        granted && !denied
    }
}

pub(super) fn not_for_oneself(caller: &Caller, tenant: &TenantId, user: &UserId) -> Result<(), Violation> {
    if &caller.tenant == tenant && &caller.user == user {
        return Err(own_request(caller));
    }
    Ok(())
}

fn own_request(caller: &Caller) -> Violation {
    Violation::new(
        ViolationKind::NotAnApprover,
        format!("`{}` asked for this and can't decide it as well", caller.user),
    )
    .rule("whoever asks does not approve")
    .hint("let another person decide, with a credential of another user")
}

pub(super) fn no_approver(caller: &Caller, tenant: &TenantId) -> Violation {
    Violation::new(
        ViolationKind::NotAnApprover,
        format!("`{}` may not decide requests of the tenant `{tenant}`", caller.user),
    )
    .rule(format!("security_contexts[{}].capabilities", caller.context))
    .hint(format!(
        "use the operator's token, or let an operator add `{{tool_pattern: {APPROVER_CAPABILITY}}}` to the context"
    ))
}
