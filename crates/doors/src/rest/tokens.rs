//! `/v1/tokens`: operators make, list and revoke tokens. Each change leaves a record in the audit log.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Caller, Secret, Tier, Timestamp, Violation, ViolationKind, id::CredentialId, record::NodeRecord,
};
use aegis_stores::registry::{NewToken, RegistryError, Token};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    Doors,
    guard::{self, Refused},
    wire,
};

const MOST_LISTED: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    context: String,
    #[serde(default = "user_tier")]
    tier: Tier,
    tenant: Option<String>,
    user: Option<String>,
    ttl_seconds: Option<u64>,
    note: Option<String>,
}

fn user_tier() -> Tier {
    Tier::User
}

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    limit: Option<usize>,
    after: Option<String>,
}

pub(super) async fn create(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let wanted: Wanted = wire::read(&body)?;
    let (token, secret) = make(&doors, &operator, wanted).await?;
    let mut answer = shown(&token);
    answer["token"] = secret.expose().into();
    Ok((StatusCode::CREATED, Json(answer)))
}

async fn make(doors: &Doors, operator: &Caller, wanted: Wanted) -> Result<(Token, Secret), Violation> {
    doors.plane.policy().contexts().named(&wanted.context)?;
    if wanted.ttl_seconds == Some(0) {
        return Err(Violation::new(ViolationKind::MalformedRequest, "a token of 0 seconds is over at once")
            .hint("say how long it is good for: `ttl_seconds` from 1 on; left out, it has no end"));
    }
    let new = NewToken {
        tenant: wanted.tenant.map_or_else(|| operator.tenant.clone(), |tenant| tenant.as_str().into()),
        user: wanted.user.as_deref().unwrap_or(aegis_core::caller::AGENT_USER).into(),
        tier: wanted.tier,
        context: wanted.context.as_str().into(),
        expires: wanted.ttl_seconds.map(|seconds| Timestamp::now().plus(Duration::from_secs(seconds))),
        note: wanted.note,
    };
    let (token, secret) = doors.registry.create(new).await.map_err(|error| fault(&error))?;
    if let Err(violation) = note(doors, operator, "token-created", &token).await {
        // A token that the record does not know must not be usable.
        let _ = doors.registry.revoke(&token.id).await;
        return Err(violation);
    }
    Ok((token, secret))
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let limit = page.limit.unwrap_or(100).min(MOST_LISTED);
    let after = page.after.as_deref().map(CredentialId::new);
    let tokens = doors.registry.list(None, limit, after.as_ref()).await.map_err(|error| fault(&error))?;
    let tokens: Vec<Value> = tokens.iter().map(shown).collect();
    Ok(Json(json!({"tokens": tokens})))
}

pub(super) async fn revoke(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let token = doors.registry.revoke(&id.as_str().into()).await.map_err(|error| match error {
        RegistryError::NoSuchToken(_) => Refused::unknown(error.to_string(), "aegis token list"),
        error => fault(&error).into(),
    })?;
    note(&doors, &operator, "token-revoked", &token).await?;
    Ok(Json(shown(&token)))
}

/// With what has become of it by now, so that nobody has to compare times.
fn shown(token: &Token) -> Value {
    let mut shown = json!(token);
    shown["state"] = json!(token.state_at(Timestamp::now()));
    shown
}

async fn note(doors: &Doors, operator: &Caller, action: &str, token: &Token) -> Result<(), Violation> {
    let mut detail = Map::new();
    detail.insert("token".into(), json!(token));
    let record = NodeRecord {
        time: Timestamp::now(),
        action: action.to_owned(),
        caller: Some(operator.clone()),
        detail,
    };
    doors.plane.note(record).await
}

fn fault(error: &RegistryError) -> Violation {
    let kind = match error {
        RegistryError::Invalid(_) => ViolationKind::MalformedRequest,
        _ => ViolationKind::InternalError,
    };
    Violation::new(kind, error.to_string())
}
