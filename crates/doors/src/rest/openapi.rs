//! `GET /openapi.json`. It says how to call tools, not which there are: that takes a credential.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Value, json};

use crate::Doors;

pub(super) async fn document(State(doors): State<Arc<Doors>>) -> Json<Value> {
    Json(describe(doors.version))
}

fn describe(version: &str) -> Value {
    let refusal = json!({"$ref": "#/components/responses/Refusal"});
    let id = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let ok = |description: &str| json!({"description": description});
    let plain = |summary: &str, description: &str| json!({"get": {"summary": summary, "security": [], "responses": {"200": ok(description)}}});
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "aegis",
            "version": version,
            "description": "Governed tool calls. MCP clients use /mcp; this is for everybody else.",
        },
        "security": [{"bearer": []}],
        "paths": {
            "/healthz": plain("The process answers", "ok"),
            "/readyz": plain("The node takes calls; 503 when it does not", "ready"),
            "/v1/status": {"get": {"summary": "The node, and who you are to it",
                "responses": {"200": ok("status"), "default": refusal}}},
            "/v1/tools": {"get": {"summary": "The tools you may call",
                "responses": {"200": ok("total and tools, with schemas"), "default": refusal}}},
            "/v1/tools/{name}": {
                "parameters": [id("name")],
                "get": {"summary": "One tool", "responses": {"200": ok("the tool"), "default": refusal}},
                "post": {
                    "summary": "Call a tool",
                    "parameters": [{"name": "Aegis-Context", "in": "header", "schema": {"type": "string"},
                        "description": "Operators only: act as a user of this security context."}],
                    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
                    "responses": {
                        "200": {"$ref": "#/components/responses/Answer"},
                        "422": {"description": "the tool could not do it (an Answer), or its arguments are wrong (a Refusal)"},
                        "default": refusal,
                    },
                },
            },
            "/v1/events": {"get": {"summary": "Events as they happen, as server-sent events",
                "responses": {"200": {"description": "a stream", "content": {"text/event-stream": {}}}, "default": refusal}}},
            "/v1/tokens": {
                "get": {"summary": "Tokens, without their secrets (operators)",
                    "responses": {"200": ok("tokens"), "default": refusal}},
                "post": {"summary": "Make a token; its secret is shown once (operators)",
                    "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewToken"}}}},
                    "responses": {"201": ok("the token"), "default": refusal}},
            },
            "/v1/tokens/{id}": {"parameters": [id("id")], "delete": {"summary": "Revoke a token (operators)",
                "responses": {"200": ok("revoked"), "default": refusal}}},
            "/v1/audit/head": {"post": {"summary": "Sign the audit log's head now (operators)",
                "responses": {"200": ok("the signed head"), "default": refusal}}},
            "/metrics": {"get": {"summary": "Counters, for Prometheus",
                "responses": {"200": ok("text"), "default": refusal}}},
        },
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "NewToken": {
                    "type": "object",
                    "required": ["context"],
                    "additionalProperties": false,
                    "properties": {
                        "context": {"type": "string", "description": "the security context the token is bound to"},
                        "tier": {"enum": ["user", "system", "operator"], "default": "user"},
                        "tenant": {"type": "string"},
                        "user": {"type": "string"},
                        "ttl_seconds": {"type": "integer", "minimum": 1},
                        "note": {"type": "string"},
                    },
                },
            },
            "responses": {
                "Answer": {"description": "what the tool answered, and where its content came from",
                    "content": {"application/json": {"schema": {"type": "object",
                        "required": ["call", "is_error", "result", "label"],
                        "properties": {"call": {"type": "string"}, "is_error": {"type": "boolean"},
                            "result": {}, "label": {"type": "object"}}}}}},
                "Refusal": {"description": "why not: a code, a sentence, the rule and what to do",
                    "content": {"application/json": {"schema": {"type": "object", "required": ["error"],
                        "properties": {"error": {"type": "object", "required": ["code", "message", "data"]}}}}}},
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_resolves() {
        let document = describe("0");
        let mut stack = vec![&document];
        while let Some(value) = stack.pop() {
            if let Some(target) = value.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
            }
            match value {
                Value::Object(members) => stack.extend(members.values()),
                Value::Array(items) => stack.extend(items),
                _ => {}
            }
        }
    }
}
