//! What goes over the wire. Four published clients read these bodies, each in its own way: some look at `status`, some
//! at the HTTP status, some at `error.message`, and all of them only at `payload.result`. A body that pleases them all
//! has every one of these, and on success no member `error` anywhere near the result.

use aegis_core::{FailureKind, Label, Timestamp, Violation, ViolationKind, id::CallId};
use aegis_plane::Done;
use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The protocol's number for what has no other.
const ATTESTATION_FAILED: u16 = 3002;

/// The answer of a tool that ran, or of a call that waits for a person. The result is always an object: the tool's own
/// where that is one, and for tools that answer with text the same object that MCP calls `structuredContent`, whose
/// `result` is the text. One client turns other falsy values into `{}`.
pub(super) fn done(id: &str, call: CallId, done: &Done) -> Response {
    let about = About { call, label: &done.outcome.label };
    match (&done.outcome.structured, done.outcome.failure) {
        (_, Some(kind)) => success(id, &failure(&done.outcome.value, kind), Some(&about)),
        (Some(structured), None) => success(id, &structured.to_string(), Some(&about)),
        (None, None) if done.outcome.value.is_object() => success(id, &done.json, Some(&about)),
        (None, None) => success(id, &format!("{{\"result\":{}}}", done.json), Some(&about)),
    }
}

/// A tool's failure reaches the model as data: an error of the protocol would be raised, and read by nobody.
fn failure(value: &Value, kind: FailureKind) -> String {
    let mut members = match value {
        Value::Object(members) => members.clone(),
        other => Map::from_iter([
            ("error".to_owned(), other.clone()),
            ("error_kind".to_owned(), kind.as_str().into()),
        ]),
    };
    members.insert("isError".into(), true.into());
    Value::Object(members).to_string()
}

/// What comes with the result of a call: its name in the audit log, and where its content came from.
#[derive(Serialize)]
struct About<'a> {
    call: CallId,
    label: &'a Label,
}

/// `id` and `result` are JSON already, and are put together rather than read and written again. They stand there twice:
/// where SEAL has them, and where a caller looks that speaks plain JSON-RPC.
fn success(id: &str, result: &str, about: Option<&About<'_>>) -> Response {
    let message = format!("\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}");
    let mut text = String::with_capacity(2 * message.len() + 256);
    text.push_str("{\"protocol\":\"seal/v1\",\"status\":\"success\",\"payload\":{");
    text.push_str(&message);
    text.push_str("},");
    text.push_str(&message);
    if let Some(about) = about.and_then(|about| serde_json::to_string(about).ok()) {
        text.push(',');
        text.push_str(about.strip_prefix('{').unwrap_or("}"));
    } else {
        text.push('}');
    }
    json_body(StatusCode::OK, text)
}

/// The answer to a list.
pub(super) fn listed(id: &str, result: &Value) -> Response {
    success(id, &result.to_string(), None)
}

/// Why there is no result. `id` is the request's as JSON, if it could be read.
pub(super) fn refusal(violation: &Violation, seal_code: Option<u16>, id: Option<&str>) -> Response {
    let status = own_status(violation.kind);
    refusal_with_status(violation, status, seal_code, id)
}

pub(super) fn refusal_with_status(
    violation: &Violation,
    status: StatusCode,
    seal_code: Option<u16>,
    id: Option<&str>,
) -> Response {
    let id: Value = id.and_then(|id| serde_json::from_str(id).ok()).unwrap_or_default();
    let error = error(violation, violation.kind.jsonrpc_code(), seal_code, &id);
    let body = json!({"jsonrpc": "2.0", "id": id, "protocol": "seal/v1", "status": "error", "error": error});
    with_retry(json_body(status, body.to_string()), violation)
}

/// As above, in the words of attestation: there, the number is SEAL's, and the sentence stands twice.
pub(super) fn not_attested(
    violation: &Violation,
    status: Option<StatusCode>,
    seal_code: Option<u16>,
) -> Response {
    let number = seal_code.unwrap_or(ATTESTATION_FAILED);
    let error = error(violation, i64::from(number), Some(number), &Value::Null);
    let body = json!({
        "protocol": "seal/v1",
        "status": "error",
        "error_code": number,
        "message": violation.message,
        "error": error,
    });
    let status = status.unwrap_or_else(|| own_status(violation.kind));
    with_retry(json_body(status, body.to_string()), violation)
}

