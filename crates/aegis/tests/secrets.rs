//! A secret goes to the server that needs it, and stands nowhere that anybody else could look.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{io::BufRead, path::Path, process::Output};

use common::{TestNode, text, wait_until};
use serde_json::{Value, json};

const LEAKY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/upstream/leaky.py");
/// Looks like nothing else.
const VALUE: &str = "zq7-Unmistakable/Secret+9f3a";
const NEXT: &str = "Another-Unmistakable-Value-41c07e";

fn feed(node: &TestNode, arguments: &[&str], value: &str) -> Output {
    let output = node.feed(arguments, value);
    assert!(output.status.success(), "{}", text(&output.stderr));
    output
}

/// All but the last digits, which depend on what follows.
fn base32(text: &str) -> String {
    let bits: Vec<u8> = text.bytes().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let digit = |bits: &[u8]| {
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[bits.iter().fold(0, |all, bit| all << 1 | usize::from(*bit))]
    };
    bits.chunks_exact(5).map(|bits| char::from(digit(bits))).collect()
}

/// The forms in which a secret might be written.
fn forms(secret: &str) -> Vec<String> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    // In the middle of a longer text, base64 has one of three faces; the ends depend on the neighbours.
    let faces = (0..3).map(|before| {
        let whole = STANDARD.encode(format!("{}{secret}", "x".repeat(before)));
        whole[4..whole.len() - 4].to_owned()
    });
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url = secret.replace('/', "%2F").replace('+', "%2B");
    let escaped: String = secret.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    let percent: String = secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
    faces.chain([secret.to_owned(), hex, url, escaped, percent, base32(secret)]).collect()
}

/// Everything that was shown to somebody, by where.
#[derive(Default)]
struct Shown(Vec<(String, String)>);

impl Shown {
    fn add(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    fn cli(&mut self, node: &TestNode, arguments: &[&str]) {
        let output = node.cli(arguments);
        let both = format!("{}{}", text(&output.stdout), text(&output.stderr));
        self.add(arguments.join(" "), both);
    }

    fn holds_none_of(&self, secrets: &[&str]) {
        for (place, text) in &self.0 {
            for form in secrets.iter().flat_map(|secret| forms(secret)) {
                assert!(!text.contains(&form), "`{form}` stands in: {place}\n{text}");
            }
        }
    }
}

/// Every file below a directory that holds one of these bytes.
fn files_with(directory: &Path, forms: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, forms));
        } else if let Ok(bytes) = std::fs::read(&path) {
            let holds = |form: &String| bytes.windows(form.len()).any(|window| window == form.as_bytes());
            found.extend(
                forms.iter().find(|form| holds(form)).map(|form| format!("{}: {form}", path.display())),
            );
        }
    }
    found
}

/// The command lines of the node and all that it started.
fn command_lines(pid: u32) -> String {
    let mut all = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    for task in tasks.flatten() {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            all += &command_lines(child.parse().unwrap());
        }
    }
    all
}

fn running(node: &TestNode, server: &str) -> bool {
    let found = node.request("GET", &format!("/v1/upstreams/{server}"), Some(&node.token), None).json();
    found["status"]["state"] == "running"
}

