//! MCP servers behind a real node: real processes, well-behaved and not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

#[path = "../common/collector.rs"]
mod collector;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/engine.rs"]
mod engine;
#[path = "../../../mcp-client/tests/client/fixture.rs"]
mod fixture;

mod authority;
mod calls;
mod chaos;
mod condition;
mod container;
mod faults;
mod first_steps;
mod sandboxed;
mod sign_in;
mod traces;

use common::{Answer, TestNode, text};
use serde_json::{Value, json};

/// Not a test: the server that the tests' nodes start. Its arguments come in a variable, since the harness has its own.
#[test]
#[ignore = "started by the tests as a server"]
fn fixture_server() {
    let arguments = std::env::var("FIXTURE_ARGUMENTS").unwrap_or_default();
    fixture::serve(arguments.split_whitespace().map(ToOwned::to_owned));
}

/// A server of the configuration: the fixture with its arguments, and further members, each on a line.
fn server(name: &str, arguments: &str, more: &[&str]) -> String {
    let program = std::env::current_exe().unwrap();
    let more: String = more.iter().map(|line| format!("      {line}\n")).collect();
    format!(
        "    - name: {name}\n      executable: {}\n      args: [fixture_server, --exact, --ignored, --nocapture, --quiet]\n      \
         environment: {{FIXTURE_ARGUMENTS: \"{arguments}\"}}\n{more}",
        program.display()
    )
}

fn config(servers: &[String]) -> String {
    format!("  mcp_servers:\n{}", servers.concat())
}

/// A node with one fixture called `fix`, ready to be called.
fn node(arguments: &str, more: &[&str]) -> TestNode {
    let node = TestNode::with_config(&config(&[server("fix", arguments, more)]));
    ready(&node);
    node
}

fn ready(node: &TestNode) {
    common::wait_until(|| node.call("fix.echo", json!({"text": "ready?"})).status == 200);
}

fn status(node: &TestNode, name: &str) -> Value {
    let listed = node.cli(&["upstream", "list", "--json"]);
    let listed = text(&listed.stdout);
    let all: Vec<Value> = listed
        .lines()
        .flat_map(|line| match serde_json::from_str::<Value>(line) {
            Ok(Value::Array(all)) => all,
            Ok(one) => one["servers"]
                .as_array()
                .or(one["upstreams"].as_array())
                .cloned()
                .unwrap_or_else(|| vec![one]),
            Err(_) => Vec::new(),
        })
        .collect();
    let found = all.iter().find(|one| one["name"] == name || one["server"]["name"] == name);
    found.map(|one| one["status"].clone()).unwrap_or_default()
}

fn error_kind(answer: &Answer) -> String {
    answer.json()["result"]["error_kind"].as_str().unwrap_or_default().to_owned()
}

/// The words after `--` that start the fixture.
fn program() -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let arguments = ["fixture_server", "--exact", "--ignored", "--nocapture", "--quiet"];
    [program].into_iter().chain(arguments.map(ToOwned::to_owned)).collect()
}

/// `aegis upstream add` of the fixture: code, standard output and standard error.
fn add(node: &TestNode, options: &[&str]) -> (i32, String, String) {
    let program = program();
    let all: Vec<&str> = ["upstream", "add"]
        .iter()
        .chain(options)
        .copied()
        .chain(program.iter().map(String::as_str))
        .collect();
    run(node, &all)
}

fn run(node: &TestNode, arguments: &[&str]) -> (i32, String, String) {
    let output = node.cli(arguments);
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn message(answer: &Answer) -> String {
    answer.json()["error"].to_string()
}