fn error(violation: &Violation, number: i64, seal_code: Option<u16>, id: &Value) -> Value {
    let mut details = violation.data();
    if let Some(code) = seal_code {
        details["seal_code"] = code.into();
    }
    // Documented without data; what we know more stands in `details`, as for every refusal.
    let data = if violation.kind == ViolationKind::InvalidArguments { Value::Null } else { details.clone() };
    json!({
        "code": number,
        "message": violation.message,
        "data": data,
        "details": details,
        "timestamp": Timestamp::now(),
        "request_id": id,
    })
}

fn own_status(kind: ViolationKind) -> StatusCode {
    StatusCode::from_u16(kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn with_retry(mut response: Response, violation: &Violation) -> Response {
    if let Some(seconds) = violation.retry_after_seconds {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

pub(super) fn json_body(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Tokens and results are nobody else's.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn body(response: Response) -> (u16, Value) {
        let status = response.status().as_u16();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn a_success_has_no_error_member() {
        let (status, value) = body(listed("\"req-1\"", &json!({"ok": 1.0}))).await;
        assert_eq!(status, 200);
        assert_eq!(
            value,
            json!({
                "protocol": "seal/v1", "status": "success",
                "payload": {"jsonrpc": "2.0", "id": "req-1", "result": {"ok": 1.0}},
                "jsonrpc": "2.0", "id": "req-1", "result": {"ok": 1.0},
            })
        );
    }

    #[tokio::test]
    async fn a_refusal_has_what_every_client_looks_for() {
        let violation = Violation::new(ViolationKind::PathOutsideBoundary, "no").rule("r").retry_after(3);
        let response = refusal(&violation, Some(2002), Some("7"));
        assert_eq!(response.headers()[header::RETRY_AFTER], "3");
        let (status, value) = body(response).await;
        assert_eq!(status, 403);
        assert_eq!(
            (&value["status"], &value["id"], &value["protocol"]),
            (&json!("error"), &json!(7), &json!("seal/v1"))
        );
        assert_eq!((&value["error"]["code"], &value["error"]["message"]), (&json!(-32000), &json!("no")));
        assert_eq!(value["error"]["data"]["seal_code"], 2002);
        assert_eq!(value["error"]["data"]["violation"], "PathOutsideBoundary");
        assert_eq!(value["error"]["request_id"], 7);
    }

    #[tokio::test]
    async fn missing_arguments_are_told_as_documented() {
        let violation = Violation::new(ViolationKind::InvalidArguments, "Invalid tool arguments: …");
        let (status, value) = body(refusal(&violation, None, None)).await;
        assert_eq!((status, &value["error"]["code"]), (422, &json!(-32602)));
        assert!(value["error"]["data"].is_null() && value["id"].is_null());
        assert_eq!(value["error"]["details"]["violation"], "InvalidArguments");
    }

    #[tokio::test]
    async fn what_the_node_can_not_do_is_its_own_fault() {
        let violation = Violation::new(ViolationKind::InternalError, "the audit log can't be written");
        let (status, value) = body(refusal(&violation, None, Some("1"))).await;
        assert_eq!((status, &value["error"]["code"]), (500, &json!(-32603)));
        assert_eq!(value["status"], "error");
    }

    #[tokio::test]
    async fn attestation_has_words_of_its_own() {
        let violation = Violation::new(ViolationKind::AttestationFailed, "who?");
        let (status, value) = body(not_attested(&violation, None, Some(3001))).await;
        assert_eq!(status, 401);
        assert_eq!(
            (&value["status"], &value["error_code"], &value["message"]),
            (&json!("error"), &json!(3001), &json!("who?"))
        );
        assert_eq!(value["error"]["message"], "who?");
        assert_eq!(value["error"]["code"], 3001);
    }
}
