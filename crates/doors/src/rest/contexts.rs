//! `/v1/contexts`: operators look at security contexts and change them while the node runs.

use std::sync::Arc;

use aegis_core::{
    Violation, ViolationKind,
    config::{SecurityContext, security_context},
    id::ContextVersion,
};
use aegis_plane::contexts::{Changed, ContextError, Over};
use aegis_stores::registry::RegistryError;
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::HeaderMap,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::described;
use crate::{
    Doors,
    guard::{self, Refused},
};

const MOST_VERSIONS: usize = 1000;

impl From<ContextError> for Refused {
    fn from(error: ContextError) -> Self {
        let kind = match &error {
            ContextError::Unknown { .. } => ViolationKind::UnknownName,
            ContextError::InFile { .. }
            | ContextError::Moved { .. }
            | ContextError::NotApplied(_)
            | ContextError::Own(_) => ViolationKind::Conflict,
            ContextError::OtherName { .. } | ContextError::Registry(RegistryError::Invalid(_)) => {
                ViolationKind::MalformedRequest
            }
            ContextError::Stored { .. } | ContextError::Registry(_) | ContextError::Unrecordable(_) => {
                ViolationKind::InternalError
            }
        };
        let violation = Violation::new(kind, error.to_string());
        let violation = match &error {
            ContextError::InFile { place, .. } => violation
                .rule(place.as_str())
                .hint("change it there; it takes effect as soon as the file is saved"),
            ContextError::Moved { .. } => {
                violation.hint("read it again, and make your change to what it is now")
            }
            ContextError::Unknown { .. } => violation.hint("`aegis context list` shows those there are"),
            _ => violation,
        };
        violation.into()
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    version: Option<String>,
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct How {
    /// Sessions that hold on to an older version must attest again.
    #[serde(default)]
    drop: bool,
    /// The version that it replaces, empty for none: whoever changes what they have read does not undo what others did
    /// meanwhile.
    over: Option<String>,
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    Ok(Json(json!({"contexts": doors.contexts.list().await})))
}

pub(super) async fn show(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let Some(version) = which.version else {
        return Ok(Json(json!(doors.contexts.show(&name).await?)));
    };
    let row = doors.contexts.version(&name, &version).await?;
    let context: Value = serde_json::from_str(&row.text).unwrap_or_default();
    Ok(Json(json!({
        "name": row.name,
        "version": row.version,
        "first_seen": row.first_seen,
        "retired": row.retired,
        "context": context,
    })))
}

pub(super) async fn versions(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let rows = doors.contexts.versions(&name, which.limit.unwrap_or(100).min(MOST_VERSIONS)).await?;
    let in_force = doors.contexts.show(&name).await.ok().map(|found| found.version);
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "version": row.version,
                "first_seen": row.first_seen,
                "retired": row.retired,
                "in_force": in_force.as_ref() == Some(&row.version),
            })
        })
        .collect();
    Ok(Json(json!({"name": name, "versions": rows})))
}

pub(super) async fn apply(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    Query(how): Query<How>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let context = read(&body)?;
    if context.name.as_str() != name {
        return Err(ContextError::OtherName { found: context.name, wanted: name }.into());
    }
    let over = match how.over.as_deref() {
        None => Over::Anything,
        Some("") => Over::Nothing,
        Some(version) => Over::Version(ContextVersion::new(version)),
    };
    let doubts = doors.doubts(std::slice::from_ref(&context));
    let changed = doors.contexts.apply(context, &over, &operator).await?;
    if how.drop {
        doors.contexts.drop_older(&name, &operator).await?;
    }
    let mut told = told(&changed, how.drop);
    told["warnings"] =
        doubts.iter().map(|doubt| json!({"pointer": doubt.pointer, "message": doubt.message})).collect();
    Ok(Json(told))
}

pub(super) async fn delete(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let changed = doors.contexts.withdraw(&name, &operator).await?;
    Ok(Json(told(&changed, false)))
}

pub(super) async fn drop_sessions(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let kept = doors.contexts.drop_older(&name, &operator).await?;
    Ok(Json(json!({"name": name, "version": kept.version, "dropped": true})))
}

fn told(changed: &Changed, dropped: bool) -> Value {
    let mut told = json!(changed);
    told["changed"] = changed.is_change().into();
    told["dropped"] = dropped.into();
    told
}

/// The body as a context, checked as the configuration file is.
fn read(body: &[u8]) -> Result<SecurityContext, Violation> {
    described::one(body, "context", "spec.security_contexts", security_context::parse)
}
