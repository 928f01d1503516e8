//! Requests from the same process: a command that has a node of its own asks it as it would ask a running one.

use std::sync::Arc;

use aegis_core::Secret;
use axum::{
    body::Body,
    http::{Method, Request, header},
};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use crate::{Doors, router};

/// Larger answers than any door gives.
const LARGEST: usize = 1 << 30;

#[derive(Debug, thiserror::Error)]
#[error("the request can't be made: {0}")]
pub struct BadRequest(#[from] axum::http::Error);

/// The status and the body that the HTTP doors answer with.
pub async fn answer(
    doors: &Arc<Doors>,
    method: Method,
    path: &str,
    token: &Secret,
    body: Vec<u8>,
) -> Result<(u16, Vec<u8>), BadRequest> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {}", token.expose()))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))?;
    let Ok(response) = TowerToHyperService::new(router(doors)).call(request).await;
    let status = response.status().as_u16();
    let body = axum::body::to_bytes(response.into_body(), LARGEST).await.unwrap_or_default();
    Ok((status, body.to_vec()))
}
