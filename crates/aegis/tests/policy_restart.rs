//! What a restart, or a changed switch, does to policies and to what sessions have read.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use common::{TestNode, wait_until, write_config};
use serde_json::json;

const ENFORCED: &str = "  policy: {label_rules: enforce}";

#[test]
fn a_killed_node_still_knows_what_its_callers_have_read() {
    let node = TestNode::with_config(ENFORCED);
    let token = node.make_token("workspace");
    let fresh = node.make_token("workspace");
    let write = |node: &TestNode, token: &str, path: &str| {
        node.call_as(token, "fs.write", json!({"path": path, "content": "x"}))
    };
    assert_eq!(write(&node, &token, "a").status, 200);
    assert_eq!(node.call_as(&token, "fs.read", json!({"path": "a"})).status, 200);
    let node = TestNode::on(node.kill());
    let asked = write(&node, &token, "b");
    assert_eq!(asked.status, 202, "{}", asked.body);
    assert_eq!(asked.json()["result"]["pendingApproval"], true);
    assert!(!node.workspace().join("b").exists());
    assert_eq!(write(&node, &fresh, "c").status, 200);
}

#[test]
fn a_node_does_not_start_on_policies_that_it_cannot_read() {
    let (_, dir) = TestNode::start().stop();
    let policies = common::data(dir.path()).join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::write(policies.join("a.cedar"), "forbid (principal, action, resource) when { tenant };")
        .unwrap();
    let Err(log) = TestNode::try_on(dir) else { panic!("it started") };
    assert!(log.contains("a.cedar:1:45"), "{log}");
}

#[test]
fn one_switch_turns_the_label_rules_on() {
    let node = TestNode::with_config("  policy: {label_rules: shadow}");
    let token = node.make_token("workspace");
    let write = || node.call_as(&token, "fs.write", json!({"path": "a", "content": "x"})).status;
    assert_eq!(write(), 200);
    assert_eq!(node.call_as(&token, "fs.read", json!({"path": "a"})).status, 200);
    assert_eq!(write(), 200);
    write_config(node.dir.path(), ENFORCED);
    wait_until(|| write() == 202);
    assert!(node.records().iter().any(|record| record["entry"]["action"] == "policies-reloaded"));
    write_config(node.dir.path(), "  policy: {label_rules: off}");
    wait_until(|| write() == 200);
}
