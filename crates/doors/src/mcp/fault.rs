//! Errors of the protocol itself, as JSON-RPC writes them.

use aegis_core::{Violation, ViolationKind};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::answer::Answer;

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// Why a message got an error instead of a result. `status` matters over HTTP only.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Box<Value>>,
}

impl Fault {
    pub(crate) fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), data: None }
    }

    /// The text is no JSON.
    pub(crate) fn unparsable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, PARSE_ERROR, message)
    }

    /// It is JSON, but no message of this protocol.
    pub(crate) fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, INVALID_REQUEST, message)
    }

    /// A well-formed request that asks for something in the wrong words. Status 200: older clients read the body
    /// of nothing else.
    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(StatusCode::OK, INVALID_PARAMS, message)
    }

    pub(crate) fn method_not_found(status: StatusCode, method: &str) -> Self {
        let shown: String = method.chars().take(100).collect();
        Self::new(status, METHOD_NOT_FOUND, format!("there is no method `{shown}`"))
    }

    /// A refusal of the whole request, before anybody looked at its id.
    pub(crate) fn refused(violation: &Violation) -> Self {
        let status =
            StatusCode::from_u16(violation.kind.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::of(violation).with_status(status)
    }

    /// A refusal of one call. MCP has its own code for a tool that does not exist.
    pub(crate) fn of(violation: &Violation) -> Self {
        let code = match violation.kind {
            ViolationKind::ToolNotFound => INVALID_PARAMS,
            kind => kind.jsonrpc_code(),
        };
        Self::new(StatusCode::OK, code, violation.message.as_str()).with_data(violation.data())
    }

    #[must_use]
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    #[must_use]
    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(Box::new(data));
        self
    }

    pub(crate) fn answer(&self, id: &str) -> Answer {
        Answer { status: self.status, text: self.render(Some(id)) }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            error["data"] = Value::clone(data);
        }
        error
    }

    /// The answer as text. Where the id could not be read it is `null`, as JSON-RPC wants it: some clients drop an
    /// answer without one.
    pub(crate) fn render(&self, id: Option<&str>) -> Vec<u8> {
        let (id, error) = (id.unwrap_or("null"), self.to_json());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes()
    }
}
