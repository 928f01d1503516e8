//! Commands as agents meet them: a real node, a real sandbox, real programs.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/engine.rs"]
mod engine;

mod assistant;
mod bad_input;
mod builds;
mod closed;
mod endings;
mod images;
mod live;
mod network;
mod policy;

use common::{Answer, TestNode};
use serde_json::{Value, json};

/// A node, and an agent in its workspace context.
struct Scene {
    node: TestNode,
    agent: String,
}

impl Scene {
    fn new() -> Self {
        Self::with("")
    }

    fn with(spec: &str) -> Self {
        Self::acting_as("workspace", spec)
    }

    fn acting_as(context: &str, spec: &str) -> Self {
        let node = TestNode::with_config(spec);
        let agent = node.make_token(context);
        Self { node, agent }
    }

    /// `cmd.run` as the agent.
    fn run(&self, command: &str, args: &[&str]) -> Answer {
        self.node.call_as(&self.agent, "cmd.run", json!({"command": command, "args": args}))
    }

    /// `cmd.run` as the operator, whose commands are not constrained.
    fn shell(&self, script: &str) -> Answer {
        self.node.call("cmd.run", json!({"command": "bash", "args": ["-c", script]}))
    }

    /// The answer of a shell command that ran.
    fn ran(&self, script: &str) -> Value {
        let answer = self.shell(script);
        assert_eq!(answer.status, 200, "{script}: {}", answer.body);
        answer.result()
    }

    fn write(&self, path: &str, content: &str) {
        let answer = self.node.call("fs.write", json!({"path": path, "content": content}));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// A call that a person must approve: asked by the agent, approved by the operator, collected by the agent.
    fn approved(&self, tool: &str, arguments: &Value) -> Value {
        let parked = self.node.call_as(&self.agent, tool, arguments.clone());
        assert_eq!(parked.status, 202, "{tool}: {}", parked.body);
        let id = parked.json()["approval"]["id"].as_str().unwrap().to_owned();
        let decided = self.node.request(
            "POST",
            &format!("/v1/approvals/{id}/approve"),
            Some(&self.node.token),
            Some(&json!({})),
        );
        assert_eq!(decided.status, 200, "{}", decided.body);
        let ended =
            self.node.request("GET", &format!("/v1/approvals/{id}?wait=60s"), Some(&self.agent), None).json();
        assert!(matches!(ended["state"].as_str(), Some("executed" | "failed")), "{ended}");
        ended["outcome"].clone()
    }
}

/// Whether the host has a program where sandboxes look for it.
fn host_has(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin"]
        .iter()
        .any(|directory| std::path::Path::new(directory).join(program).is_file())
}

/// Processes of this machine whose command line holds `mark`.
fn processes_with(mark: &str) -> Vec<u32> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own)
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(mark)
        })
        .collect()
}
