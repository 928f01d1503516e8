//! `/v1/seal/sessions`: operators look at sessions, take in those of other issuers, and end them. `/v1/seal/rotate-keys`: a new key for tokens.

use std::sync::Arc;

use aegis_core::{
    Event, Secret, Tier, Violation, ViolationKind,
    caller::AGENT_USER,
    event::EventName,
    id::{ContextName, SessionId, TenantId},
};
use aegis_gates::identity::seal::{Provision, SealError, Session};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::note;
use crate::{
    Doors,
    guard::{self, Refused},
    wire,
};

const MOST_LISTED: usize = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct Page {
    limit: Option<usize>,
    tenant: Option<String>,
}

impl Page {
    pub(super) fn limit(&self) -> usize {
        self.limit.unwrap_or(100).min(MOST_LISTED)
    }
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let tenant = page.tenant.as_deref().map(TenantId::new);
    let sessions =
        doors.identity.seal().sessions(tenant.as_ref(), page.limit()).await.map_err(|error| fault(&error))?;
    Ok(Json(json!({"sessions": sessions})))
}

/// A session whose token somebody else has issued, under one of `spec.seal.trusted_keys`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Foreign {
    security_token: String,
    #[serde(alias = "public_key_b64")]
    public_key: String,
    user: Option<String>,
    #[serde(default = "user_tier")]
    tier: Tier,
}

fn user_tier() -> Tier {
    Tier::User
}

pub(super) async fn provision(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let wanted: Foreign = wire::read(&body)?;
    let new = Provision {
        token: Secret::new(wanted.security_token),
        public_key: wanted.public_key,
        user: wanted.user.as_deref().unwrap_or(AGENT_USER).into(),
        tier: wanted.tier,
    };
    let contexts = doors.plane.policy().contexts();
    let version = |name: &ContextName| contexts.get(name.as_str()).map(|context| context.version.clone());
    let session = doors
        .identity
        .seal()
        .provision(&new, &operator, version)
        .await
        .map_err(|refusal| Refused::from(*refusal.violation))?;
    let detail = Map::from_iter([("session".to_owned(), json!(session))]);
    if let Err(violation) = note(&doors, Some(&operator), "seal-session-provisioned", detail).await {
        // A session that the record does not know must not be usable.
        let _ = doors.identity.seal().revoke_session(&session.id, "it could not be recorded").await;
        return Err(violation.into());
    }
    let mut answer = json!(session);
    answer["session_status"] = "Active".into();
    Ok((StatusCode::CREATED, Json(answer)))
}

pub(super) async fn show(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Session>, Refused> {
    guard::operator(&doors, &headers).await?;
    let session = doors.identity.seal().session(&SessionId::new(&id)).await.map_err(|error| fault(&error))?;
    Ok(Json(session))
}

#[derive(Debug, Deserialize)]
pub(super) struct Why {
    reason: Option<String>,
}

pub(super) async fn end(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    Query(why): Query<Why>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let reason: String = why.reason.as_deref().unwrap_or("ended by an operator").chars().take(200).collect();
    let session = doors
        .identity
        .seal()
        .revoke_session(&SessionId::new(&id), &reason)
        .await
        .map_err(|error| fault(&error))?;
    let detail = Map::from_iter([
        ("session".to_owned(), json!(session)),
        ("reason".to_owned(), reason.as_str().into()),
    ]);
    note(&doors, Some(&operator), "seal-session-revoked", detail).await?;
    let event = Event::new(EventName::SessionRevoked).with("session", id).with("reason", reason);
    doors.plane.bus().announce_to(&session.tenant, event);
    let mut answer = json!(session);
    answer["status"] = "success".into();
    answer["session_status"] = "Revoked".into();
    Ok(Json(answer))
}

/// New tokens are signed with a new key; those that are out stay good until they expire.
pub(super) async fn rotate_keys(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let key = doors.identity.seal().rotate_keys().await.map_err(|error| fault(&error))?;
    let detail = Map::from_iter([("key".to_owned(), key.to_string().into())]);
    note(&doors, Some(&operator), "seal-keys-rotated", detail).await?;
    Ok(Json(json!({"key": key.to_string()})))
}

pub(super) fn fault(error: &SealError) -> Refused {
    match error {
        SealError::NoSuchSession(_) => Refused::unknown(error.to_string(), "aegis seal sessions"),
        SealError::NoSuchEnrolment(_) => Refused::unknown(error.to_string(), "aegis seal enrolments"),
        SealError::Invalid(_) => Violation::new(ViolationKind::MalformedRequest, error.to_string()).into(),
        _ => Violation::new(ViolationKind::InternalError, error.to_string()).into(),
    }
}
