//! Output while it comes, over every door that can tell it.

use std::io::{BufRead, BufReader, Write};

use serde_json::{Value, json};

use super::Scene;
use crate::common::text;

const SLOWLY: &str = "for n in 1 2 3; do echo line $n; sleep 0.6; done";

#[test]
fn over_plain_http_as_events() {
    let scene = Scene::new();
    let body = json!({"command": "bash", "args": ["-c", SLOWLY]}).to_string();
    let mut stream = scene.node.connect();
    write!(
        stream,
        "POST /v1/tools/cmd.run HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: text/event-stream\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        scene.node.address,
        scene.node.token,
        body.len()
    )
    .unwrap();
    let answer = crate::common::read_answer(&mut stream);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
    let events: Vec<(String, Value)> = answer
        .body
        .split("\n\n")
        .filter_map(|event| {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            Some((field("event:")?.to_owned(), serde_json::from_str(field("data:")?).ok()?))
        })
        .collect();
    let told: String = events
        .iter()
        .filter(|(name, _)| name == "progress")
        .filter_map(|(_, data)| data["message"].as_str())
        .collect();
    assert_eq!(told, "line 1\nline 2\nline 3\n");
    assert!(events.len() >= 3, "{events:?}");
    let (name, last) = events.last().unwrap();
    assert_eq!((name.as_str(), &last["status"]), ("answer", &json!(200)));
    assert_eq!(last["body"]["result"]["exit_code"], 0, "{last}");
}

#[test]
fn a_call_that_says_nothing_is_answered_as_ever() {
    let scene = Scene::new();
    let body = json!({"command": "bash", "args": ["-c", "exit 3"]}).to_string();
    let mut stream = scene.node.connect();
    write!(
        stream,
        "POST /v1/tools/cmd.run HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: application/json, text/event-stream\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        scene.node.address,
        scene.node.token,
        body.len()
    )
    .unwrap();
    let answer = crate::common::read_answer(&mut stream);
    assert_eq!((answer.status, &answer.result()["exit_code"]), (200, &json!(3)), "{}", answer.body);
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[test]
fn on_the_terminal() {
    let scene = Scene::new();
    let arguments = json!({"command": "bash", "args": ["-c", SLOWLY]}).to_string();
    let output = scene.node.cli(&["call", "cmd.run", &arguments]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "line 1\nline 2\nline 3\n");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["stdout"], "line 1\nline 2\nline 3\n");
}

/// `aegis call` as a person types it, and where its output goes.
fn at_a_terminal(scene: &Scene, command: &str, redirection: &str) -> std::process::Output {
    let arguments = json!({"command": "bash", "args": ["-c", command]});
    let line = format!("'{}' call cmd.run '{arguments}' {redirection}", crate::common::AEGIS);
    std::process::Command::new("script")
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .env("AEGIS_DATA", scene.node.data())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap()
}

/// What was not seen while it came is in the answer: because there was too much of it, or because nobody looked.
#[test]
fn at_a_terminal_never_less_than_all() {
    if !super::host_has("script") {
        return;
    }
    let scene = Scene::new();
    let shown = at_a_terminal(&scene, "head -c 100000 /dev/zero | tr \"\\0\" x; echo the end", "");
    let told = text(&shown.stdout);
    let longest = told.split(|letter| letter != 'x').map(str::len).max();
    assert_eq!(longest, Some(100_000), "{} bytes", told.len());
    assert!(told.contains("the end\\n\""), "{} bytes", told.len());
    let shown = at_a_terminal(&scene, "echo out$((40 + 2))", "2>/dev/null");
    assert!(text(&shown.stdout).contains("\"stdout\": \"out42\\n\""), "{}", text(&shown.stdout));
}

/// At a terminal the output is there once, as it came, and the rest of the answer after it.
#[test]
fn at_a_terminal_once() {
    if !super::host_has("script") {
        return;
    }
    let scene = Scene::new();
    let shown = at_a_terminal(&scene, "echo out$((40 + 2)); echo err$((40 + 3)) >&2; exit 7", "");
    let told = text(&shown.stdout);
    assert_eq!((told.matches("out42").count(), told.matches("err43").count()), (1, 1), "{told}");
    assert!(told.contains("\"exit_code\": 7") && !told.contains("\"stdout\""), "{told}");
    assert!(told.contains("its exit code is 7"), "{told}");
    assert_eq!(shown.status.code(), Some(1), "{told}");
}

