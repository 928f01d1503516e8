//! Hostile and clumsy input against a running node: each gets a clear error, and the node goes on.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use common::{TestNode, cli, data, text, wait_until, write_config};
use serde_json::{Value, json};

/// One line per case: tool, arguments, status, violation, words that the message must have.
#[test]
fn arguments_and_paths() {
    let node = TestNode::start();
    let long = "a/".repeat(32 * 1024);
    let component = "x".repeat(300);
    let cases: Vec<(&str, Value, u16, &str, &str)> = vec![
        ("fs.raed", json!({}), 403, "ToolNotFound", "fs.raed"),
        ("no such", json!({}), 403, "ToolNotFound", "no such"),
        (
            "fs.read",
            json!({}),
            422,
            "InvalidArguments",
            "required field 'path' is missing or null for tool 'fs.read'",
        ),
        ("fs.read", json!({"path": null}), 422, "InvalidArguments", "missing or null"),
        ("fs.read", json!({"path": 7}), 422, "InvalidArguments", "must be of type string, not a number"),
        ("fs.read", json!({"path": ["a"]}), 422, "InvalidArguments", "not an array"),
        ("fs.read", json!({"path": ""}), 422, "InvalidArguments", "must not be empty"),
        ("fs.read", json!({"pth": "a"}), 422, "InvalidArguments", "`pth` is unknown"),
        ("fs.read", json!({"path": "a", "mode": "rw"}), 422, "InvalidArguments", "unknown field 'mode'"),
        (
            "fs.delete",
            json!({"path": "a", "recursive": "yes"}),
            422,
            "InvalidArguments",
            "must be of type boolean",
        ),
        ("web.search", json!({"query": "x", "max_results": 0}), 422, "InvalidArguments", "at least 1"),
        ("web.search", json!({"query": "x", "max_results": 1e30}), 422, "InvalidArguments", "max_results"),
        ("fs.read", json!({"path": "a\u{0}b"}), 422, "InvalidArguments", "NUL"),
        ("fs.read", json!({"path": long}), 422, "InvalidArguments", "4096 is the limit"),
        ("fs.read", json!({"path": component}), 422, "InvalidArguments", "255 is the limit"),
        ("fs.read", json!({"path": ".."}), 403, "PathTraversalAttempt", ".."),
        ("fs.read", json!({"path": "/workspace/../etc/passwd"}), 403, "PathTraversalAttempt", ".."),
        ("fs.read", json!({"path": "a/./../../b"}), 403, "PathTraversalAttempt", ".."),
        ("fs.write", json!({"path": "x/..", "content": ""}), 403, "PathTraversalAttempt", ".."),
        ("fs.glob", json!({"path": "../..", "pattern": "*"}), 403, "PathTraversalAttempt", ".."),
        ("web.fetch", json!({"url": "file:///etc/passwd"}), 422, "InvalidArguments", "http or https"),
        ("web.fetch", json!({"url": "http://"}), 422, "InvalidArguments", "url"),
        ("web.fetch", json!({"url": "not a url"}), 422, "InvalidArguments", "url"),
        (
            "aegis.schema.validate",
            json!({"kind": "pod", "manifest_yaml": "x"}),
            422,
            "InvalidArguments",
            "one of",
        ),
    ];
    for (tool, arguments, status, violation, words) in cases {
        let tool = tool.replace(' ', "%20");
        let answer = node.call(&tool, arguments.clone());
        assert_eq!(answer.status, status, "{tool} {arguments}: {}", answer.body);
        assert_eq!(answer.violation(), violation, "{tool}: {}", answer.body);
        let message = answer.json()["error"]["message"].as_str().unwrap().replace("%20", " ");
        assert!(message.contains(words), "{tool}: {message}");
        assert!(message.len() < 1000, "{tool}: a message of {} bytes", message.len());
    }
    let refused = node.records().iter().filter(|r| r["entry"]["result"]["status"] == "refused").count();
    assert_eq!(refused, 24, "each refused call has its record");
}

