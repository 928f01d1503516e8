//! Violations in the words of HTTP.

use aegis_core::{Violation, ViolationKind};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

/// The status and body that belong to a violation. Never a 200 with an `error` in it.
pub(crate) fn refusal(violation: &Violation) -> Response {
    let status =
        StatusCode::from_u16(violation.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    refusal_with_status(violation, status)
}

pub(crate) fn refusal_with_status(violation: &Violation, status: StatusCode) -> Response {
    let mut response = (status, Json(json!({"error": violation.to_jsonrpc()}))).into_response();
    let headers = response.headers_mut();
    if let Some(seconds) = violation.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, challenge(violation.kind));
    }
    response
}

fn challenge(kind: ViolationKind) -> HeaderValue {
    HeaderValue::from_static(match kind {
        ViolationKind::CredentialExpired => {
            "Bearer realm=\"aegis\", error=\"invalid_token\", error_description=\"the token has expired\""
        }
        _ => "Bearer realm=\"aegis\"",
    })
}
