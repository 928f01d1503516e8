//! `/mcp?mode=…`: a filter of lists, never a right.

use serde_json::{Value, json};

use crate::common::{Answer, TestNode};

fn mcp(node: &TestNode, token: &str, query: &str, method: &str, params: &Value) -> Answer {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let headers = [("content-type", "application/json"), ("mcp-protocol-version", "2025-11-25")];
    node.raw("POST", &format!("/mcp{query}"), Some(token), &headers, body.as_bytes())
}

fn listed(node: &TestNode, token: &str, query: &str) -> Vec<String> {
    let answer = mcp(node, token, query, "tools/list", &json!({}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let tools = answer.json()["result"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_mode_filters_the_list() {
    let node = TestNode::start();
    let operator = node.token.clone();
    let everything = listed(&node, &operator, "");
    assert!(!everything.contains(&"zaru.switch_mode".to_owned()), "it belongs to modes");
    assert_eq!(listed(&node, &operator, "?mode=chat"), ["zaru.switch_mode"]);
    assert_eq!(
        listed(&node, &operator, "?mode=agentic"),
        ["aegis.tools.list", "aegis.tools.search", "zaru.switch_mode"]
    );
    assert_eq!(
        listed(&node, &operator, "?mode=architect"),
        ["aegis.schema.get", "aegis.schema.validate", "zaru.switch_mode"]
    );
    assert_eq!(listed(&node, &operator, "?mode=execute"), ["zaru.switch_mode"]);
    assert_eq!(listed(&node, &operator, "?mode=operator").len(), everything.len() + 1);
    assert_eq!(listed(&node, &operator, "?names=plain&mode=chat"), ["zaru_switch_mode"]);
    for unknown in ["?mode=", "?mode=Chat", "?mode=root"] {
        let answer = mcp(&node, &operator, unknown, "tools/list", &json!({}));
        assert_eq!(answer.status, 400, "{}", answer.body);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("chat, agentic, architect, operator, execute"), "{message}");
    }
}

#[test]
fn a_mode_gives_and_takes_no_right() {
    let node = TestNode::start();
    let free = node.make_token("zaru-free");
    let everything = listed(&node, &free, "?mode=operator");
    assert!(everything.contains(&"fs.read".to_owned()) && !everything.contains(&"fs.delete".to_owned()));
    let call = |token: &str, query: &str, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments});
        mcp(&node, token, query, "tools/call", &params).json()
    };
    // Not in the mode's list, and called all the same, because policy lets it.
    let listing = call(&free, "?mode=chat", "fs.list", json!({"path": "/workspace"}));
    assert_eq!(listing["result"]["isError"], false, "{listing}");
    // In the mode's list or not: policy does not let it.
    let denied = call(&free, "?mode=operator", "fs.delete", json!({"path": "a"}));
    assert_eq!(denied["error"]["data"]["violation"], "ToolNotAllowed", "{denied}");
    let offer = json!({"target_mode": "agentic", "reason": "An agent is needed."});
    let offered = call(&free, "?mode=chat", "zaru.switch_mode", offer);
    assert_eq!(
        offered["result"]["structuredContent"],
        json!({"action": "mode_switch_requested", "target_mode": "agentic", "reason": "An agent is needed."})
    );
    let unknown =
        call(&free, "?mode=chat", "zaru.switch_mode", json!({"target_mode": "root", "reason": "x"}));
    assert_eq!(unknown["result"]["isError"], true, "{unknown}");
}
