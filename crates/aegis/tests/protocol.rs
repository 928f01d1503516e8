//! The whole protocol through the governed path: clients of both eras, servers of both eras, and what lies between.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
};

use common::{Answer, TestNode, wait_until};
use serde_json::{Value, json};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/conformance/server.py");

/// A node before two servers that offer the same, one of each era, and two agents who may use them.
struct Setting {
    node: TestNode,
    agent: String,
    other: String,
    /// May call tools, and nothing else of servers.
    plain: String,
}

impl Setting {
    fn new() -> Self {
        let node = TestNode::with_config(&format!(
            "  mcp_servers:
    - {{name: new, executable: python3, args: [{FIXTURE}]}}
    - {{name: old, executable: python3, args: [{FIXTURE}, --era, legacy]}}
  security_contexts:
    - name: servers
      capabilities:
        - {{tool_pattern: new.*}}
        - {{tool_pattern: old.*}}
        - {{tool_pattern: mcp.*}}
    - name: narrow
      capabilities:
        - {{tool_pattern: new.*}}
        - {{tool_pattern: mcp.*, server_allowlist: [new]}}
    - name: plain
      capabilities:
        - {{tool_pattern: new.*}}"
        ));
        let (agent, other, plain) =
            (node.make_token("servers"), node.make_token("servers"), node.make_token("plain"));
        let setting = Self { node, agent, other, plain };
        // Running, and known to the rules.
        for server in ["new", "old"] {
            let tool = format!("{server}.test_simple_text");
            wait_until(|| {
                let params = json!({"name": tool, "arguments": {}});
                last(&setting.modern(&setting.agent, "tools/call", &params, &json!({})))
                    .get("result")
                    .is_some()
            });
        }
        setting
    }

    /// With an agent who may have the resources of one of the servers only.
    fn narrow() -> Self {
        let setting = Self::new();
        let agent = setting.node.make_token("narrow");
        Self { agent, ..setting }
    }

    /// A request of the stateless era.
    fn modern(&self, token: &str, method: &str, params: &Value, abilities: &Value) -> Answer {
        let (head, body) = modern(method, params, abilities);
        let headers: Vec<(&str, &str)> = head.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.node.raw("POST", "/mcp", Some(token), &headers, body.as_bytes())
    }

    fn legacy(&self, session: &str, message: &Value) -> Answer {
        let headers = [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-session-id", session),
        ];
        self.node.raw("POST", "/mcp", Some(&self.agent), &headers, message.to_string().as_bytes())
    }

    fn initialize(&self, abilities: &Value) -> String {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": abilities,
            "clientInfo": {"name": "test", "version": "1"}});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let headers =
            [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
        let answer =
            self.node.raw("POST", "/mcp", Some(&self.agent), &headers, message.to_string().as_bytes());
        answer.header("mcp-session-id").unwrap().to_owned()
    }
}

fn modern(method: &str, params: &Value, abilities: &Value) -> (Vec<(&'static str, String)>, String) {
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": abilities,
        "io.modelcontextprotocol/logLevel": "debug",
    });
    let mut headers = vec![
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json, text/event-stream".to_owned()),
        ("mcp-protocol-version", "2026-07-28".to_owned()),
        ("mcp-method", method.to_owned()),
    ];
    let name = ["name", "uri", "taskId"].iter().find_map(|member| params[*member].as_str());
    headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
    (headers, json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string())
}

/// Every message of an answer, whether it is one text or a stream.
fn messages(answer: &Answer) -> Vec<Value> {
    if answer.body.starts_with('{') {
        return vec![answer.json()];
    }
    let events = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    events.map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn last(answer: &Answer) -> Value {
    messages(answer).pop().unwrap_or_else(|| panic!("{answer:?}"))
}

fn asks() -> Value {
    json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}})
}