#[test]
fn a_program_that_fails_is_a_failed_command() {
    let scene = Scene::new();
    for (code, ends) in [(0, 0), (3, 1)] {
        let arguments =
            json!({"command": "bash", "args": ["-c", format!("echo hi; exit {code}")]}).to_string();
        let shown = scene.node.cli(&["call", "cmd.run", &arguments]);
        let answer: Value = serde_json::from_slice(&shown.stdout).unwrap();
        // Whoever reads the answer from a pipe gets all of it.
        assert_eq!((&answer["exit_code"], &answer["stdout"]), (&json!(code), &json!("hi\n")));
        assert_eq!(shown.status.code(), Some(ends), "{}", text(&shown.stderr));
        assert_eq!(text(&shown.stderr).contains(&format!("exit code is {code}")), ends == 1);
        let shown = scene.node.cli(&["--json", "call", "cmd.run", &arguments]);
        let answer: Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!((&answer["result"]["exit_code"], shown.status.code()), (&json!(code), Some(ends)));
    }
}

/// Asked, approved, and followed by who asked while it runs: the command ends only once it was heard.
#[test]
fn after_an_approval() {
    let scene = Scene::new();
    // The workspace comes with its first use.
    scene.write("first.txt", "");
    let script = "until [ -e go ]; do echo still here; sleep 0.1; done; echo last";
    let mut caller = std::process::Command::new(crate::common::AEGIS)
        .args(["call", "--wait", "tool.bash", &json!({"script": script}).to_string()])
        .env("AEGIS_DATA", scene.node.data())
        .env("AEGIS_TOKEN", &scene.agent)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(caller.stderr.take().unwrap()).lines().map(Result::unwrap);
    let waits = told.next().unwrap();
    let id = waits.split(' ').next_back().unwrap();
    // Somebody else who waits hears nothing of it.
    let stranger = scene.node.token.clone();
    let mut watching = scene.node.connect();
    write!(
        watching,
        "GET /v1/approvals/{id}?wait=60s HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {stranger}\r\n\
         accept: text/event-stream\r\nconnection: close\r\n\r\n",
        scene.node.address
    )
    .unwrap();
    let path = format!("/v1/approvals/{id}/approve");
    let decided = scene.node.request("POST", &path, Some(&scene.node.token), None);
    assert_eq!(decided.status, 200, "{waits}: {}", decided.body);
    assert_eq!(told.next().as_deref(), Some("still here"));
    std::fs::write(scene.node.workspace().join("go"), "").unwrap();
    assert_eq!(told.find(|line| line != "still here").as_deref(), Some("last"));
    let ended = caller.wait_with_output().unwrap();
    assert!(ended.status.success() && text(&ended.stdout).contains("last"), "{}", text(&ended.stdout));
    let watched = crate::common::read_answer(&mut watching);
    assert_eq!(watched.header("content-type"), Some("application/json"), "{}", watched.body);
    assert_eq!(watched.json()["state"], "executed");
}

/// `aegis mcp` at this data directory, of the node that runs there or with one of its own.
fn mcp_at(data: &std::path::Path) -> std::process::Child {
    std::process::Command::new(crate::common::AEGIS)
        .arg("mcp")
        .env("AEGIS_DATA", data)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

fn initialize() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
}

#[test]
fn over_mcp_as_progress() {
    let scene = Scene::new();
    let mut child = mcp_at(&scene.node.data());
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(input, "{}", initialize()).unwrap();
    lines.next().unwrap().unwrap();
    writeln!(input, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
    let slowly = "for n in 1 2 3 4; do echo line $n; sleep 0.7; done";
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "cmd.run", "arguments": {"command": "bash", "args": ["-c", slowly]}, "_meta": {"progressToken": "p"}}});
    writeln!(input, "{call}").unwrap();
    let (mut told, mut last) = (String::new(), 0.0);
    let result = loop {
        let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if message["id"] == 2 {
            break message;
        }
        assert_eq!(message["method"], "notifications/progress", "{message}");
        let params = &message["params"];
        assert_eq!(params["progressToken"], "p");
        let progress = params["progress"].as_f64().unwrap();
        assert!(progress > last, "{message}");
        last = progress;
        told.push_str(params["message"].as_str().unwrap());
    };
    assert_eq!(result["result"]["structuredContent"]["exit_code"], 0, "{result}");
    assert!(told.contains("line 2\n") && told.contains("line 3\n"), "{told}");
    drop(input);
    child.wait().unwrap();
}

