//! What happens while calls are in work: callers that leave or dawdle, a crowd, the end of the node, a configuration
//! that comes late.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    io::Write,
    net::TcpStream,
    path::Path,
    sync::{Mutex, mpsc},
};

use common::{TestNode, data, read_answer, records, signal, wait_until, web_server, write_config};
use serde_json::{Value, json};

/// A page that is not answered before the test says so.
struct HeldPage {
    url: String,
    asked: mpsc::Receiver<()>,
    answer: mpsc::Sender<()>,
}

impl HeldPage {
    fn serve() -> Self {
        let (asking, asked) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        let answered = Mutex::new(answered);
        let address = web_server(move |_| {
            asking.send(()).unwrap();
            let _ = answered.lock().unwrap().recv();
            (200, "text/plain", "late".to_owned())
        });
        Self { url: format!("http://{address}/"), asked, answer }
    }

    /// A call that is in work when this returns.
    fn fetched_by(&self, node: &TestNode) -> TcpStream {
        let call = node.begin("web.fetch", &json!({"url": self.url}), |body| body);
        self.asked.recv().unwrap();
        call
    }
}

fn node() -> TestNode {
    TestNode::with_config("  egress: {allow_private: [127.0.0.1]}")
}

/// The results of all calls of a tool.
fn results(records: &[Value], tool: &str) -> Vec<Value> {
    records
        .iter()
        .map(|record| &record["entry"])
        .filter(|entry| entry["entry"] == "call" && entry["tool"] == tool)
        .map(|entry| entry["result"].clone())
        .collect()
}

#[test]
fn a_read_is_dropped_when_its_caller_leaves() {
    let (node, page) = (node(), HeldPage::serve());
    drop(page.fetched_by(&node));
    // The page still has no answer: only the caller's leaving can have ended the call.
    wait_until(|| !results(&node.records(), "web.fetch").is_empty());
    let results = results(&node.records(), "web.fetch");
    assert_eq!(results.len(), 1);
    assert_eq!((&results[0]["status"], &results[0]["kind"]), (&json!("failed"), &json!("Timeout")));
    drop(page.answer);
}

fn count_below(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .map(|entry| entry.unwrap())
        .map(|entry| 1 + if entry.file_type().unwrap().is_dir() { count_below(&entry.path()) } else { 0 })
        .sum()
}

/// A change that is under way when its caller leaves is asked to stop and waited for: the record agrees with the disk.
#[test]
fn a_change_is_recorded_as_it_was_when_its_caller_leaves() {
    let node = TestNode::start();
    node.call("fs.create_dir", json!({"path": "tree"}));
    let tree = node.workspace().join("tree");
    for directory in 0..200 {
        let directory = tree.join(directory.to_string());
        std::fs::create_dir(&directory).unwrap();
        for file in 0..50 {
            std::fs::write(directory.join(file.to_string()), "").unwrap();
        }
    }
    let before = 1 + count_below(&tree);
    let call = node.begin("fs.delete", &json!({"path": "tree", "recursive": true}), |body| body);
    wait_until(|| std::fs::read_dir(&tree).map_or(0, Iterator::count) < 200);
    drop(call);
    wait_until(|| !results(&node.records(), "fs.delete").is_empty());
    let results = results(&node.records(), "fs.delete");
    assert_eq!(results.len(), 1);
    let left = u64::from(tree.exists()) + count_below(&tree);
    if results[0]["status"] == "done" {
        assert_eq!(left, 0);
    } else {
        let message = results[0]["message"].as_str().unwrap();
        let deleted: u64 = message
            .split(['(', ' '])
            .find_map(|word| word.parse().ok())
            .unwrap_or_else(|| panic!("{message}"));
        assert_eq!(deleted + left, before, "{message}");
    }
}

/// Callers that leave right after asking: each file is there whole with its record, or not at all.
#[test]
fn writes_whose_callers_leave_are_whole_or_not_there() {
    let node = TestNode::start();
    let content = "x".repeat(300_000);
    for number in 0..20 {
        let arguments = json!({"path": format!("left-{number}"), "content": content});
        drop(node.begin("fs.write", &arguments, |body| body));
    }
    let (code, dir) = node.stop();
    assert_eq!(code, Some(0));
    let records = records(&data(dir.path()));
    for number in 0..20 {
        let file = data(dir.path()).join(format!("volumes/local/workspace/left-{number}"));
        let path = format!("left-{number}");
        let done = records.iter().any(|record| {
            let entry = &record["entry"];
            entry["entry"] == "call"
                && entry["arguments"]["path"] == *path
                && entry["result"]["status"] == "done"
        });
        match std::fs::read_to_string(&file) {
            Ok(written) => {
                assert!(done && written == content, "{path}: {} bytes, record {done}", written.len());
            }
            Err(_) => assert!(!done, "{path} has a record and no content"),
        }
    }
}

