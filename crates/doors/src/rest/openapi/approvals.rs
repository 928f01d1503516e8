//! What the document says of `/v1/approvals`.

use serde_json::{Value, json};

pub(super) fn paths() -> Value {
    let refusal = json!({"$ref": "#/components/responses/Refusal"});
    let id = json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    let query = |name: &str, description: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}, "description": description});
    let ok = |description: &str| json!({"description": description});
    let decided = json!({
        "200": ok("the request"), "403": ok("you asked for it, or are no approver"),
        "404": ok("there is none that you could see"), "409": ok("it was decided otherwise, or has ended"),
        "410": ok("its time ran out"), "default": refusal,
    });
    json!({
        "/v1/approvals": {"get": {
            "summary": "Requests for approval: operators see all, approvers their tenant's, others their own",
            "parameters": [
                query("state", "pending, approved, rejected, expired, cancelled, executed or failed"),
                query("limit", "at most 1000"),
                query("after", "`next` of the page before"),
            ],
            "responses": {"200": ok("total and approvals, newest first, without results and with long arguments cut; next, if there are more"),
                "default": refusal}}},
        "/v1/approvals/{id}": {"parameters": id, "get": {
            "summary": "One request, with all its arguments while it is open; to whoever asked, with the result",
            "description": "With `wait` and `Accept: text/event-stream`, whoever asked is answered as a stream: `progress` events with what the call says, and one last `answer` event, which holds `status` and `body`.",
            "parameters": [query("wait", "hold the answer until it has ended, at most so long: 30s, or 60s at most")],
            "responses": {"200": ok("the request"), "404": ok("there is none that you could see"),
                "default": refusal}}},
        "/v1/approvals/{id}/approve": {"parameters": id, "post": {
            "summary": "Agree: exactly that call runs, once (approvers; never who asked)",
            "parameters": [query("wait", "hold the answer until the call has ended, at most so long: 30s, or 60s at most")],
            "responses": decided}},
        "/v1/approvals/{id}/reject": {"parameters": id, "post": {
            "summary": "Refuse; whoever asked receives the reason (approvers; never who asked)",
            "requestBody": {"content": {"application/json": {"schema": {"type": "object",
                "required": ["reason"], "additionalProperties": false,
                "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": 500}}}}}},
            "responses": decided}},
        "/v1/approvals/{id}/cancel": {"parameters": id, "post": {
            "summary": "Take a request of your own back, while nobody has decided", "responses": decided}},
        "/v1/approvals/always": {
            "get": {"summary": "Standing approvals (approvers)", "parameters": [
                query("all", "true: those that are over or revoked, too"), query("limit", "at most 1000")],
                "responses": {"200": ok("total and standing, newest first, each with what it covers in words"), "default": refusal}},
            "post": {"summary": "Let calls like this run without asking, for a while (approvers; not for oneself)",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewStanding"}}}},
                "responses": {"201": ok("the standing approval"), "default": refusal}}},
        "/v1/approvals/always/{id}": {"parameters": id, "delete": {
            "summary": "Take a standing approval back (approvers)",
            "responses": {"200": ok("revoked"), "default": refusal}}},
    })
}

pub(super) fn components() -> Value {
    json!({"schemas": {"NewStanding": {
        "type": "object",
        "required": ["tool", "user"],
        "oneOf": [
            {"required": ["arguments"]},
            {"required": ["any_arguments"], "properties": {"any_arguments": {"const": true}}},
        ],
        "additionalProperties": false,
        "properties": {
            "tool": {"type": "string"},
            "arguments": {"type": "object", "description":
                "argument to pattern: a value, {equals}, {prefix} or {glob}"},
            "only_named": {"type": "boolean", "default": false,
                "description": "beside `arguments`: those that are not named must be absent; else they may be anything"},
            "any_arguments": {"type": "boolean", "description": "instead of a pattern: every call of the tool"},
            "user": {"type": "string"},
            "tenant": {"type": "string"},
            "until": {"type": "string", "format": "date-time", "description": "8 hours from now if left out"},
            "covers_labels": {"type": "boolean", "default": false,
                "description": "also when it is asked because of what the session has read"},
            "note": {"type": "string"},
        },
    }}})
}
