//! `POST /v1/seal/attest`: a workload shows the id that an operator gave it, and a key; it gets a session.

use std::sync::Arc;

use aegis_core::{Door, Event, Violation, event::EventName};
use aegis_gates::identity::seal::{Attestation, Attested, Refusal, seal_code};
use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    response::Response,
};
use serde_json::{Map, Value, json};

use super::{Entrance, answers, body::NoBody, note, refusals::ATTESTATION};
use crate::guard;

/// A key, an id and a few names.
const LARGEST: usize = 16 << 10;

pub(super) async fn attest(State(entrance): State<Arc<Entrance>>, request: Request) -> Response {
    match attested(&entrance, request).await {
        Ok(attested) => {
            entrance.doors.plane.meters().attested(true);
            answers::json_body(StatusCode::OK, body(&attested).to_string())
        }
        Err(failed) => failed.answer(&entrance).await,
    }
}

/// `session_id` is what an operator ends the session by.
fn body(attested: &Attested) -> Value {
    json!({
        "status": "success",
        "security_token": attested.token.expose(),
        "expires_at": attested.session.expires,
        "session_id": attested.session.id,
    })
}

async fn attested(entrance: &Entrance, request: Request) -> Result<Attested, Failed> {
    let doors = &entrance.doors;
    let (parts, body) = request.into_parts();
    let patience = doors.network.body_timeout.0;
    let whole = entrance.bodies.whole(body, LARGEST, "the size of an attestation", patience).await?;
    // Who sends a token is taken at its word, and refused when it is none of ours.
    let bearer = match parts.headers.get(header::AUTHORIZATION) {
        None => None,
        Some(_) => Some(doors.identity.bearer(guard::bearer(&parts.headers), Door::Seal, None).await?),
    };
    let wanted = Attestation::parse(&whole.bytes)?;
    let contexts = doors.plane.policy().contexts();
    let version = |name: &aegis_core::id::ContextName| {
        contexts.get(name.as_str()).map(|context| context.version.clone())
    };
    let attested = doors.identity.seal().attest(&wanted, bearer.as_ref(), version).await?;
    let session = &attested.session;
    let detail = Map::from_iter([("session".to_owned(), json!(session))]);
    if let Err(violation) = note(doors, bearer.as_ref(), "seal-attested", detail).await {
        // A session that the record does not know must not be usable.
        let _ = doors.identity.seal().revoke_session(&session.id, "it could not be recorded").await;
        return Err(violation.into());
    }
    let event = Event::new(EventName::AttestationCompleted)
        .with("session", session.id.as_str())
        .with("security_context", session.context.as_str());
    doors.plane.bus().announce_to(&session.tenant, event);
    Ok(attested)
}

/// Why there is no session.
struct Failed {
    violation: Violation,
    status: Option<StatusCode>,
    seal_code: Option<u16>,
    claimed: Map<String, Value>,
}

impl Failed {
    async fn answer(self, entrance: &Entrance) -> Response {
        entrance.doors.plane.meters().attested(false);
        entrance.refusals.take(&entrance.doors, ATTESTATION, &self.violation, self.claimed).await;
        answers::not_attested(&self.violation, self.status, self.seal_code)
    }
}

impl From<Violation> for Failed {
    fn from(violation: Violation) -> Self {
        Self { seal_code: seal_code(violation.kind), violation, status: None, claimed: Map::new() }
    }
}

impl From<NoBody> for Failed {
    fn from(no_body: NoBody) -> Self {
        Self { status: no_body.status, ..no_body.violation.into() }
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self {
            claimed: super::claimed(&refusal),
            violation: *refusal.violation,
            status: None,
            seal_code: refusal.seal_code,
        }
    }
}