#[test]
fn a_stopping_node_finishes_the_call_in_work() {
    let (node, page) = (node(), HeldPage::serve());
    let mut call = page.fetched_by(&node);
    signal(node.pid(), "TERM");
    // It takes no more connections, and waits for this one.
    wait_until(|| TcpStream::connect(&node.address).is_err());
    page.answer.send(()).unwrap();
    let answer = read_answer(&mut call);
    assert_eq!((answer.status, answer.result()), (200, json!("late")), "{}", answer.body);
    let (code, dir) = node.ended();
    assert_eq!(code, Some(0));
    let records = records(&data(dir.path()));
    assert_eq!(results(&records, "web.fetch").iter().map(|r| &r["status"]).collect::<Vec<_>>(), ["done"]);
    assert_eq!(records.last().unwrap()["entry"]["action"], "stopped");
}

#[test]
fn a_body_that_never_ends_is_answered() {
    let node = TestNode::with_config("  network: {body_timeout: 1s}");
    for sent in [0, 10] {
        let mut stalled = node.begin("fs.write", &json!({"path": "a", "content": "x"}), |body| &body[..sent]);
        let answer = read_answer(&mut stalled);
        assert_eq!(
            (answer.status, answer.violation().as_str()),
            (408, "MalformedRequest"),
            "{}",
            answer.body
        );
        assert_eq!(answer.json()["error"]["data"]["rule"], "spec.network.body_timeout", "{}", answer.body);
    }
    assert!(!node.workspace().join("a").exists());
    assert_eq!(node.call("fs.list", json!({"path": "."})).status, 200);
}

#[test]
fn a_crowd_is_told_to_come_again() {
    let node = TestNode::with_config("  network: {max_concurrent_requests: 1}");
    let arguments = json!({"path": ".", "": 1});
    let list = || node.call("fs.list", json!({"path": "."}));
    // Which of two requests comes first is the kernel's choice; the one that was to wait may be the one refused.
    let mut first = node.begin("fs.list", &arguments, |body| &body[..5]);
    wait_until(|| {
        let crowded = list().status == 503;
        if !crowded {
            first = node.begin("fs.list", &arguments, |body| &body[..5]);
        }
        crowded
    });
    let refused = list();
    assert_eq!(refused.violation(), "Overloaded", "{}", refused.body);
    assert_eq!(refused.header("retry-after"), Some("1"), "{}", refused.head);
    assert_eq!(refused.json()["error"]["data"]["rule"], "spec.network.max_concurrent_requests");
    // Monitoring is no part of the crowd.
    assert_eq!(node.request("GET", "/healthz", None, None).status, 200);
    first.write_all(&arguments.to_string().as_bytes()[5..]).unwrap();
    assert_eq!(read_answer(&mut first).violation(), "InvalidArguments");
    assert_eq!(list().status, 200);
}

#[test]
fn a_configuration_that_first_appears_after_the_start_is_taken() {
    let node = TestNode::start();
    let place = || node.call("aegis.system.config", json!({})).result();
    assert!(place().to_string().contains("built-in defaults"), "{}", place());
    let wanted = json!({"context": "late"});
    let make = || node.request("POST", "/v1/tokens", Some(&node.token), Some(&wanted));
    assert_eq!(make().status, 404);
    // A first attempt that is no good changes nothing, and the second is taken.
    write_config(&node.data(), "  security_contexts: [{name: late, capabilites: []}]");
    wait_until(|| node.log().contains("kept the old configuration"));
    assert_eq!(make().status, 404);
    write_config(
        &node.data(),
        "  security_contexts: [{name: late, capabilities: [{tool_pattern: fs.list}]}]",
    );
    wait_until(|| make().status == 201);
    let token = node.make_token("late");
    assert_eq!(node.call_as(&token, "fs.list", json!({"path": "."})).status, 200);
    assert_eq!(node.call_as(&token, "fs.read", json!({"path": "a"})).violation(), "ToolNotAllowed");
    let file = node.data().join("config.yaml");
    assert!(place().to_string().contains(file.to_str().unwrap()), "{}", place());
    assert!(node.records().iter().any(|record| record["entry"]["action"] == "config-reloaded"));
}