/// What `aegis mcp` began without a running node ends before it does, with its answer and on record: the client may have
/// closed its end, or asked the process to stop.
#[test]
fn a_node_of_its_own_ends_after_its_calls() {
    for asked_to_stop in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let mut child = mcp_at(home.path());
        let mut input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        writeln!(input, "{}", initialize()).unwrap();
        lines.next().unwrap().unwrap();
        let script = "touch begun; until [ -e go ]; do sleep 0.02; done; echo last";
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "cmd.run", "arguments": {"command": "bash", "args": ["-c", script]}}});
        writeln!(input, "{call}").unwrap();
        let workspace = home.path().join("volumes/local/workspace");
        crate::common::wait_until(|| workspace.join("begun").exists());
        let input = if asked_to_stop {
            crate::common::signal(child.id(), "TERM");
            Some(input)
        } else {
            drop(input);
            None
        };
        std::fs::write(workspace.join("go"), "").unwrap();
        let answer: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(answer["id"], 2, "{answer}");
        assert!(
            answer["result"]["structuredContent"]["stdout"].as_str().unwrap().contains("last"),
            "{answer}"
        );
        assert!(child.wait().unwrap().success());
        drop(input);
        let tail = std::process::Command::new(crate::common::AEGIS)
            .args(["audit", "tail", "--json", "--data"])
            .arg(home.path())
            .output()
            .unwrap();
        let recorded =
            text(&tail.stdout).lines().any(|line| line.contains("cmd.run") && line.contains("\"done\""));
        assert!(recorded, "{}", text(&tail.stdout));
    }
}

/// A client that is there and reads nothing keeps `aegis mcp` from nothing: neither from stopping nor from its last head.
#[test]
fn a_node_of_its_own_stops_although_its_client_does_not_read() {
    let home = tempfile::tempdir().unwrap();
    let config = "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {name: t}\nspec: {limits: {drain_timeout: 1s}}\n";
    std::fs::write(home.path().join("config.yaml"), config).unwrap();
    let mut child = mcp_at(home.path());
    let mut input = child.stdin.take().unwrap();
    // Far more than a pipe and the node's own queue of answers hold.
    for id in 0..400 {
        writeln!(input, "{}", json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})).unwrap();
    }
    // One answer has come, so the node reads, and signals are its own.
    let mut output = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut output, &mut [0; 16]).unwrap();
    crate::common::signal(child.id(), "TERM");
    assert!(child.wait().unwrap().success());
    drop((input, output));
    let verified = std::process::Command::new(crate::common::AEGIS)
        .args(["audit", "verify", "--data"])
        .arg(home.path())
        .status()
        .unwrap();
    assert!(verified.success());
}

#[test]
fn to_subscribers_as_events() {
    let scene = Scene::new();
    let lines = scene.node.subscribe().lines().map(Result::unwrap);
    scene.ran("echo some output; exit 3");
    scene.run("git", &["push"]);
    let mut told = Vec::new();
    for line in lines {
        if let Some(name) = line.strip_prefix("event: ") {
            told.push((name.to_owned(), Value::Null));
        } else if let (Some(data), Some(last)) = (line.strip_prefix("data: "), told.last_mut()) {
            last.1 = serde_json::from_str(data).unwrap();
            if last.0 == "SealEvent::PolicyViolationBlocked" {
                break;
            }
        }
    }
    let find = |name: &str| {
        let found = told.iter().find(|(known, _)| known == name);
        found.unwrap_or_else(|| panic!("{name} is not among {told:?}")).1["detail"].clone()
    };
    let started = find("CommandExecutionEvent::CommandExecutionStarted");
    assert_eq!((&started["command"], &started["cwd"]), (&json!("bash"), &json!("/workspace")), "{started}");
    let completed = find("CommandExecutionEvent::CommandExecutionCompleted");
    assert_eq!((&completed["exit_code"], &completed["stdout_bytes"]), (&json!(3), &json!(12)), "{completed}");
    // A normal answer, and a failure to whoever watches.
    assert_eq!(find("MCPToolEvent::InvocationFailed")["exit_code"], 3);
    assert_eq!(find("CommandExecutionEvent::CommandPolicyViolation")["violation"], "SubcommandNotAllowed");
}
