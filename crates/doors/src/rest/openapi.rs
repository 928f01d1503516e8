//! `GET /openapi.json`. It says how to call tools, not which there are: that takes a credential.

use std::sync::Arc;

use axum::{Json, extract::State};
use serde_json::{Value, json};

use crate::Doors;

mod approvals;
mod upstreams;
mod volumes;

pub(super) async fn document(State(doors): State<Arc<Doors>>) -> Json<Value> {
    Json(complete(doors.version))
}

fn complete(version: &str) -> Value {
    let mut document = describe(version);
    for (place, more) in [
        ("paths", approvals::paths()),
        ("components", approvals::components()),
        ("paths", upstreams::paths()),
        ("components", upstreams::components()),
        ("paths", volumes::paths()),
        ("components", volumes::components()),
    ] {
        if let (Some(all), Value::Object(more)) = (document[place].as_object_mut(), more) {
            for (name, value) in more {
                match (all.get_mut(&name).and_then(Value::as_object_mut), value) {
                    (Some(known), Value::Object(members)) => known.extend(members),
                    (_, value) => drop(all.insert(name, value)),
                }
            }
        }
    }
    document
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
                    "description": "With `Accept: text/event-stream`, a tool that says something before its answer is answered as a stream of `progress` events and one last `answer` event, which holds `status` and `body`.",
                    "parameters": [{"name": "Aegis-Context", "in": "header", "schema": {"type": "string"},
                        "description": "Operators only: act as a user of this security context."}],
                    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
                    "responses": {
                        "200": {"$ref": "#/components/responses/Answer"},
                        "202": {"description": "nothing has run: an approver must agree first (an Answer); Location says where to look"},
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
            "/v1/contexts": {"get": {"summary": "Security contexts in force, and where each comes from (operators)",
                "responses": {"200": ok("contexts, with versions"), "default": refusal}}},
            "/v1/contexts/{name}": {
                "parameters": [id("name")],
                "get": {"summary": "One context; an earlier version with ?version= (operators)",
                    "responses": {"200": ok("the context"), "default": refusal}},
                "put": {"summary": "Put a context in force at once; ?drop=true makes sessions under older versions attest again, ?over=VERSION refuses when another version is in force, ?over= when there is one (operators)",
                    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
                    "responses": {"200": ok("the old and the new version"), "409": refusal, "default": refusal}},
                "delete": {"summary": "Take an applied context out of force (operators)",
                    "responses": {"200": ok("the old and the new version"), "409": refusal, "default": refusal}},
            },
            "/v1/contexts/{name}/versions": {"parameters": [id("name")], "get": {
                "summary": "Every version that was in force here, the newest first (operators)",
                "responses": {"200": ok("versions"), "default": refusal}}},
            "/v1/contexts/{name}/drop-sessions": {"parameters": [id("name")], "post": {
                "summary": "Make sessions under older versions attest again (operators)",
                "responses": {"200": ok("how many versions were retired"), "default": refusal}}},
            "/v1/policies": {"get": {"summary": "The rules in force (operators)",
                "responses": {"200": ok("rules, their version, and what label rules do"), "default": refusal}}},
            "/v1/policies/explain": {"post": {"summary": "What would come of a call, gate by gate; it is not made (operators)",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/ImaginedCall"}}}},
                "responses": {"200": ok("how it ends, and each gate's words"), "default": refusal}}},
            "/v1/seal/attest": {"post": {
                "summary": "Open a session: the workload id is the credential, a bearer token works too",
                "security": [],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Attestation"}}}},
                "responses": {"200": ok("security_token, expires_at, session_id"), "default": refusal}}},
            "/v1/seal/invoke": {"post": {
                "summary": "One call in a signed envelope, which is the credential (docs/seal.md)",
                "security": [],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Envelope"}}}},
                "responses": {"200": ok("payload.result"), "default": refusal}}},
            "/v1/seal/tools": {"get": {"summary": "The tools you may call, as SEAL clients read them",
                "parameters": [{"name": "security_context", "in": "query", "schema": {"type": "string"},
                    "description": "Operators only: what a user of this security context sees."}],
                "responses": {"200": ok("endpoints and tools"), "default": refusal}}},
            "/v1/seal/sessions": {"get": {"summary": "Sessions, newest first (operators)",
                "responses": {"200": ok("sessions"), "default": refusal}},
                "post": {"summary": "Take in a session whose token a trusted key signed (operators)",
                    "responses": {"201": ok("the session"), "default": refusal}}},
            "/v1/seal/sessions/{id}": {
                "parameters": [id("id")],
                "get": {"summary": "One session (operators)", "responses": {"200": ok("the session"), "default": refusal}},
                "delete": {"summary": "End a session (operators)", "responses": {"200": ok("ended"), "default": refusal}},
            },
            "/v1/seal/enrolments": {
                "get": {"summary": "Enrolled workloads, without their ids (operators)",
                    "responses": {"200": ok("enrolments"), "default": refusal}},
                "post": {"summary": "Enrol a workload; its id is shown once (operators)",
                    "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewEnrolment"}}}},
                    "responses": {"201": ok("the enrolment and workload_id"), "default": refusal}},
            },
            "/v1/seal/enrolments/{id}": {"parameters": [id("id")], "delete": {
                "summary": "Take an enrolment back and end its sessions (operators)",
                "responses": {"200": ok("revoked"), "default": refusal}}},
            "/v1/seal/rotate-keys": {"post": {"summary": "Sign tokens with a new key (operators)",
                "responses": {"200": ok("the key's id"), "default": refusal}}},
            "/.well-known/jwks.json": plain("The public keys that SEAL tokens are signed with", "a JWK set"),
            "/metrics": {"get": {"summary": "Counters, for Prometheus",
                "responses": {"200": ok("text"), "default": refusal}}},
        },
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Attestation": {
                    "type": "object",
                    "required": ["public_key", "security_context"],
                    "properties": {
                        "public_key": {"type": "string", "description": "an Ed25519 public key, 32 bytes in base64"},
                        "workload_id": {"type": "string", "description": "from `aegis seal enroll`"},
                        "security_context": {"type": "string"},
                    },
                },
                "Envelope": {
                    "type": "object",
                    "required": ["protocol", "security_token", "signature", "payload", "timestamp"],
                    "properties": {
                        "protocol": {"const": "seal/v1"},
                        "security_token": {"type": "string"},
                        "signature": {"type": "string", "description": "Ed25519, 64 bytes in base64"},
                        "payload": {"type": "object", "description": "JSON-RPC: tools/call or tools/list"},
                        "timestamp": {"type": "string", "format": "date-time"},
                    },
                },
                "NewEnrolment": {
                    "type": "object",
                    "required": ["contexts"],
                    "additionalProperties": false,
                    "properties": {
                        "contexts": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                        "tier": {"enum": ["user", "system", "operator"], "default": "user"},
                        "tenant": {"type": "string"},
                        "user": {"type": "string"},
                        "ttl_seconds": {"type": "integer", "minimum": 1},
                        "uses": {"type": "integer", "minimum": 1},
                        "key": {"type": "string", "description": "the only public key that may attest"},
                        "note": {"type": "string"},
                    },
                },
                "ImaginedCall": {
                    "type": "object",
                    "required": ["tool"],
                    "additionalProperties": false,
                    "properties": {
                        "tool": {"type": "string"},
                        "arguments": {"type": "object"},
                        "context": {"type": "string", "description": "the caller's; the operator's when left out"},
                        "tier": {"enum": ["user", "system", "operator"]},
                        "tenant": {"type": "string"},
                        "user": {"type": "string"},
                        "having": {"type": "array", "items": {"type": "string"},
                            "description": "labels of what the session has read, e.g. EXTERNAL_UNTRUSTED"},
                    },
                },
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
        let document = complete("0");
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