#[test]
fn a_secret_stands_nowhere_but_with_its_server() {
    let node = TestNode::with_config(&format!(
        "  security_contexts: [{{name: agents, capabilities: [{{tool_pattern: 'leaky.*'}}, {{tool_pattern: 'aegis.tools.*'}}]}}]\n  \
           mcp_servers:\n    - name: leaky\n      executable: python3\n      args: [{LEAKY}]\n      \
           environment: {{LEAKY_DESCRIBES: 'yes'}}\n      credentials: {{LEAKY_SECRET: 'secret:leaky/key'}}"
    ));
    let mut shown = Shown::default();
    // Before there is one, everybody is told what is missing.
    wait_until(|| {
        let found = node.request("GET", "/v1/upstreams/leaky", Some(&node.token), None).json();
        found["status"]["reason"].as_str().is_some_and(|reason| reason.contains("aegis secret set leaky/key"))
    });
    shown.cli(&node, &["doctor"]);
    let set = feed(&node, &["secret", "set", "leaky/key", "--json"], &format!("{VALUE}\n"));
    shown.add("secret set", text(&set.stdout) + &text(&set.stderr));
    wait_until(|| running(&node, "leaky"));

    let agent = node.make_token("agents");
    // The server has it.
    wait_until(|| node.call_as(&agent, "leaky.length", json!({})).body.contains(&VALUE.len().to_string()));
    for token in [&agent, &node.token] {
        for tool in ["leaky.tell", "leaky.fail", "leaky.described", "leaky.missing"] {
            let answer = node.call_as(token, tool, json!({}));
            shown.add(tool, answer.head + &answer.body);
        }
        for tool in ["aegis.tools.list", "aegis.tools.search", "aegis.system.config", "aegis.system.info"] {
            let arguments = if tool == "aegis.tools.search" { json!({"query": "key"}) } else { json!({}) };
            shown.add(tool, node.call_as(token, tool, arguments).body);
        }
        shown.add("/v1/tools", node.request("GET", "/v1/tools", Some(token), None).body);
        shown.add(
            "/v1/tools/leaky.tell",
            node.request("GET", "/v1/tools/leaky.described", Some(token), None).body,
        );
    }
    let told = node.call_as(&agent, "leaky.tell", json!({}));
    assert!(told.body.contains("[redacted]"), "it was taken out, not kept back: {}", told.body);
    let listed = mcp(&node, &agent, "tools/list", &json!({}));
    assert!(listed.contains("leaky"), "{listed}");
    shown.add("MCP tools/list", listed);
    shown.add(
        "MCP tools/call",
        mcp(&node, &agent, "tools/call", &json!({"name": "leaky.tell", "arguments": {}})),
    );

    look_everywhere(&node, &mut shown);

    // Another value: the server gets it, the old one is gone.
    let rotated = feed(&node, &["secret", "rotate", "leaky/key"], NEXT);
    shown.add("secret rotate", text(&rotated.stdout) + &text(&rotated.stderr));
    wait_until(|| {
        let length = node.call_as(&agent, "leaky.length", json!({}));
        length.status == 200 && length.body.contains(&NEXT.len().to_string())
    });
    shown.add("leaky.tell", node.call_as(&agent, "leaky.tell", json!({})).body);
    look_everywhere(&node, &mut shown);
    shown.cli(&node, &["secret", "renew-key"]);
    shown.cli(&node, &["secret", "delete", "leaky/key"]);

    shown.add("the log", node.log());
    shown.add("command lines", command_lines(node.pid()));
    shown.holds_none_of(&[VALUE, NEXT]);
    let both: Vec<String> = [VALUE, NEXT].iter().flat_map(|secret| forms(secret)).collect();
    assert_eq!(files_with(node.dir.path(), &both), Vec::<String>::new());
    let (_, dir) = node.stop();
    assert_eq!(files_with(dir.path(), &both), Vec::<String>::new());
}

fn mcp(node: &TestNode, token: &str, method: &str, params: &Value) -> String {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let mut headers = vec![
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", method),
    ];
    if !name.is_empty() {
        headers.push(("mcp-name", &name));
    }
    node.raw("POST", "/mcp", Some(token), &headers, body.as_bytes()).body
}