#[test]
fn a_stateless_client_answers_servers_of_either_era() {
    let setting = Setting::new();
    for server in ["new", "old"] {
        let params = json!({"name": format!("{server}.test_elicitation"), "arguments": {"message": "who?"}});
        let asked = last(&setting.modern(&setting.agent, "tools/call", &params, &asks()))["result"].clone();
        assert_eq!(asked["resultType"], "input_required", "{server}: {asked}");
        let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(
            (question["method"].as_str(), question["params"]["message"].as_str()),
            (Some("elicitation/create"), Some("who?"))
        );

        let mut again = params.clone();
        again["inputResponses"] =
            json!({key: {"action": "accept", "content": {"username": "ann", "email": "a@b"}}});
        if let Some(state) = asked.get("requestState") {
            again["requestState"] = state.clone();
            // It answers this request and no other; and what is held is held for whoever began it.
            let mut another = again.clone();
            another["arguments"]["message"] = "other".into();
            let refused = last(&setting.modern(&setting.agent, "tools/call", &another, &asks()));
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            let stranger = last(&setting.modern(&setting.other, "tools/call", &again, &asks()));
            assert_eq!(stranger["error"]["code"], -32602, "{stranger}");
        }
        let done = last(&setting.modern(&setting.agent, "tools/call", &again, &asks()))["result"].clone();
        assert_eq!(done["resultType"], "complete", "{server}: {done}");
        assert!(done["content"][0]["text"].as_str().unwrap().contains("ann"), "{done}");
        if asked.get("requestState").is_some() {
            let twice = last(&setting.modern(&setting.agent, "tools/call", &again, &asks()));
            assert_eq!(twice["error"]["code"], -32602, "an answer counts once: {twice}");
        }
    }
    let params = json!({"name": "new.test_missing_capability", "arguments": {}});
    let unable = setting.modern(&setting.agent, "tools/call", &params, &json!({}));
    assert_eq!((unable.status, last(&unable)["error"]["code"].as_i64()), (400, Some(-32021)));
}

#[test]
fn a_client_with_a_session_is_asked_on_the_stream_of_its_answer() {
    let setting = Setting::new();
    let session = setting.initialize(&asks());
    for server in ["new", "old"] {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
            {"name": format!("{server}.test_elicitation"), "arguments": {"message": "who?"}}});
        let mut stream = open(&setting, &session, "POST", Some(&call));
        let question = next(&mut stream);
        assert_eq!(question["method"], "elicitation/create", "{server}: {question}");
        let answer = json!({"action": "accept", "content": {"username": "ben", "email": "b@c"}});
        let taken =
            setting.legacy(&session, &json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        assert_eq!(taken.status, 202);
        let done = next(&mut stream);
        assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("ben"), "{server}: {done}");
    }
}

#[test]
fn logs_and_progress_come_before_the_answer() {
    let setting = Setting::new();
    let session = setting.initialize(&json!({}));
    let level = json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "info"}});
    assert_eq!(last(&setting.legacy(&session, &level))["result"], json!({}));
    for server in ["new", "old"] {
        let count = |answer: &Answer, method: &str| {
            messages(answer).iter().filter(|message| message["method"] == method).count()
        };
        let call = |tool: &str| {
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params":
                {"name": format!("{server}.{tool}"), "_meta": {"progressToken": "t"}}})
        };
        let logged = setting.legacy(&session, &call("test_tool_with_logging"));
        assert_eq!(count(&logged, "notifications/message"), 3, "{server}: {}", logged.body);
        let told = setting.legacy(&session, &call("test_tool_with_progress"));
        assert_eq!(count(&told, "notifications/progress"), 3, "{server}: {}", told.body);
        let params = json!({"name": format!("{server}.test_tool_with_logging"), "arguments": {}});
        let modern = setting.modern(&setting.agent, "tools/call", &params, &json!({}));
        assert_eq!(count(&modern, "notifications/message"), 3, "{server}: {}", modern.body);
    }
}

