//! What the document says of `/v1/upstreams` and `/v1/secrets`.

use serde_json::{Value, json};

pub(super) fn paths() -> Value {
    let refusal = json!({"$ref": "#/components/responses/Refusal"});
    let name = json!([{"name": "name", "in": "path", "required": true, "schema": {"type": "string"}}]);
    let query = |name: &str, description: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}, "description": description});
    let ok = |description: &str| json!({"description": description});
    let server = json!({"content": {"application/json": {"schema": {"type": "object",
        "description": "a server as it stands under spec.mcp_servers"}}}});
    let object = |description: &str| json!({"content": {"application/json": {"schema": {"type": "object", "description": description}}}});
    let decision =
        json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Decision"}}}});
    let secret =
        json!({"content": {"application/json": {"schema": {"$ref": "#/components/schemas/NewSecret"}}}});
    json!({
        "/v1/upstreams": {
            "get": {"summary": "MCP servers behind the node, and how each is doing (operators)",
                "responses": {"200": ok("total, upstreams, and the resources that several list"), "default": refusal}},
            "post": {"summary": "Add a server and start it (operators)", "requestBody": server,
                "responses": {"201": ok("the server, and what it needs and does not have yet"), "409": ok("its name is taken"),
                    "default": refusal}}},
        "/v1/upstreams/{name}": {"parameters": name,
            "get": {"summary": "One server: configuration, state, tools (operators)",
                "parameters": [query("wait", "at most 60 seconds until it runs or has failed to start")],
                "responses": {"200": ok("the server"), "404": ok("there is none"), "default": refusal}},
            "put": {"summary": "Add a server, or put it in the place of the added one (operators)", "requestBody": server,
                "responses": {"200": ok("the server, and whether it was added, updated or unchanged"),
                    "409": ok("the configuration file defines it"), "default": refusal}},
            "delete": {"summary": "End an added server and forget it (operators)",
                "responses": {"200": ok("removed, and which of its stored secrets went with it or are left"), "409": ok("the configuration file defines it"), "default": refusal}}},
        "/v1/upstreams/{name}/restart": {"parameters": name, "post": {
            "summary": "Start a server anew, with its credentials read again (operators)",
            "responses": {"200": ok("the server, once it runs or has failed to start"), "default": refusal}}},
        "/v1/upstreams/{name}/enable": {"parameters": name, "post": {
            "summary": "Switch an added server on (operators)",
            "responses": {"200": ok("the server, and whether that is a change"), "409": ok("the configuration file defines it"),
                "default": refusal}}},
        "/v1/upstreams/{name}/disable": {"parameters": name, "post": {
            "summary": "End an added server and keep it (operators)",
            "responses": {"200": ok("the server, and whether that is a change"), "409": ok("the configuration file defines it"),
                "default": refusal}}},
        "/v1/upstreams/{name}/test": {"parameters": name, "post": {
            "summary": "Connect to a server for a look (operators)",
            "responses": {"200": ok("what it offers, or why it does not work and what is missing"), "default": refusal}}},
        "/v1/upstreams/{name}/sign-in": {"parameters": name, "post": {
            "summary": "Find out where a person signs in to a server that speaks HTTP (operators)",
            "requestBody": object("redirect (an address of the loopback), and optionally client_id, client_secret (a reference), scopes"),
            "responses": {"200": ok("the url to open in a browser, the state that comes back, and the issuer"),
                "409": ok("there is no sign-in, or it can't be used"), "default": refusal}}},
        "/v1/upstreams/{name}/signed-in": {"parameters": name, "post": {
            "summary": "End a sign-in: get the tokens, keep them as secrets, and start the server with them (operators)",
            "requestBody": object("back: the whole address that the browser came back to"),
            "responses": {"200": ok("the server"), "409": ok("it was not begun, or no tokens were given"), "default": refusal}}},
        "/v1/upstreams/test": {"post": {
            "summary": "Connect to a server that is not configured (operators)", "requestBody": server,
            "responses": {"200": ok("what it offers, or why it does not work and what is missing"), "default": refusal}}},
        "/v1/upstreams/{name}/logs": {"parameters": name, "get": {
            "summary": "What a server wrote to its standard error (operators)",
            "parameters": [query("limit", "at most 10000 lines")],
            "responses": {"200": ok("lines, the oldest first"), "default": refusal}}},
        "/v1/upstreams/{name}/diff": {"parameters": name, "get": {
            "summary": "Definitions of tools that wait for a decision or were rejected, against those that were accepted (operators)",
            "responses": {"200": ok("total and proposals"), "default": refusal}}},
        "/v1/upstreams/{name}/accept": {"parameters": name, "post": {
            "summary": "Accept what waits, or the named tools, also after they were rejected (operators)", "requestBody": decision,
            "responses": {"200": ok("what was decided, and why of each that is not in force yet"), "409": ok("nothing waits"), "default": refusal}}},
        "/v1/upstreams/{name}/reject": {"parameters": name, "post": {
            "summary": "Reject what waits: all, or the named tools (operators)", "requestBody": decision,
            "responses": {"200": ok("what was decided, and why of each that is not in force yet"), "409": ok("nothing waits"), "default": refusal}}},
        "/v1/secrets": {
            "get": {"summary": "Stored secrets, without their values (operators)",
                "parameters": [query("limit", "at most 10000"), query("tenant", "only this tenant's")],
                "responses": {"200": ok("total and secrets"), "default": refusal}},
            "post": {"summary": "Store a secret; its value can't be read again (operators)", "requestBody": secret,
                "responses": {"201": ok("the secret without its value"), "409": ok("there is one of that name"),
                    "default": refusal}}},
        "/v1/secrets/{name}": {"parameters": name,
            "put": {"summary": "Give a secret another value; servers that hold it get it (operators)",
                "requestBody": secret,
                "responses": {"200": ok("the secret without its value"), "404": ok("there is none"), "default": refusal}},
            "delete": {"summary": "Delete a secret (operators)", "parameters": [query("tenant", "the operator's when left out")],
                "responses": {"200": ok("what was known of it"), "404": ok("there is none"), "default": refusal}}},
        "/v1/secret-keys/renew": {"post": {"summary": "Seal every secret with a new key (operators)",
            "responses": {"200": ok("how many"), "default": refusal}}},
    })
}

pub(super) fn components() -> Value {
    json!({"schemas": {
        "NewSecret": {
            "type": "object",
            "required": ["value"],
            "additionalProperties": false,
            "properties": {
                "name": {"type": "string", "description": "parts joined by `/`; in the address when a value is replaced"},
                "value": {"type": "string", "writeOnly": true},
                "tenant": {"type": "string"},
                "ttl_seconds": {"type": "integer", "minimum": 1},
            },
        },
        "Decision": {
            "type": "object",
            "additionalProperties": false,
            "properties": {"tools": {"type": "array", "items": {
                "type": "object",
                "required": ["tool"],
                "additionalProperties": false,
                "properties": {"tool": {"type": "string"},
                    "digest": {"type": "string", "description": "only the definition of this digest, as shown"}},
            }}},
        },
    }})
}