/// Whatever an operator, or monitoring, can read.
fn look_everywhere(node: &TestNode, shown: &mut Shown) {
    for path in [
        "/v1/upstreams",
        "/v1/upstreams/leaky",
        "/v1/upstreams/leaky/logs",
        "/v1/upstreams/leaky/diff",
        "/v1/secrets",
        "/v1/contexts",
        "/v1/policies",
        "/v1/status",
        "/metrics",
        "/readyz",
        "/openapi.json",
    ] {
        let answer = node.request("GET", path, Some(&node.token), None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        shown.add(path, answer.body);
    }
    let tested = node.request("POST", "/v1/upstreams/leaky/test", Some(&node.token), None);
    assert_eq!(tested.json()["works"], true, "{}", tested.body);
    shown.add("/v1/upstreams/leaky/test", tested.body);
    for arguments in [
        &["upstream", "list"][..],
        &["upstream", "show", "leaky"],
        &["upstream", "logs", "leaky"],
        &["upstream", "logs", "leaky", "--json"],
        &["upstream", "test", "leaky"],
        &["upstream", "diff", "leaky"],
        &["secret", "list"],
        &["secret", "list", "--json"],
        &["config", "show"],
        &["tools", "list", "--json"],
        &["tools", "show", "leaky.described"],
        &["audit", "tail", "--limit", "1000", "--json"],
        &["audit", "export", "-"],
        &["doctor", "--json"],
    ] {
        shown.cli(node, arguments);
    }
    let logged = node.request("GET", "/v1/upstreams/leaky/logs", Some(&node.token), None).body;
    assert!(logged.contains("starting with [redacted]"), "its own words are kept: {logged}");
}

#[test]
fn values_go_in_by_the_front_door_only() {
    let node = TestNode::start();
    let agent = node.make_token("workspace");
    for (method, path) in [
        ("GET", "/v1/secrets"),
        ("POST", "/v1/secrets"),
        ("PUT", "/v1/secrets/a"),
        ("DELETE", "/v1/secrets/a"),
        ("POST", "/v1/secret-keys/renew"),
        ("GET", "/v1/upstreams"),
        ("POST", "/v1/upstreams"),
        ("POST", "/v1/upstreams/test"),
        ("GET", "/v1/upstreams/a/logs"),
        ("POST", "/v1/upstreams/a/accept"),
    ] {
        let refused = node.request(method, path, Some(&agent), Some(&json!({"name": "a", "value": VALUE})));
        assert_eq!((refused.status, refused.violation().as_str()), (403, "OperatorOnly"), "{method} {path}");
        assert_eq!(node.request(method, path, None, None).status, 401, "{method} {path}");
    }
    let post = |body: Value| node.request("POST", "/v1/secrets", Some(&node.token), Some(&body));
    assert_eq!(post(json!({"name": "a/b", "value": VALUE})).status, 201);
    assert_eq!(post(json!({"name": "a/b", "value": VALUE})).status, 409);
    for bad in [
        json!({"name": "../x", "value": "v"}),
        json!({"name": "x"}),
        json!({"name": "x", "value": ""}),
        json!([VALUE]),
    ] {
        let refused = post(bad);
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(!refused.body.contains(VALUE));
    }
    let put = |path: &str| {
        node.request("PUT", path, Some(&node.token), Some(&json!({"value": NEXT, "ttl_seconds": 60})))
    };
    assert_eq!(put("/v1/secrets/a/b").json()["version"], 2);
    assert_eq!(put("/v1/secrets/a/c").status, 404);
    let deleted = node.request("DELETE", "/v1/secrets/a/b", Some(&node.token), None);
    assert_eq!(deleted.status, 200, "{}", deleted.body);
    assert_eq!(node.request("DELETE", "/v1/secrets/a/b", Some(&node.token), None).status, 404);
    let actions: Vec<String> = node
        .records()
        .iter()
        .filter_map(|record| record["entry"]["action"].as_str().map(str::to_owned))
        .filter(|action| action.starts_with("secret"))
        .collect();
    assert_eq!(
        actions,
        ["secret-set", "secret-rotated", "secret-rotated", "secret-deleted", "secret-deleted"]
    );
    // No argument of the command line could ever hold a value.
    let usage = node.cli(&["secret", "set", "a/b", VALUE]);
    assert_eq!(usage.status.code(), Some(2));
    let empty = node.cli(&["secret", "set", "a/b"]);
    assert!(text(&empty.stderr).contains("empty"), "{}", text(&empty.stderr));
}

/// Whatever is wrong with a call, the words for it repeat a part of the call: to whoever made it, and to nobody later.
#[test]
fn what_is_kept_of_refused_calls_has_no_secrets_in_it() {
    let node = TestNode::start();
    let agent = node.make_token("workspace");
    let mut events = node.subscribe();
    let named = format!("token={NEXT}");
    let mut told = String::new();
    for (tool, arguments) in [
        ("fs.read", json!({"path": format!("/etc/{named}")})),
        ("fs.read", json!({"path": format!("/workspace/../../x?{named}")})),
        ("fs.read", json!({"path": format!("/workspace/{named}")})),
        ("fs.write", json!({"path": format!("/workspace/{named}"), "content": "x"})),
        ("fs.read", json!({"path": format!("/workspace/{named}")})),
        ("fs.read", json!({"path": "/workspace/a", (named.as_str()): 1})),
        ("web.fetch", json!({"url": format!("https://ann:{NEXT}@127.0.0.1/?api_key={NEXT}")})),
        ("cmd.run", json!({"command": named, "args": []})),
        (named.as_str(), json!({})),
    ] {
        told += &node.call_as(&agent, tool, arguments).body;
    }
    told += &mcp(&node, &agent, "tools/call", &json!({"name": named, "arguments": {named.as_str(): 1}}));
    assert!(told.matches(NEXT).count() >= 5, "whoever asks is told of its own words: {told}");
    node.call_as(&agent, "fs.read", json!({"path": "/etc/the-last-of-them"}));

    let mut shown = Shown::default();
    let mut feed = String::new();
    while !feed.contains("the-last-of-them") {
        assert_ne!(events.read_line(&mut feed).unwrap(), 0, "{feed}");
    }
    assert!(feed.contains("/etc/token=[redacted]"), "{feed}");
    shown.add("/v1/events", feed);
    shown.cli(&node, &["audit", "tail", "--limit", "1000", "--json"]);
    shown.cli(&node, &["audit", "export", "-"]);
    let export = &shown.0.last().unwrap().1;
    assert!(export.contains("there is no tool called `token=[redacted]"), "{export}");
    shown.add("/metrics", node.request("GET", "/metrics", Some(&node.token), None).body);
    shown.add("the log", node.log());
    shown.holds_none_of(&[NEXT]);
    assert_eq!(files_with(&node.data(), &forms(NEXT)), Vec::<String>::new());
}
