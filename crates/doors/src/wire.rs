//! Bodies and violations in the words of HTTP.

use aegis_core::{Violation, ViolationKind};
use axum::{
    Json,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::de::DeserializeOwned;
use serde_json::json;

/// A request's body as JSON.
pub(crate) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Violation> {
    serde_json::from_slice(body)
        .map_err(|error| Violation::new(ViolationKind::MalformedRequest, error.to_string()))
}

/// The status and body that belong to a violation. Never a 200 with an `error` in it.
pub(crate) fn refusal(violation: &Violation) -> Response {
    let status =
        StatusCode::from_u16(violation.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    refusal_with_status(violation, status)
}

pub(crate) fn refusal_with_status(violation: &Violation, status: StatusCode) -> Response {
    // `status` is what some clients of signed envelopes look at, whoever answers them.
    let body = json!({"status": "error", "error": violation.to_jsonrpc()});
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    if let Some(seconds) = violation.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, challenge(violation.kind));
    }
    response
}

/// The largest sentence of the framework's that is repeated.
const MOST_WORDS: usize = 4096;

/// Gives what the framework itself refuses (a method, a path, a query) the body that every refusal has.
pub(crate) async fn same_words(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let response = next.run(request).await;
    let status = response.status();
    if !status.is_client_error() || !is_plain(response.headers()) {
        return response;
    }
    let violation = if status == StatusCode::METHOD_NOT_ALLOWED {
        let method: String = method.as_str().chars().take(20).collect();
        Violation::new(ViolationKind::MalformedRequest, format!("{method} is not possible here"))
            .hint("the header `Allow` says what is")
    } else {
        let words = axum::body::to_bytes(response.into_body(), MOST_WORDS).await.unwrap_or_default();
        Violation::new(ViolationKind::MalformedRequest, String::from_utf8_lossy(&words))
            .hint("GET /openapi.json shows what is taken")
    };
    refusal_with_status(&violation, status)
}

/// Text, or nothing at all.
fn is_plain(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind.as_bytes().starts_with(b"text/plain"))
}

fn challenge(kind: ViolationKind) -> HeaderValue {
    HeaderValue::from_static(match kind {
        ViolationKind::CredentialExpired => {
            "Bearer realm=\"aegis\", error=\"invalid_token\", error_description=\"the token has expired\""
        }
        _ => "Bearer realm=\"aegis\"",
    })
}
