//! `/v1/seal/enrolments`: operators say which workloads may attest, and for what.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Caller, Secret, Tier, Timestamp, Violation, ViolationKind, config::security_context::is_open_to,
    id::ContextName,
};
use aegis_gates::identity::seal::{Enrolment, NewEnrolment};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    note,
    sessions::{Page, fault},
};
use crate::{
    Doors,
    guard::{self, Refused},
    wire,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Sessions may be opened in any of these, one each.
    contexts: Vec<String>,
    #[serde(default = "user_tier")]
    tier: Tier,
    tenant: Option<String>,
    user: Option<String>,
    ttl_seconds: Option<u64>,
    uses: Option<u32>,
    /// The only key that may attest.
    key: Option<String>,
    note: Option<String>,
}

fn user_tier() -> Tier {
    Tier::User
}

pub(super) async fn create(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let wanted: Wanted = wire::read(&body)?;
    let (enrolment, workload) = make(&doors, &operator, wanted).await?;
    let mut answer = json!(enrolment);
    answer["workload_id"] = workload.expose().into();
    Ok((StatusCode::CREATED, Json(answer)))
}

async fn make(doors: &Doors, operator: &Caller, wanted: Wanted) -> Result<(Enrolment, Secret), Refused> {
    let tenant = wanted.tenant.as_deref().map_or_else(|| operator.tenant.clone(), Into::into);
    let key = wanted.key.as_deref().map(read_key).transpose()?;
    let contexts = doors.plane.policy().contexts();
    for context in &wanted.contexts {
        contexts.named(context)?;
        is_open_to(context, tenant.as_str(), wanted.tier)
            .map_err(|closed| Violation::new(ViolationKind::MalformedRequest, closed))?;
    }
    let new = NewEnrolment {
        contexts: wanted.contexts.iter().map(ContextName::new).collect(),
        tier: wanted.tier,
        tenant,
        user: wanted.user.as_deref().unwrap_or(aegis_core::caller::AGENT_USER).into(),
        expires: wanted.ttl_seconds.map(|seconds| Timestamp::now().plus(Duration::from_secs(seconds))),
        uses: wanted.uses,
        key,
        note: wanted.note,
    };
    let (enrolment, workload) = doors.identity.seal().enroll(new).await.map_err(|error| fault(&error))?;
    if let Err(violation) = written_down(doors, operator, "seal-enrolled", &enrolment).await {
        // An enrolment that the record does not know must not be usable.
        let _ = doors.identity.seal().revoke_enrolment(enrolment.id.as_str()).await;
        return Err(violation.into());
    }
    Ok((enrolment, workload))
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let found = doors.identity.seal().enrolments(page.limit()).await.map_err(|error| fault(&error))?;
    Ok(Json(json!({"enrolments": found})))
}

/// Ends the sessions that came of it, too.
pub(super) async fn revoke(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Enrolment>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let enrolment = doors.identity.seal().revoke_enrolment(&id).await.map_err(|error| fault(&error))?;
    written_down(&doors, &operator, "seal-enrolment-revoked", &enrolment).await?;
    Ok(Json(enrolment))
}

async fn written_down(
    doors: &Doors,
    operator: &Caller,
    action: &str,
    enrolment: &Enrolment,
) -> Result<(), Violation> {
    note(doors, Some(operator), action, Map::from_iter([("enrolment".to_owned(), json!(enrolment))])).await
}

fn read_key(text: &str) -> Result<[u8; 32], Violation> {
    aegis_gates::identity::seal::read_key(text).ok_or_else(|| {
        Violation::new(ViolationKind::MalformedRequest, "`key` is no Ed25519 public key")
            .hint("send the 32 bytes in base64, or PEM")
    })
}
