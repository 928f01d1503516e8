//! `/v1/secrets`: operators store secrets. Values go in; no answer ever holds one.

use std::{sync::Arc, time::Duration};

use aegis_core::{Caller, Secret, Timestamp, Violation, ViolationKind, id::TenantId, nearest::suggestion};
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
        let kind = match &error {
            SecretsError::Registry(RegistryError::Secret(cause)) => match cause {
                SecretStoreError::Missing(_) => ViolationKind::UnknownName,
                SecretStoreError::Exists { .. }
                | SecretStoreError::Changed { .. }
                | SecretStoreError::Full => ViolationKind::Conflict,
                SecretStoreError::BadName(_)
                | SecretStoreError::Empty(_)
                | SecretStoreError::TooLarge { .. } => ViolationKind::MalformedRequest,
                _ => ViolationKind::InternalError,
            },
            _ => ViolationKind::InternalError,
        };
        match kind {
            ViolationKind::UnknownName => Self::unknown(error.to_string(), "aegis secret list"),
            _ => Violation::new(kind, error.to_string()).into(),
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
    /// Of a new value: it is good for as long as the old one was.
    #[serde(default)]
    keep_expiry: bool,
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
    let (new, _) = read(&body, None, &operator)?;
    Ok((StatusCode::CREATED, Json(json!(doors.secrets.set(new, &operator).await?))))
}

pub(super) async fn rotate(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let (new, keeps_expiry) = read(&body, Some(name), &operator)?;
    let tenant = new.tenant.clone();
    let rotated = if keeps_expiry {
        doors.secrets.renew(new, &operator).await
    } else {
        doors.secrets.rotate(new, &operator).await
    };
    match rotated {
        Ok(rotated) => Ok(Json(json!(rotated))),
        Err(error) => Err(told(&doors, &tenant, error).await),
    }
}

pub(super) async fn delete(
    State(doors): State<Arc<Doors>>,
    Path(name): Path<String>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let tenant = page.tenant.as_deref().map_or_else(|| operator.tenant.clone(), TenantId::from);
    match doors.secrets.delete(&tenant, &name, &operator).await {
        Ok(deleted) => Ok(Json(json!(deleted))),
        Err(error) => Err(told(&doors, &tenant, error).await),
    }
}

/// With the name that was meant, where there is none like the one that was given.
async fn told(doors: &Doors, tenant: &TenantId, error: SecretsError) -> Refused {
    let SecretsError::Registry(RegistryError::Secret(SecretStoreError::Missing(name))) = &error else {
        return error.into();
    };
    let known = doors.registry.secrets(Some(tenant), MOST_LISTED).await.unwrap_or_default();
    let close = suggestion(name, known.iter().map(|secret| secret.name.as_str()));
    Refused::unknown(format!("{error}{close}"), "aegis secret list")
}

pub(super) async fn renew_key(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    Ok(Json(json!({"sealed_anew": doors.secrets.renew_key(&operator).await?})))
}

/// A secret, and whether it is to expire when the one before it did.
///
/// The parser's own words quote what they are about, so a body that can't be read is told of without them.
fn read(body: &[u8], name: Option<String>, operator: &Caller) -> Result<(NewSecret, bool), Violation> {
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
    if wanted.keep_expiry && wanted.ttl_seconds.is_some() {
        return Err(malformed("`keep_expiry` and `ttl_seconds` contradict each other"));
    }
    let new = NewSecret {
        tenant: wanted.tenant.as_deref().map_or_else(|| operator.tenant.clone(), TenantId::from),
        name,
        value,
        expires: wanted.ttl_seconds.map(|seconds| Timestamp::now().plus(Duration::from_secs(seconds))),
        created_by: operator.user.clone(),
    };
    Ok((new, wanted.keep_expiry))
}
