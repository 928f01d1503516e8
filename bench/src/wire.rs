//! Requests as bytes, made before the clock runs.

use std::net::SocketAddr;

use serde_json::{Value, json};

const VERSION: &str = "2026-07-28";

/// A `tools/call` of the newest MCP revision.
pub(crate) fn mcp_call(address: SocketAddr, token: &str, tool: &str, arguments: &Value) -> Vec<u8> {
    let body = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": VERSION,
                "io.modelcontextprotocol/clientInfo": {"name": "aegis-bench", "version": "0.1.0"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    let headers = format!(
        "accept: application/json, text/event-stream\r\nmcp-protocol-version: {VERSION}\r\nmcp-method: tools/call\r\n\
         mcp-name: {tool}\r\n"
    );
    post(address, "/mcp", Some(token), &headers, &body.to_string())
}

/// A call over plain HTTP.
pub(crate) fn rest_call(address: SocketAddr, token: &str, tool: &str, arguments: &Value) -> Vec<u8> {
    post(address, &format!("/v1/tools/{tool}"), Some(token), "", &arguments.to_string())
}

/// `headers` are whole lines; `body` is JSON.
pub(crate) fn post(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    headers: &str,
    body: &str,
) -> Vec<u8> {
    let credential = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\n{credential}content-type: application/json\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