#[test]
fn what_servers_offer_passes_the_gates_and_is_recorded() {
    let setting = Setting::new();
    let ask =
        |method: &str, params: Value| last(&setting.modern(&setting.agent, method, &params, &json!({})));
    let can = ask("server/discover", json!({}))["result"]["capabilities"].clone();
    for capability in ["resources", "prompts", "completions", "logging"] {
        assert!(can.get(capability).is_some(), "{capability}: {can}");
    }
    let listed = ask("resources/list", json!({}))["result"].clone();
    assert_eq!(listed["resources"].as_array().unwrap().len(), 6, "{listed}");
    assert_eq!(listed["resources"][0]["_meta"]["aegis/server"], "new");
    assert!(listed["ttlMs"].is_u64() && listed.get("nextCursor").is_none(), "{listed}");
    let one = json!({"name": "mcp.resources.read", "arguments": {"server": "old", "uri": "test://template/5/data"}});
    let read = ask("tools/call", one)["result"].clone();
    assert!(read.to_string().contains("Data for ID: 5"), "{read}");
    let narrow = setting.node.make_token("narrow");
    let read = json!({"uri": "test://template/5/data"});
    let read = last(&setting.modern(&narrow, "resources/read", &read, &json!({})))["result"].clone();
    assert!(read["contents"][0]["text"].as_str().unwrap().contains("Data for ID: 5"), "{read}");
    assert_eq!(read["_meta"]["aegis/label"]["trust"], "EXTERNAL_UNTRUSTED");
    let missing = ask("resources/read", json!({"uri": "test://nothing"}));
    assert_eq!(
        (missing["error"]["code"].as_i64(), missing["error"]["data"]["uri"].as_str()),
        (Some(-32602), Some("test://nothing"))
    );
    for server in ["new", "old"] {
        let name = format!("{server}.test_prompt_with_arguments");
        let got = ask("prompts/get", json!({"name": name, "arguments": {"arg1": "x", "arg2": "y"}}));
        assert!(
            got["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("arg2='y'"),
            "{got}"
        );
        let reference = json!({"type": "ref/prompt", "name": name});
        let argument = json!({"name": "arg1", "value": "par"});
        let completed = ask("completion/complete", json!({"ref": reference, "argument": argument}));
        assert_eq!(
            completed["result"]["completion"]["values"],
            json!(["paris", "park", "party"]),
            "{completed}"
        );
    }

    // In the older revisions the same, in their words.
    let session = setting.initialize(&json!({}));
    let gone =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "test://nothing"}});
    assert_eq!(last(&setting.legacy(&session, &gone))["error"]["code"], -32002);

    // Who is not granted it does not see that it is there.
    let bare = last(&setting.modern(&setting.plain, "server/discover", &json!({}), &json!({})));
    assert!(bare["result"]["capabilities"].get("resources").is_none(), "{bare}");
    let refused =
        setting.modern(&setting.plain, "resources/read", &json!({"uri": "test://static-text"}), &json!({}));
    assert_eq!((refused.status, last(&refused)["error"]["code"].as_i64()), (404, Some(-32601)));

    wait_until(|| {
        let records = setting.node.records();
        let recorded = |tool: &str| records.iter().any(|record| record.to_string().contains(tool));
        ["mcp.resources.read", "mcp.prompts.get", "mcp.completion.complete", "mcp.resources.list"]
            .into_iter()
            .all(recorded)
    });
}

/// A server can list whatever it likes, and must not get to answer for another by doing so.
#[test]
fn what_two_servers_claim_is_read_from_neither_unnamed() {
    let setting = Setting::new();
    let session = setting.initialize(&json!({}));
    for uri in ["test://static-text", "test://template/5/data"] {
        let params = json!({ "uri": uri });
        for method in ["resources/read", "resources/subscribe"] {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let refused = last(&setting.legacy(&session, &message));
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            let message = refused["error"]["message"].as_str().unwrap();
            assert!(message.contains("`new` and `old`") && message.contains("mcp.resources."), "{message}");
        }
    }
    let reference = json!({"type": "ref/resource", "uri": "test://template/{id}/data"});
    let params = json!({"ref": reference, "argument": {"name": "id", "value": ""}});
    let refused = last(&setting.modern(&setting.agent, "completion/complete", &params, &json!({})));
    assert!(refused["error"]["message"].as_str().unwrap().contains("`new` and `old`"), "{refused}");
}