/// Arguments that are huge in a way no single limit catches still leave their record.
#[test]
fn bulky_arguments_are_recorded() {
    let node = TestNode::start();
    let row = json!(vec!["x".repeat(250); 64]);
    let bulk = json!({"a": vec![row.clone(); 64], "b": vec![row.clone(); 64], "c": vec![row; 64]});
    assert_eq!(
        node.call("aegis.tools.list", bulk.clone()).status,
        200,
        "unknown arguments are let through here"
    );
    assert_eq!(node.call("no.such.tool", bulk).violation(), "ToolNotFound");
    let scheme = node.call("web.fetch", json!({"url": format!("{}://x", "a".repeat(2_000_000))}));
    assert_eq!(scheme.violation(), "InvalidArguments");
    let members: serde_json::Map<String, Value> = (0..20_000).map(|n| (format!("m{n}"), json!(1))).collect();
    let edit = node.call("fs.multi_edit", json!({"path": "a", "edits": [members]}));
    assert_eq!(edit.violation(), "InvalidArguments");
    assert!(edit.body.len() < 4096, "{} bytes", edit.body.len());
    let calls = node.records().iter().filter(|record| record["entry"]["entry"] == "call").count();
    assert_eq!(calls, 4);
}

/// Ten thousand edits of a large file would keep a core busy long after the caller has gone.
#[test]
fn edits_are_counted() {
    let node = TestNode::start();
    node.call("fs.write", json!({"path": "a", "content": "x"}));
    let edits = vec![json!({"target_content": "x", "replacement_content": "x"}); 1001];
    let answer = node.call("fs.multi_edit", json!({"path": "a", "edits": edits}));
    assert_eq!(answer.violation(), "InvalidArguments", "{}", answer.body);
    assert!(answer.body.contains("at most 1000 items"), "{}", answer.body);
}

/// Spellings of a parent directory that are no parent directory here: they name files that don't exist.
#[test]
fn other_spellings_of_dots_stay_inside() {
    let node = TestNode::start();
    for path in [
        "%2e%2e/etc/passwd",
        "..\\..\\etc",
        "．．/etc",
        ". ./x",
        "...",
        "..%00/x",
        "..;/x",
        "/workspace/%2e%2e",
    ] {
        let answer = node.call("fs.read", json!({"path": path}));
        assert_eq!(answer.status, 422, "{path}: {}", answer.body);
        assert_eq!(answer.result()["error_kind"], "NOT_FOUND", "{path}: {}", answer.body);
    }
    let answer = node.call("fs.read", json!({"path": "/etc/passwd"}));
    assert_ne!(answer.status, 200);
    assert!(!answer.body.contains("root:"), "{}", answer.body);
}

#[test]
fn bodies_that_are_no_arguments() {
    let node = TestNode::with_config("  network: {max_body: 64Ki}");
    let post = |body: &[u8]| node.raw("POST", "/v1/tools/fs.read", Some(&node.token), &[], body);
    for body in [
        &b"{"[..],
        b"[]",
        b"\"x\"",
        b"null",
        b"\xff\xfe",
        b"{\"path\": \"\xff\"}",
        b"{\"path\": \"\\ud800\"}",
        b"{\"path\": \"a\", \"path\": \"b\"}",
        b"{\"path\": \"a\", \"x\": {\"y\": 1, \"\\u0079\": 2}}",
    ] {
        let answer = post(body);
        assert_eq!(answer.status, 400, "{}: {}", text(body), answer.body);
        assert_eq!(answer.violation(), "MalformedRequest");
    }
    let deep = format!("{{\"path\": {}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    assert_eq!(post(deep.as_bytes()).status, 400);
    let large = post(&vec![b' '; 100_000]);
    assert_eq!((large.status, large.violation().as_str()), (413, "RequestTooLarge"));
    assert_eq!(post(b"").violation(), "InvalidArguments", "an empty body is an empty object");
    assert_eq!(node.call("fs.list", json!({"path": "/workspace"})).status, 200);
}

/// Refusals that come from the HTTP layer itself look like all others.
#[test]
fn addresses_that_are_not_quite_right() {
    let node = TestNode::start();
    for (method, path, status, words) in [
        ("PATCH", "/v1/tools/fs.read", 405, "PATCH is not possible here"),
        ("DELETE", "/v1/status", 405, "DELETE is not possible here"),
        ("POST", "/healthz", 405, "POST is not possible here"),
        ("GET", "/v1/tools/%ff", 400, "UTF-8"),
        ("GET", "/v1/tokens?limit=many", 400, "limit"),
        ("GET", "/v1/nothing", 404, "there is nothing at `/v1/nothing`"),
    ] {
        let answer = node.request(method, path, Some(&node.token), None);
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.body);
        assert_eq!(answer.violation(), "MalformedRequest", "{method} {path}: {}", answer.body);
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(words), "{method} {path}: {message}");
        assert_eq!(answer.header("allow").is_some(), status == 405, "{}", answer.head);
    }
    let unknown = node.request("DELETE", "/v1/tokens/none", Some(&node.token), None);
    assert_eq!((unknown.status, unknown.violation().as_str()), (404, "UnknownName"));
}

