//! What `/openapi.json` says of volumes and their exports.

use serde_json::{Value, json};

pub(super) fn paths() -> Value {
    let refusal = json!({"$ref": "#/components/responses/Refusal"});
    let ok = |description: &str| json!({"description": description});
    let tenant = json!([{"name": "tenant", "in": "query", "schema": {"type": "string"}}]);
    json!({
        "/v1/volumes": {"get": {"summary": "The volumes of a tenant (operators)", "parameters": tenant,
            "responses": {"200": ok("volumes"), "default": refusal}}},
        "/v1/volumes/exports": {
            "get": {"summary": "Volumes handed to agents elsewhere over NFS (operators)", "parameters": tenant,
                "responses": {"200": ok("total and exports, without their mount paths"), "default": refusal}},
            "post": {"summary": "Export a volume for a while; its mount path is shown once (operators)",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewExport"}}}},
                "responses": {"201": ok("the export, with mount_command and url"), "default": refusal}},
        },
        "/v1/volumes/exports/{id}": {
            "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
            "delete": {"summary": "End an export: its handles are worth nothing from then on (operators)",
                "responses": {"200": ok("the export that ended"), "404": refusal, "default": refusal}},
        },
    })
}

pub(super) fn components() -> Value {
    json!({"schemas": {"NewExport": {
        "type": "object",
        "required": ["context"],
        "additionalProperties": false,
        "properties": {
            "context": {"type": "string", "description": "The security context that decides what may be done there."},
            "volume": {"type": "string", "description": "The volume; the tenant's workspace when left out."},
            "tenant": {"type": "string"},
            "user": {"type": "string"},
            "ttl_seconds": {"type": "integer", "minimum": 1, "description": "How long it lasts; an hour when left out."},
        },
    }}})
}
