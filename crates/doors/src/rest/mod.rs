//! Plain HTTP: tools for callers that speak no MCP, events, tokens, and what monitoring wants.

mod approvals;
mod audit;
mod contexts;
mod described;
mod events;
mod health;
mod openapi;
mod policies;
mod secrets;
mod tokens;
mod tools;
mod upstreams;
mod volumes;

use std::sync::Arc;

use aegis_core::{Violation, ViolationKind};
use axum::{
    Router,
    http::{StatusCode, Uri},
    middleware,
    response::Response,
    routing::{delete, get, post, put},
};

use crate::{Doors, wire};

/// Answered without a credential: they tell nothing about tools or callers.
pub(crate) fn open(doors: &Arc<Doors>) -> Router {
    Router::new()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/openapi.json", get(openapi::document))
        .route("/approvals/{id}", get(approvals::page))
        .layer(middleware::from_fn(wire::same_words))
        .with_state(Arc::clone(doors))
}

pub(crate) fn routes(doors: &Arc<Doors>) -> Router {
    Router::new()
        .route("/v1/tools", get(tools::list))
        .route("/v1/tools/{name}", get(tools::show).post(tools::call))
        .route("/v1/events", get(events::stream))
        .route("/v1/tokens", get(tokens::list).post(tokens::create))
        .route("/v1/tokens/{id}", delete(tokens::revoke))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/always", get(approvals::standing).post(approvals::always))
        .route("/v1/approvals/always/{id}", delete(approvals::revoke))
        .route("/v1/approvals/{id}", get(approvals::show))
        .route("/v1/approvals/{id}/approve", post(approvals::approve))
        .route("/v1/approvals/{id}/reject", post(approvals::reject))
        .route("/v1/approvals/{id}/cancel", post(approvals::cancel))
        .route("/v1/audit/head", post(audit::seal))
        .route("/v1/contexts", get(contexts::list))
        .route("/v1/contexts/{name}", get(contexts::show).put(contexts::apply).delete(contexts::delete))
        .route("/v1/contexts/{name}/versions", get(contexts::versions))
        .route("/v1/contexts/{name}/drop-sessions", post(contexts::drop_sessions))
        .route("/v1/policies", get(policies::list))
        .route("/v1/policies/explain", post(policies::explain_call))
        .route("/v1/upstreams", get(upstreams::list).post(upstreams::add))
        .route("/v1/upstreams/test", post(upstreams::test_other))
        .route("/v1/upstreams/{name}", get(upstreams::show).put(upstreams::put).delete(upstreams::remove))
        .route("/v1/upstreams/{name}/restart", post(upstreams::restart))
        .route("/v1/upstreams/{name}/enable", post(upstreams::enable))
        .route("/v1/upstreams/{name}/disable", post(upstreams::disable))
        .route("/v1/upstreams/{name}/test", post(upstreams::test))
        .route("/v1/upstreams/{name}/sign-in", post(upstreams::sign_in))
        .route("/v1/upstreams/{name}/signed-in", post(upstreams::signed_in))
        .route("/v1/upstreams/{name}/logs", get(upstreams::logs))
        .route("/v1/upstreams/{name}/diff", get(upstreams::diff))
        .route("/v1/upstreams/{name}/accept", post(upstreams::accept))
        .route("/v1/upstreams/{name}/reject", post(upstreams::reject))
        .route("/v1/secrets", get(secrets::list).post(secrets::set))
        .route("/v1/secrets/{*name}", put(secrets::rotate).delete(secrets::delete))
        .route("/v1/secret-keys/renew", post(secrets::renew_key))
        .route("/v1/volumes", get(volumes::list))
        .route("/v1/volumes/exports", get(volumes::exports).post(volumes::export))
        .route("/v1/volumes/exports/{id}", delete(volumes::unexport))
        .route("/v1/status", get(health::status))
        .route("/metrics", get(health::metrics))
        .layer(middleware::from_fn(wire::same_words))
        .with_state(Arc::clone(doors))
}

pub(crate) async fn not_found(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    let violation = Violation::new(ViolationKind::MalformedRequest, format!("there is nothing at `{path}`"))
        .hint("GET /openapi.json shows what there is; MCP is at /mcp");
    wire::refusal_with_status(&violation, StatusCode::NOT_FOUND)
}
