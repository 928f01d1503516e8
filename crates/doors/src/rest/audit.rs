//! `POST /v1/audit/head`: write what is queued and sign it.

use std::sync::Arc;

use aegis_core::{Violation, ViolationKind};
use aegis_stores::audit::Head;
use axum::{Json, extract::State, http::HeaderMap};

use crate::{
    Doors,
    guard::{self, Refused},
};

pub(super) async fn seal(State(doors): State<Arc<Doors>>, headers: HeaderMap) -> Result<Json<Head>, Refused> {
    guard::operator(&doors, &headers).await?;
    let sealed = doors.plane.audit().seal().await;
    sealed.map(Json).map_err(|error| {
        Violation::new(ViolationKind::InternalError, format!("no head was signed: {error}")).into()
    })
}