#[test]
fn changes_are_told_to_whoever_asked() {
    let setting = Setting::narrow();
    let uri = "test://watched-resource";
    let wanted = json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": [uri]}});
    let mut listening = open_modern(&setting, "subscriptions/listen", &wanted);
    let acknowledged = next(&mut listening);
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged", "{acknowledged}");
    assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!([uri]));
    let session = setting.initialize(&json!({}));
    let subscribe =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": {"uri": uri}});
    assert!(last(&setting.legacy(&session, &subscribe)).get("result").is_some());
    let mut standing = open(&setting, &session, "GET", None);

    let call = |tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        let done = last(&setting.modern(&setting.agent, "tools/call", &params, &json!({})));
        assert!(done.get("result").is_some(), "{done}");
    };
    // A server hears of a subscription a moment after it is acknowledged here.
    let heard = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until(|| {
                call("new.test_touch_resource");
                heard.load(Ordering::SeqCst)
            });
        });
        for stream in [&mut listening, &mut standing] {
            let told = until(stream, "notifications/resources/updated");
            assert_eq!(told["params"]["uri"], uri, "{told}");
        }
        heard.store(true, Ordering::SeqCst);
    });
    call("new.test_trigger_tool_change");
    // A tool that joins a server waits until somebody has looked.
    wait_until(|| setting.node.cli(&["upstream", "accept", "new", "test_added"]).status.success());
    let told = until(&mut listening, "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
    until(&mut standing, "notifications/tools/list_changed");
    wait_until(|| {
        let tools = last(&setting.modern(&setting.agent, "tools/list", &json!({}), &json!({})));
        tools.to_string().contains("new.test_added")
    });
}

#[test]
fn a_task_of_a_server_is_held_by_the_client_that_began_it() {
    let setting = Setting::new();
    let tasks = json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let params = json!({"name": "new.confirm_delete", "arguments": {"filename": "x"}});
    let created = last(&setting.modern(&setting.agent, "tools/call", &params, &tasks))["result"].clone();
    assert_eq!(created["resultType"], "task", "{created}");
    let id = json!({"taskId": created["taskId"]});
    let stranger = last(&setting.modern(&setting.other, "tasks/get", &id, &tasks));
    assert_eq!(stranger["error"]["code"], -32602, "{stranger}");
    let get = || last(&setting.modern(&setting.agent, "tasks/get", &id, &tasks))["result"].clone();
    wait_until(|| get()["status"] == "input_required");
    let mut update = id.clone();
    update["inputResponses"] = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
    let acknowledged = last(&setting.modern(&setting.agent, "tasks/update", &update, &tasks));
    assert_eq!(acknowledged["result"]["resultType"], "complete", "{acknowledged}");
    wait_until(|| get()["status"] == "completed");
    let done = get();
    assert_eq!(done["taskId"], created["taskId"]);
    assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("deleted"), "{done}");
}

/// A connection whose answer is a stream.
fn open(setting: &Setting, session: &str, method: &str, body: Option<&Value>) -> BufReader<TcpStream> {
    let headers = vec![
        ("content-type", "application/json".to_owned()),
        (
            "accept",
            if body.is_some() { "application/json, text/event-stream" } else { "text/event-stream" }
                .to_owned(),
        ),
        ("mcp-session-id", session.to_owned()),
    ];
    send(setting, method, &headers, &body.map(Value::to_string).unwrap_or_default())
}

fn open_modern(setting: &Setting, method: &str, params: &Value) -> BufReader<TcpStream> {
    let (headers, body) = modern(method, params, &json!({}));
    send(setting, "POST", &headers, &body)
}

fn send(setting: &Setting, method: &str, headers: &[(&str, String)], body: &str) -> BufReader<TcpStream> {
    let mut stream = setting.node.connect();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(
        stream,
        "{method} /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{headers}content-length: {}\r\n\r\n{body}",
        setting.node.address,
        setting.agent,
        body.len()
    )
    .unwrap();
    BufReader::new(stream)
}

/// The next message of that kind; others may come in between.
fn until(stream: &mut BufReader<TcpStream>, method: &str) -> Value {
    loop {
        let message = next(stream);
        if message["method"] == method {
            return message;
        }
    }
}

/// The next message on a stream.
fn next(stream: &mut BufReader<TcpStream>) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
        let text = line.trim_end();
        // An answer that is no stream is one text.
        if let Some(data) = text.strip_prefix("data: ").or_else(|| text.starts_with('{').then_some(text)) {
            return serde_json::from_str(data).unwrap();
        }
    }
}