#[test]
fn a_chunked_body_over_the_limit_is_cut_off() {
    let node = TestNode::with_config("  network: {max_body: 64Ki}");
    let mut stream = TcpStream::connect(&node.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    write!(
        stream,
        "POST /v1/tools/fs.read HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ntransfer-encoding: chunked\r\n\r\n",
        node.address, node.token
    )
    .unwrap();
    let chunk = vec![b' '; 16 * 1024];
    for _ in 0..64 {
        if write!(stream, "{:x}\r\n", chunk.len()).and_then(|()| stream.write_all(&chunk)).is_err() {
            break;
        }
        let _ = stream.write_all(b"\r\n");
    }
    let mut answer = [0; 64];
    let count = stream.read(&mut answer).unwrap();
    assert!(text(&answer[..count]).starts_with("HTTP/1.1 413"), "{}", text(&answer[..count]));
}

#[test]
fn half_sent_requests_and_disconnects_leave_the_node_well() {
    let node = TestNode::start();
    for head in [
        "POST /v1/tools/fs.write HTTP/1.1\r\n".to_owned(),
        format!(
            "POST /v1/tools/fs.write HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-length: 1000\r\n\r\n{{\"path\"",
            node.address, node.token
        ),
        "\x16\x03\x01\x02\x00garbage".to_owned(),
    ] {
        let mut stream = TcpStream::connect(&node.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
    }
    // A caller that leaves before its answer: the call goes on, and its record says what it did.
    let body = json!({"path": "left.txt", "content": "x"}).to_string();
    let mut stream = TcpStream::connect(&node.address).unwrap();
    write!(
        stream,
        "POST /v1/tools/fs.write HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        node.address,
        node.token,
        body.len()
    )
    .unwrap();
    drop(stream);
    assert_eq!(node.call("fs.list", json!({"path": "/workspace"})).status, 200);
    let address = node.address.clone();
    let (code, dir) = node.stop();
    assert_eq!(code, Some(0), "SIGTERM drains and exits 0");
    assert!(TcpStream::connect(address).is_err());
    let written = data(dir.path()).join("volumes/local/workspace/left.txt").exists();
    let recorded = common::records(&data(dir.path()))
        .iter()
        .any(|record| record["entry"]["tool"] == "fs.write" && record["entry"]["result"]["status"] == "done");
    assert_eq!(written, recorded, "an effect and its record go together");
}

#[test]
fn credentials() {
    let node = TestNode::start();
    let call =
        |token: Option<&str>| node.request("POST", "/v1/tools/fs.list", token, Some(&json!({"path": "."})));
    for token in [None, Some(""), Some("x"), Some("aegis_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")] {
        let answer = call(token);
        assert_eq!((answer.status, answer.violation().as_str()), (401, "Unauthenticated"), "{token:?}");
        assert!(answer.header("www-authenticate").is_some_and(|value| value.starts_with("Bearer")));
    }
    for path in ["/v1/tools", "/v1/events", "/v1/tokens", "/metrics", "/v1/status", "/mcp"] {
        let status = node.request("GET", path, None, None).status;
        assert!(matches!(status, 401 | 405), "{path} answers {status} without a credential");
    }
    let made = node.request(
        "POST",
        "/v1/tokens",
        Some(&node.token),
        Some(&json!({"context": "workspace", "note": "test"})),
    );
    let (token, id) =
        (made.json()["token"].as_str().unwrap().to_owned(), made.json()["id"].as_str().unwrap().to_owned());
    assert_eq!(call(Some(&token)).status, 200);
    // A user's token opens nothing of the operator's, and can't choose its context.
    assert_eq!(node.request("GET", "/v1/tokens", Some(&token), None).violation(), "OperatorOnly");
    assert_eq!(node.call_as(&token, "aegis.system.info", json!({})).violation(), "ToolNotAllowed");
    let chosen = node.raw(
        "POST",
        "/v1/tools/aegis.system.info",
        Some(&token),
        &[("aegis-context", "aegis-system-operator")],
        b"{}",
    );
    assert_eq!(chosen.violation(), "OperatorOnly");
    // Tenant, tier and context in the arguments are just unknown arguments.
    let forged =
        node.call_as(&token, "fs.list", json!({"path": ".", "tier": "operator", "tenant_id": "other"}));
    assert_eq!(forged.violation(), "InvalidArguments");
    assert_eq!(node.request("DELETE", &format!("/v1/tokens/{id}"), Some(&node.token), None).status, 200);
    assert_eq!(call(Some(&token)).violation(), "CredentialRevoked");
    let brief = node.request(
        "POST",
        "/v1/tokens",
        Some(&node.token),
        Some(&json!({"context": "workspace", "ttl_seconds": 1})),
    );
    let brief = brief.json()["token"].as_str().unwrap().to_owned();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(call(Some(&brief)).violation(), "CredentialExpired");
    // No secret shows up anywhere.
    let list = node.request("GET", "/v1/tokens", Some(&node.token), None).body;
    let everything = format!("{list}{}{:?}", node.log(), node.records());
    assert!(!everything.contains(&token) && !everything.contains(&node.token));
}

#[test]
fn hosts_and_origins() {
    let node = TestNode::start();
    let ask = |headers: &[(&str, &str)]| {
        let mut stream = TcpStream::connect(&node.address).unwrap();
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(stream, "GET /healthz HTTP/1.1\r\n{lines}connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    assert_eq!(ask(&[("host", "localhost:8088")]), 200);
    assert_eq!(ask(&[("host", "[::1]:1")]), 200);
    assert_eq!(ask(&[("host", "evil.example")]), 403);
    assert_eq!(ask(&[("host", "[::1]evil.example")]), 403);
    assert_eq!(ask(&[("host", "[::1")]), 403);
    assert_eq!(ask(&[("host", "localhost"), ("host", "evil.example")]), 400);
    assert_eq!(ask(&[("host", "127.0.0.1.evil.example")]), 403);
    assert_eq!(ask(&[("host", "localhost"), ("origin", "https://evil.example")]), 403);
    assert_eq!(ask(&[("host", "localhost"), ("origin", "null")]), 403);
    assert_eq!(ask(&[("host", "localhost"), ("origin", "http://localhost:3000")]), 200);
}

#[test]
fn a_bad_configuration_keeps_the_old_one() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let context =
        |tools: &str| format!("  security_contexts:\n    - {{name: small, capabilities: [{tools}]}}");
    write_config(dir.path(), &context("{tool_pattern: fs.list}"));
    let node = TestNode::on(Arc::clone(&dir));
    let token = node.make_token("small");
    let list = || node.call_as(&token, "fs.list", json!({"path": "."})).status;
    let read = || node.call_as(&token, "fs.read", json!({"path": "x"})).violation();
    assert_eq!(list(), 200);
    assert_eq!(read(), "ToolNotAllowed");

    write_config(dir.path(), &context("{tool_patern: fs.list}"));
    wait_until(|| node.log().contains("did you mean `tool_pattern`"));
    assert!(node.log().contains("kept the old configuration"), "{}", node.log());
    assert_eq!(list(), 200);

    write_config(dir.path(), &context("{tool_pattern: fs.list}, {tool_pattern: fs.read}"));
    wait_until(|| read().is_empty());
    assert_eq!(list(), 200);
}

#[test]
fn a_start_that_must_not_happen() {
    let node = TestNode::start();
    let data = node.data();
    let second = cli(&data, &["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains(&format!("process {}", node.pid())), "{}", text(&second.stderr));

    let open = cli(&data, &["up", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(1));
    assert!(text(&open.stderr).contains("TLS"), "{}", text(&open.stderr));

    let (_, dir) = node.stop();
    std::fs::write(data.join("VERSION"), "999\n").unwrap();
    let newer = cli(&data, &["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(newer.status.code(), Some(1));
    assert!(text(&newer.stderr).contains("newer"), "{}", text(&newer.stderr));

    std::fs::write(data.join("VERSION"), "1\n").unwrap();
    std::fs::write(dir.path().join("config.yaml"), "kind: [").unwrap();
    let bad = TestNode::try_on(dir).err().unwrap();
    assert!(bad.contains("config.yaml"), "{bad}");
}

#[test]
fn limits_of_a_context() {
    let node = TestNode::with_config(
        "  security_contexts:\n    - name: tight\n      capabilities:\n        \
         - {tool_pattern: fs.list, path_allowlist: [/workspace/a], rate_limit: {calls: 3, per_seconds: 3600}}\n        \
         - {tool_pattern: fs.read, max_response_size: 200}\n        \
         - {tool_pattern: web.fetch, domain_allowlist: [example.org]}\n        \
         - {tool_pattern: fs.write}\n      deny_list: [\"fs.write:/workspace/keys\", fs.delete]",
    );
    let token = node.make_token("tight");
    node.call("fs.write", json!({"path": "a/long.txt", "content": "x".repeat(500)}));
    let call = |tool: &str, arguments: Value| node.call_as(&token, tool, arguments);
    assert_eq!(call("fs.list", json!({"path": "/workspace"})).violation(), "PathOutsideBoundary");
    assert_eq!(call("fs.list", json!({"path": "/workspace/ab"})).violation(), "PathOutsideBoundary");
    for _ in 0..3 {
        assert_eq!(call("fs.list", json!({"path": "a"})).status, 200);
    }
    // A new credential of the same user is no new budget.
    let again = node.make_token("tight");
    for token in [&token, &again] {
        let answer = node.call_as(token, "fs.list", json!({"path": "a"}));
        assert_eq!(answer.violation(), "RateLimitExceeded");
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(call("fs.read", json!({"path": "a/long.txt"})).violation(), "OutputSizeLimitExceeded");
    assert_eq!(call("web.fetch", json!({"url": "http://evilexample.org/"})).violation(), "DomainNotAllowed");
    assert_eq!(
        call("web.fetch", json!({"url": "http://example.org.evil.com/"})).violation(),
        "DomainNotAllowed"
    );
    assert_eq!(
        call("fs.write", json!({"path": "keys/x", "content": ""})).violation(),
        "ToolExplicitlyDenied"
    );
    assert_eq!(
        call("fs.write", json!({"path": "./keys//x", "content": ""})).violation(),
        "ToolExplicitlyDenied"
    );
    assert_eq!(call("fs.write", json!({"path": "keysx", "content": ""})).status, 200);
    assert_eq!(call("fs.delete", json!({"path": "a"})).violation(), "ToolNotAllowed");
    // What it may not call it does not see.
    let listed = node.request("GET", "/v1/tools", Some(&token), None).json();
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().filter_map(|t| t["name"].as_str()).collect();
    assert_eq!(names, ["fs.read", "fs.write", "fs.list", "web.fetch"]);
}
