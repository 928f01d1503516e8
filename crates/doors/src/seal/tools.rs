//! `GET /v1/seal/tools`, and `tools/list` inside an envelope: what the caller may call, and nothing else.

use std::sync::Arc;

use aegis_core::{
    Caller, Door, Tier, ToolSpec, Violation, ViolationKind, mode::SWITCH_MODE, tool::Directory,
};
use aegis_plane::Plane;
use axum::{
    Json,
    extract::{Query, State},
    http::HeaderMap,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ATTEST, INVOKE};
use crate::{
    Doors,
    guard::{self, Refused},
};

/// How published clients name the context they want to see.
const CONTEXT_HEADER: &str = "x-zaru-security-context";

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    security_context: Option<String>,
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let caller = guard::caller(&doors, &headers, Door::Rest, None).await?;
    let named = headers
        .get(CONTEXT_HEADER)
        .and_then(|context| context.to_str().ok())
        .map(str::trim)
        .filter(|context| !context.is_empty())
        .or(wanted.security_context.as_deref());
    let caller = match named {
        Some(context) => seen_from(&doors, caller, context)?,
        None => caller,
    };
    let tools: Vec<Value> = listed(&doors.plane, &caller)
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.input_schema,
            })
        })
        .collect();
    Ok(Json(json!({
        "protocol": "seal/v1",
        "attestation_endpoint": ATTEST,
        "invoke_endpoint": INVOKE,
        "security_context": caller.context,
        "tools": tools,
    })))
}

/// An operator may look at any context as its user would. Others may name their own, which is all they see anyway.
fn seen_from(doors: &Doors, mut caller: Caller, context: &str) -> Result<Caller, Refused> {
    if caller.context.as_str() == context {
        return Ok(caller);
    }
    if !guard::is_operator(&caller) {
        let refused =
            Violation::new(ViolationKind::OperatorOnly, "only an operator can look at another context");
        return Err(refused.hint("leave the name of the context out to see your own").into());
    }
    doors.plane.policy().contexts().named(context)?;
    caller.context = context.into();
    caller.tier = if context.starts_with("aegis-system-") { Tier::System } else { Tier::User };
    Ok(caller)
}

/// As MCP has it.
pub(super) fn for_model(plane: &Plane, caller: &Caller) -> Value {
    let tools: Vec<Value> = listed(plane, caller)
        .map(|tool| {
            json!({
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.structured_schema,
                "annotations": tool.annotations(),
            })
        })
        .collect();
    json!({"tools": tools})
}

/// Sorted by name. There are no modes here, so there is nothing to switch.
fn listed(plane: &Plane, caller: &Caller) -> impl Iterator<Item = Arc<ToolSpec>> {
    let mut tools = plane.visible(caller);
    tools.sort_by(|one, other| one.name.cmp(&other.name));
    tools.into_iter().filter(|tool| tool.name != SWITCH_MODE)
}
