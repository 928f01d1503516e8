//! `/v1/volumes`: operators see which volumes there are and hand them to agents elsewhere for a while.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Violation, ViolationKind,
    caller::AGENT_USER,
    id::{TenantId, is_dns_label},
};
use aegis_nfs::gateway::WantedExport;
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
    wire,
};

const DEFAULT_SECONDS: u64 = 3600;
const MOST_LISTED: usize = 4096;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    context: String,
    volume: Option<String>,
    tenant: Option<String>,
    user: Option<String>,
    ttl_seconds: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    tenant: Option<String>,
    limit: Option<usize>,
}

fn tenant_named(name: Option<&str>, own: &TenantId) -> Result<TenantId, Violation> {
    match name {
        None => Ok(own.clone()),
        Some(name) if is_dns_label(name) => Ok(TenantId::new(name)),
        Some(_) => Err(Violation::new(
            ViolationKind::MalformedRequest,
            "a tenant's name has lower-case letters, digits and hyphens, at most 63",
        )),
    }
}

pub(super) async fn list(
    State(doors): State<Arc<Doors>>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let tenant = tenant_named(which.tenant.as_deref(), &operator.tenant)?;
    let volumes = doors.volumes.volumes(&tenant).await?;
    let total = volumes.len();
    let shown: Vec<Value> = volumes
        .into_iter()
        .take(which.limit.unwrap_or(MOST_LISTED))
        .map(|volume| {
            json!({
                "id": volume.id, "mount_path": volume.mount_path, "access_mode": volume.access,
                "size_limit": volume.size_limit, "used": volume.used, "unread_directories": volume.unread,
            })
        })
        .collect();
    Ok(Json(json!({"tenant": tenant, "total": total, "volumes": shown, "nfs": doors.volumes.is_enabled()})))
}

pub(super) async fn exports(
    State(doors): State<Arc<Doors>>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    guard::operator(&doors, &headers).await?;
    let mut exports = doors.volumes.list();
    if let Some(tenant) = &which.tenant {
        exports.retain(|export| export.tenant == *tenant);
    }
    let total = exports.len();
    exports.truncate(which.limit.unwrap_or(MOST_LISTED));
    Ok(Json(json!({"total": total, "exports": exports})))
}

pub(super) async fn export(
    State(doors): State<Arc<Doors>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<Value>), Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    let wanted: Wanted = wire::read(&body)?;
    let wanted = WantedExport {
        context: wanted.context.as_str().into(),
        tenant: tenant_named(wanted.tenant.as_deref(), &operator.tenant)?,
        user: wanted.user.as_deref().unwrap_or(AGENT_USER).into(),
        volume: wanted.volume,
        lasting: Duration::from_secs(wanted.ttl_seconds.unwrap_or(DEFAULT_SECONDS)),
    };
    let made = doors.volumes.export(&operator, wanted).await?;
    let mut answer = json!(made.summary);
    answer["address"] = made.address.to_string().into();
    answer["mount_command"] = made.mount_command().into();
    answer["url"] = made.url().into();
    answer["mount_path"] = made.mount_path.into();
    Ok((StatusCode::CREATED, Json(answer)))
}

pub(super) async fn unexport(
    State(doors): State<Arc<Doors>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Refused> {
    let operator = guard::operator(&doors, &headers).await?;
    Ok(Json(json!(doors.volumes.unexport(&operator, &id).await?)))
}
