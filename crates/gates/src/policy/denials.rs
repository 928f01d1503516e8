//! What a caller hears of the deny list.

use aegis_core::{Caller, ToolSpec, Violation, ViolationKind, config::DenyEntry};

pub(super) fn explicitly_denied(caller: &Caller, tool: &ToolSpec, entry: &DenyEntry) -> Violation {
    let context = &caller.context;
    let (message, hint) = match &entry.target {
        None => (
            format!("`{}` is on the deny list of the security context `{context}`", tool.name),
            "the deny list wins over every capability; only an operator can change it",
        ),
        // Otherwise an agent takes the tool for what is closed.
        Some(target) => (
            format!(
                "the security context `{context}` closes `{target}` to `{}`, and this call would reach it",
                tool.name
            ),
            "keep to other targets; a search must begin beside what is closed, not above it",
        ),
    };
    Violation::new(ViolationKind::ToolExplicitlyDenied, message)
        .rule(format!("security_contexts[{context}].deny_list: {entry}"))
        .hint(hint)
}

pub(super) fn moves_what_is_denied(caller: &Caller, tool: &ToolSpec, entry: &DenyEntry) -> Violation {
    let path = entry.target.as_ref().map(ToString::to_string).unwrap_or_default();
    Violation::new(
        ViolationKind::ToolExplicitlyDenied,
        format!(
            "`{}` would move or remove what is at `{path}`, which the security context `{}` closes to `{}`",
            tool.name, caller.context, entry.tool
        ),
    )
    .rule(format!("security_contexts[{}].deny_list: {entry}", caller.context))
    .hint("leave that path, and the directories above it, where they are")
}
