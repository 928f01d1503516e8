//! The record of a running node: tampering is found, events are seen, metrics count.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use common::{AEGIS, TestNode, cli, data, signal, text};
use serde_json::{Value, json};

#[test]
fn an_export_proves_itself_and_shows_tampering() {
    let node = TestNode::start();
    for number in 0..20 {
        node.call("fs.write", json!({"path": "a", "content": number.to_string()}));
    }
    let head = node.cli(&["audit", "head"]);
    let kept = node.dir.path().join("head.json");
    std::fs::write(&kept, &head.stdout).unwrap();
    let file = node.dir.path().join("log.jsonl");
    let exported = node.cli(&["audit", "export", file.to_str().unwrap()]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let key = node.data().join("audit.pub");
    let elsewhere = tempfile::tempdir().unwrap();
    let verify = |file: &std::path::Path| {
        let arguments =
            ["audit", "verify", "--json", "--file", file.to_str().unwrap(), "--key", key.to_str().unwrap()];
        let output = cli(elsewhere.path(), &arguments);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output.status.code(), report)
    };
    let (code, report) = verify(&file);
    assert_eq!((code, &report["sound"]), (Some(0), &json!(true)), "{report}");

    let whole = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let at = lines.iter().position(|line| line.contains("\"seq\":10,")).unwrap();
    let changed = |change: &dyn Fn(&mut Vec<String>)| {
        let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        change(&mut lines);
        let file = elsewhere.path().join("changed.jsonl");
        std::fs::write(&file, lines.join("\n") + "\n").unwrap();
        verify(&file)
    };
    type Change<'a> = &'a dyn Fn(&mut Vec<String>);
    let cases: [(&str, Change<'_>); 5] = [
        ("changed", &|lines| lines[at] = lines[at].replace("operator", "0perator")),
        ("removed", &|lines| drop(lines.remove(at))),
        ("reordered", &|lines| lines.swap(at, at + 1)),
        ("inserted", &|lines| lines.insert(at, lines[at].clone())),
        ("truncated", &|lines| lines.truncate(at)),
    ];
    for (name, change) in cases {
        let (code, report) = changed(change);
        assert_eq!(code, Some(1), "{name}: {report}");
        assert!(
            report["first_bad_record"].as_u64().is_some_and(|seq| (9..=12).contains(&seq)),
            "{name}: {report}"
        );
    }
    let kept_holds = node.cli(&["audit", "verify", "--head", kept.to_str().unwrap()]);
    assert!(kept_holds.status.success(), "{}", text(&kept_holds.stdout));
}

#[test]
fn a_database_that_was_touched_is_found_out() {
    let node = TestNode::start();
    for _ in 0..5 {
        node.call("fs.list", json!({"path": "."}));
    }
    let (_, dir) = node.stop();
    let database = data(dir.path()).join("audit.db");
    let touched = Command::new("python3")
        .arg("-c")
        .arg(
            "import sqlite3, sys\n\
             c = sqlite3.connect(sys.argv[1])\n\
             c.execute(\"UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'fs.list', 'fs.read') AS BLOB) WHERE seq = 3\")\n\
             c.commit()",
        )
        .arg(&database)
        .output()
        .unwrap();
    assert!(touched.status.success(), "{}", text(&touched.stderr));
    let verified = cli(&data(dir.path()), &["audit", "verify", "--json"]);
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!(verified.status.code(), Some(1));
    assert_eq!(report["first_bad_record"], 3, "{report}");
}

#[test]
fn events_are_seen_and_a_slow_listener_hurts_nobody() {
    let node = TestNode::start();
    // One that never reads what it is told.
    let _deaf = node.subscribe();
    let mut reader = node.subscribe();
    let mut line = String::new();
    node.call("fs.write", json!({"path": "a", "content": "x"}));
    node.call("fs.read", json!({"path": "../x"}));
    let mut names = Vec::new();
    while names.len() < 6 {
        line.clear();
        reader.read_line(&mut line).unwrap();
        if let Some(name) = line.strip_prefix("event: ") {
            names.push(name.trim().to_owned());
        }
    }
    assert_eq!(
        names,
        [
            "MCPToolEvent::InvocationRequested",
            "StorageEvent::FileWritten",
            "MCPToolEvent::InvocationCompleted",
            "StorageEvent::PathTraversalBlocked",
            "MCPToolEvent::ToolPolicyViolation",
            "SealEvent::PolicyViolationBlocked",
        ]
    );
    let metrics = node.request("GET", "/metrics", Some(&node.token), None).body;
    assert!(metrics.contains("aegis_calls_total{tool=\"fs.write\",status=\"done\"} 1"), "{metrics}");
    assert!(metrics.contains("aegis_refusals_total{violation=\"PathTraversalAttempt\"} 1"), "{metrics}");
}

#[test]
fn a_followed_log_shows_new_records_as_they_come() {
    let node = TestNode::start();
    node.call("fs.write", json!({"path": "before", "content": ""}));
    let mut tail = Command::new(AEGIS)
        .args(["audit", "tail", "--follow", "--json", "--tool", "fs.*"])
        .env("AEGIS_DATA", node.data())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let mut next_call = || loop {
        let record: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if record["entry"]["entry"] == "call" {
            return record["entry"]["arguments"]["path"].clone();
        }
    };
    // The first is there, so from here on the tail follows.
    assert_eq!(next_call(), "before");
    for path in ["one", "two"] {
        node.call("aegis.system.info", json!({}));
        node.call("fs.write", json!({"path": path, "content": ""}));
        assert_eq!(next_call(), path);
    }
    signal(tail.id(), "INT");
    assert_eq!(tail.wait().unwrap().code(), Some(0));
}

#[test]
fn a_label_and_every_verdict_are_in_the_record() {
    let node = TestNode::start();
    node.call("fs.write", json!({"path": "a", "content": "x".repeat(5000)}));
    node.call("fs.read", json!({"path": "a"}));
    let records = node.records();
    let of = |tool: &str| {
        records.iter().find(|r| r["entry"]["entry"] == "call" && r["entry"]["tool"] == tool).unwrap()
    };
    let read = &of("fs.read")["entry"];
    assert_eq!(
        read["label"],
        json!({"trust": "EXTERNAL_UNTRUSTED", "source": "filesystem", "origin": "/workspace/a"})
    );
    let gates: Vec<&str> =
        read["verdicts"].as_array().unwrap().iter().filter_map(|v| v["gate"].as_str()).collect();
    assert_eq!(gates, ["identity", "catalog", "arguments", "policy", "approval"]);
    assert!(read["verdicts"][3]["version"].as_str().unwrap().starts_with("aegis-system-operator@"));
    let content = &of("fs.write")["entry"]["arguments"]["content"];
    assert_eq!((&content["bytes"], content["preview"].as_str().unwrap().len()), (&json!(5000), 64));
    let intent = records.iter().find(|r| r["entry"]["entry"] == "intent").unwrap();
    assert_eq!(intent["entry"]["call"], of("fs.write")["entry"]["call"]);
    assert!(intent["seq"].as_u64() < of("fs.write")["seq"].as_u64(), "the intent is first");
}

/// Whoever deletes the log does not get a clean one in its place.
#[test]
fn a_log_that_is_gone_stops_the_start_until_the_keys_are_moved_away() {
    let node = TestNode::start();
    node.call("fs.list", json!({"path": "/workspace"}));
    let (_, dir) = node.stop();
    let home = data(dir.path());
    std::fs::remove_file(home.join("audit.db")).unwrap();
    let refused = TestNode::try_on(dir.clone()).err().unwrap();
    assert!(refused.contains("audit.db is missing or empty"), "{refused}");
    assert!(refused.contains("move audit.key and audit.pub away"), "{refused}");
    assert!(!home.join("audit.db").exists());
    let found = text(&cli(&home, &["doctor"]).stdout);
    assert!(found.contains("audit.db is missing or empty, and its key is there"), "{found}");
    for name in ["audit.key", "audit.pub"] {
        std::fs::rename(home.join(name), dir.path().join(name)).unwrap();
    }
    let node = TestNode::on(dir);
    assert!(node.log().contains("the audit log begins anew"), "{}", node.log());
    let first = node.records().remove(0);
    assert_eq!(
        (&first["seq"], &first["entry"]["action"]),
        (&json!(1), &json!("audit-begun-anew")),
        "{first}"
    );
}

/// Commands that act as a node, and starts that fail, make a registry and record nothing.
#[test]
fn a_log_in_which_nothing_was_recorded_yet_is_none_that_was_taken_away() {
    let listed = Arc::new(tempfile::tempdir().unwrap());
    for _ in 0..2 {
        let output = cli(&data(listed.path()), &["tools", "list"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    let refused = Arc::new(tempfile::tempdir().unwrap());
    let policies = data(refused.path()).join("policies");
    std::fs::create_dir_all(&policies).unwrap();
    std::fs::write(policies.join("a.cedar"), "forbid").unwrap();
    assert!(TestNode::try_on(refused.clone()).is_err());
    assert!(data(refused.path()).join("registry.db").exists());
    std::fs::remove_file(policies.join("a.cedar")).unwrap();
    for dir in [listed, refused] {
        let node = TestNode::on(dir);
        assert!(!node.log().contains("begins anew"), "{}", node.log());
        let records = node.records();
        assert!(!records.is_empty());
        assert!(records.iter().all(|record| record["entry"]["action"] != "audit-begun-anew"), "{records:?}");
    }
}

#[test]
fn a_configuration_that_is_no_file_is_not_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(data(dir.path())).unwrap();
    let config = data(dir.path()).join("config.yaml");
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let output = cli(&data(dir.path()), &["doctor"]);
    let shown = text(&output.stdout);
    assert!(shown.contains("config.yaml is no regular file"), "{shown}");
}
