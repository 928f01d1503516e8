//! The MCP server that every proxy of the `upstream` case stands in front of: one tool, over standard input and output,
//! as little work as can be.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

/// Serves until its input ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let message: Value = serde_json::from_str(&line)?;
        let Some(id) = message.get("id") else { continue };
        let answer = match message["method"].as_str() {
            Some(method) => answer(method, &message["params"]),
            None => continue,
        };
        let mut answer = answer;
        answer["jsonrpc"] = "2.0".into();
        answer["id"] = id.clone();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
}

fn answer(method: &str, params: &Value) -> Value {
    match method {
        "initialize" => json!({"result": {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "echo", "version": "1"},
        }}),
        "ping" => json!({"result": {}}),
        "tools/list" => json!({"result": {"tools": [{
            "name": "echo",
            "description": "Gives back the text.",
            "inputSchema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
            },
            "annotations": {"readOnlyHint": true},
        }]}}),
        "tools/call" => json!({"result": {
            "content": [{"type": "text", "text": params["arguments"]["text"]}],
        }}),
        _ => json!({"error": {"code": -32601, "message": "no such method"}}),
    }
}
