//! `/v1/secrets`: operators store secrets. Values go in; no answer ever holds one.

use std::{sync::Arc, time::Duration};

use aegis_core::{Caller, Secret, Timestamp, Violation, ViolationKind, id::TenantId};
use aegis_plane::secrets::SecretsError;
use aegis_stores::registry::{NewSecret, RegistryError, SecretStoreError};
use axum::{
    Json,
    body::Bytes,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Doors,
    guard::{self, Refused},
};

const MOST_LISTED: usize = 10_000;

impl From<SecretsError> for Refused {
    fn from(error: SecretsError) -> Self {
        let status = match &error {
            SecretsError::Registry(RegistryError::Secret(cause)) => match cause {
                SecretStoreError::Missing(_) => Some(StatusCode::NOT_FOUND),
                SecretStoreError::Exists { .. } | SecretStoreError::Full => Some(StatusCode::CONFLICT),
                SecretStoreError::BadName(_)
                | SecretStoreError::Empty(_)
                | SecretStoreError::TooLarge { .. } => Some(StatusCode::BAD_REQUEST),
                _ => None,
            },
            _ => None,
        };
        match status {
            Some(status) => {
                Self::with_status(Violation::new(ViolationKind::MalformedRequest, error.to_string()), status)
            }
            None => Violation::new(ViolationKind::InternalError, error.to_string()).into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// In the address where it replaces a value.
    name: Option<String>,
    value: String,
    tenant: Option<String>,
    ttl_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    limit: Option<usize>,
    tenant: Option<String>,
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let tenant = page.tenant.as_deref().map(TenantId::from);
    let limit = page.limit.unwrap_or(100).min(MOST_LISTED);
    let listed = doors.secrets.list(tenant.as_ref(), limit).await?;
    let secrets: Vec<Value> = listed
        .into_iter()
        .map(|(secret, used_by)| {
            let mut told = json!(secret);
            told["used_by"] = json!(used_by);
            told
        })
        .collect();
    Ok(Json(json!({"total": secrets.len(), "secrets": secrets})))
}

pub(super) async fn set(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let new = read(&body, None, &operator)?;
    Ok((StatusCode::CREATED, Json(json!(doors.secrets.set(new, &operator).await?))))
}

pub(super) async fn rotate(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let new = read(&body, Some(name), &operator)?;
    Ok(Json(json!(doors.secrets.rotate(new, &operator).await?)))
}

pub(super) async fn delete(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let tenant = page.tenant.as_deref().map_or_else(|| operator.tenant.clone(), TenantId::from);
    Ok(Json(json!(doors.secrets.delete(&tenant, &name, &operator).await?)))
}

pub(super) async fn renew_key(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    Ok(Json(json!({"sealed_anew": doors.secrets.renew_key(&operator).await?})))
}

/// The parser's own words quote what they are about, so a body that can't be read is told of without them.
fn read(body: &[u8], name: Option<String>, operator: &Caller) -> Result<NewSecret, Violation> {
    let malformed = |message: &str| {
        Violation::new(ViolationKind::MalformedRequest, message)
            .hint("send {\"name\": …, \"value\": …}, and if you like \"tenant\" and \"ttl_seconds\"")
    };
    let wanted: Wanted =
        serde_json::from_slice(body).map_err(|_| malformed("the body is no secret to store"))?;
    let value = Secret::new(wanted.value);
    let name = match (name, wanted.name) {
        (Some(name), None) => name,
        (Some(name), Some(same)) if name == same => name,
        (None, Some(name)) => name,
        (Some(_), Some(_)) => return Err(malformed("the address names another secret than the body")),
        (None, None) => return Err(malformed("the secret has no name")),
    };
    Ok(NewSecret {
        tenant: wanted.tenant.as_deref().map_or_else(|| operator.tenant.clone(), TenantId::from),
        name,
        value,
        expires: wanted.ttl_seconds.map(|seconds| Timestamp::now().plus(Duration::from_secs(seconds))),
        created_by: operator.user.clone(),
    })
}
