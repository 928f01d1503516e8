//! What is said of requests: to those who ask, and to those who decide.

use aegis_core::{
    Approval, ApprovalState, Caller, Violation, ViolationKind, config::ApprovalsConfig, id::ApprovalId,
    quantity::Size,
};
use aegis_stores::registry::{Limit, RegistryError};

use super::LONGEST_REASON;

pub(super) fn checked_reason(reason: &str) -> Result<String, Violation> {
    let reason = reason.trim();
    if reason.is_empty() || reason.chars().count() > LONGEST_REASON {
        return Err(Violation::new(
            ViolationKind::MalformedRequest,
            format!("a reason for saying no is needed, of at most {LONGEST_REASON} characters"),
        )
        .hint("the model that asked receives it: say what it should do instead"));
    }
    Ok(reason.to_owned())
}

pub(super) fn rejected(approver: &Caller, reason: &str) -> Violation {
    Violation::new(ViolationKind::ApprovalRejected, format!("{} said no: {reason}", approver.user))
        .hint("do not repeat the call; do what the reason says, or ask the person")
}

pub(super) fn expired(approval: &Approval) -> Violation {
    Violation::new(
        ViolationKind::ApprovalExpired,
        format!("the time to decide about `{}` ran out at {}", approval.id, approval.expires),
    )
    .rule("spec.approvals.expiry")
    .hint("nothing ran; make the call again to ask again")
}

pub(super) fn void(why: &str) -> Violation {
    Violation::new(ViolationKind::ApprovalVoid, format!("the call did not run: {why}"))
        .hint("make the call again to ask again")
}

/// What is said of a request that is not there, and of one that the caller may not know of.
pub fn not_found(id: &ApprovalId) -> Violation {
    let shown: String = id.as_str().chars().take(80).collect();
    Violation::new(ViolationKind::ApprovalNotFound, format!("there is no request for approval `{shown}`"))
        .hint("`aegis approvals list` shows those there are; ended ones are kept for spec.approvals.keep")
}

pub(super) fn decided_otherwise(approval: &Approval) -> Violation {
    let by = approval.decided_by.as_ref().map_or_else(String::new, |by| format!(" by {}", by.user));
    let happened = match approval.state {
        ApprovalState::Executed => format!("was approved already{by}, and its call has run"),
        ApprovalState::Failed => format!("was approved already{by}, and its call has failed"),
        ApprovalState::Expired => "has expired already".to_owned(),
        ApprovalState::Cancelled => "was taken back, or what would run has changed".to_owned(),
        state => format!("is {state} already{by}"),
    };
    Violation::new(ViolationKind::ApprovalDecided, format!("`{}` {happened}", approval.id))
        .hint("a decision can't be changed; the requester can ask again")
}

pub(super) fn too_large(tool: &str, bytes: u64, most: Size) -> Violation {
    Violation::new(
        ViolationKind::RequestTooLarge,
        format!(
            "the arguments of `{tool}` have {bytes} bytes; a call that waits for a person may have {most}"
        ),
    )
    .rule("spec.approvals.max_arguments")
    .hint("nobody was asked, and nothing runs; make several smaller calls, which a person can read")
}

pub(super) fn full(limit: Limit, config: &ApprovalsConfig) -> Violation {
    let (whose, rule, most) = match limit {
        Limit::Caller => {
            ("of this caller", "max_pending_per_caller", config.max_pending_per_caller.to_string())
        }
        Limit::CallerBytes => (
            "of this caller",
            "max_pending_bytes_per_caller",
            format!("{} bytes", config.max_pending_bytes_per_caller),
        ),
        Limit::Tenant => ("in this tenant", "max_pending", config.max_pending.to_string()),
        Limit::TenantBytes => {
            ("in this tenant", "max_pending_bytes", format!("{} bytes", config.max_pending_bytes))
        }
    };
    Violation::new(
        ViolationKind::Overloaded,
        format!("the requests {whose} that wait for approval have reached the limit of {most}"),
    )
    .rule(format!("spec.approvals.{rule}"))
    .hint("nobody was asked; wait until people have decided some of them, or take some back")
    .retry_after(60)
}

pub(super) fn unusable(error: &RegistryError) -> Violation {
    match error {
        RegistryError::Invalid(message) => Violation::new(ViolationKind::MalformedRequest, message.clone()),
        error => Violation::new(ViolationKind::InternalError, error.to_string())
            .hint("`aegis doctor` looks at the disk"),
    }
}
