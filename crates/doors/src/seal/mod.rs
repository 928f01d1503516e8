//! The SEAL door: a workload attests once, and then signs every call. The signature is the credential; a header that
//! names another is not looked at.
//!
//! A body is read within limits (`body`), the gate says who signed it (`aegis_gates::identity::seal`), the plane takes
//! the call, and `answers` puts what comes of it into words that every published client understands. What was refused
//! before there was a caller leaves its trace through `refusals`.

mod answers;
mod attest;
mod body;
mod enrolments;
mod invoke;
mod refusals;
mod sessions;
mod tools;

use std::sync::Arc;

use aegis_core::{Caller, Timestamp, Violation, record::NodeRecord};
use aegis_gates::identity::seal::Refusal;
use axum::{
    Json, Router,
    extract::State,
    middleware,
    routing::{get, post},
};
use serde_json::{Map, Value, json};

use self::{body::Bodies, refusals::Refusals};
use crate::{Doors, wire};

pub(crate) const ATTEST: &str = "/v1/seal/attest";
pub(crate) const INVOKE: &str = "/v1/seal/invoke";

/// What the two endpoints that take anybody's body keep.
#[derive(Debug)]
struct Entrance {
    doors: Arc<Doors>,
    bodies: Bodies,
    refusals: Refusals,
}

/// Endpoints whose credential is in the body.
pub(crate) fn signed(doors: &Arc<Doors>) -> Router {
    let entrance =
        Entrance { doors: Arc::clone(doors), bodies: Bodies::default(), refusals: Refusals::new() };
    Router::new()
        .route(ATTEST, post(attest::attest))
        .route(INVOKE, post(invoke::invoke))
        .layer(middleware::from_fn(wire::same_words))
        .with_state(Arc::new(entrance))
}

/// Endpoints for people with a bearer token.
pub(crate) fn routes(doors: &Arc<Doors>) -> Router {
    Router::new()
        .route("/v1/seal/tools", get(tools::list))
        .route("/v1/seal/sessions", get(sessions::list).post(sessions::provision))
        .route("/v1/seal/sessions/{id}", get(sessions::show).delete(sessions::end))
        .route("/v1/seal/enrolments", get(enrolments::list).post(enrolments::create))
        .route("/v1/seal/enrolments/{id}", axum::routing::delete(enrolments::revoke))
        .route("/v1/seal/rotate-keys", post(sessions::rotate_keys))
        .layer(middleware::from_fn(wire::same_words))
        .with_state(Arc::clone(doors))
}

/// What anybody may know: the keys that tokens are checked with.
pub(crate) fn open(doors: &Arc<Doors>) -> Router {
    Router::new().route("/.well-known/jwks.json", get(keys)).with_state(Arc::clone(doors))
}

async fn keys(State(doors): State<Arc<Doors>>) -> Json<Value> {
    Json(doors.identity.seal().jwks())
}

/// Whose session a refused envelope said to be of. It is what the sender says, and goes into the record as that.
fn claimed(refusal: &Refusal) -> Map<String, Value> {
    refusal.claimed.as_ref().map(|caller| ("claimed".to_owned(), json!(caller))).into_iter().collect()
}

/// Records what happened to sessions, enrolments and keys. On disk before it returns.
async fn note(
    doors: &Doors,
    caller: Option<&Caller>,
    action: &str,
    detail: Map<String, Value>,
) -> Result<(), Violation> {
    let record =
        NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller: caller.cloned(), detail };
    doors.plane.note(record).await
}
