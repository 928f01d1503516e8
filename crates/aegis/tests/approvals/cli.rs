use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use super::Scene;
use crate::common::{AEGIS, TestNode, cli, text, write_config};

const WRITE: &str = r#"{"path": "a.txt", "content": "one\n\u001b[2Jtwo\n"}"#;

/// A command as the agent, begun and left to itself.
fn begun(scene: &Scene, arguments: &[&str]) -> Child {
    Command::new(AEGIS)
        .args(arguments)
        .env("AEGIS_DATA", scene.node.data())
        .env("AEGIS_TOKEN", &scene.agent)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn as_agent(scene: &Scene, arguments: &[&str]) -> Output {
    begun(scene, arguments).wait_with_output().unwrap()
}

fn ended(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

/// The one request that waits.
fn waiting(scene: &Scene) -> String {
    loop {
        let found = scene.node.cli(&["approvals", "list", "--json"]);
        let found: Value = serde_json::from_slice(&found.stdout).unwrap();
        if let Some(id) = found["approvals"][0]["id"].as_str() {
            return id.to_owned();
        }
    }
}

/// Ids, times and hashes differ from run to run.
fn steady(scene: &Scene, id: &str, shown: &str) -> String {
    let mut steady = String::new();
    for word in shown
        .replace(id, "APPROVAL")
        .replace(&scene.node.address, "ADDRESS")
        .split_inclusive([' ', '\n', '(', ')', ','])
    {
        let bare = word.trim_end_matches([' ', '\n', '(', ')', ',']);
        let end = &word[bare.len()..];
        let hex = bare.len() >= 12 && bare.bytes().all(|byte| byte.is_ascii_hexdigit());
        let word = match bare {
            _ if bare.starts_with("20") && bare.ends_with('Z') => "TIME",
            _ if bare.starts_with("tok_") => "TOKEN-ID",
            _ if bare.starts_with("standing:") => "STANDING",
            _ if hex => "HASH",
            _ => bare.split_once('@').filter(|(_, version)| version.len() > 7).map_or(bare, |(name, _)| name),
        };
        steady += word;
        steady += end;
    }
    let from = steady.find("pending, ").map(|at| at + "pending, ".len());
    let to = steady.find(" left (until");
    match (from, to) {
        (Some(from), Some(to)) if from < to => format!("{}LONG{}", &steady[..from], &steady[to..]),
        _ => steady,
    }
}

#[test]
fn one_process_waits_and_another_decides() {
    let scene = Scene::new();
    let caller = begun(&scene, &["call", "--wait", "fs.write", WRITE]);
    let id = waiting(&scene);
    let (code, told) = ended(&scene.node.cli(&["approvals", "approve", &id]));
    assert!(code == Some(0) && told.contains("its call has run, and ann gets the answer"), "{told}");
    let (code, shown) = ended(&caller.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("\"bytes_written\""), "{shown}");
    assert!(scene.content("a.txt").is_some());

    let caller = begun(&scene, &["call", "--wait", "--json", "fs.delete", r#"{"path": "a.txt"}"#]);
    let id = waiting(&scene);
    let rejected = ended(&scene.node.cli(&["approvals", "reject", &id, "--reason", "keep it"]));
    assert_eq!(rejected.0, Some(0), "{}", rejected.1);
    let (code, shown) = ended(&caller.wait_with_output().unwrap());
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains("keep it"), "{shown}");
    assert!(scene.content("a.txt").is_some());
}

#[test]
fn a_call_that_waits_says_what_to_do_next() {
    let scene = Scene::new();
    let (code, shown) = ended(&as_agent(&scene, &["call", "fs.write", WRITE]));
    let id = waiting(&scene);
    assert_eq!(code, Some(4));
    insta::assert_snapshot!("call_waits", steady(&scene, &id, &shown));
    let as_json = as_agent(&scene, &["call", "--json", "fs.write", WRITE]);
    let value: Value = serde_json::from_slice(&as_json.stdout).unwrap();
    assert_eq!((as_json.status.code(), &value["result"]["pendingApproval"]), (Some(4), &json!(true)));
    assert_eq!(ended(&as_agent(&scene, &["approvals", "wait", &id, "--timeout", "1s"])).0, Some(4));
    let own = ended(&as_agent(&scene, &["approvals", "approve", &id]));
    assert_eq!(own.0, Some(3), "{}", own.1);
    insta::assert_snapshot!("approve_own", steady(&scene, &id, &own.1));

    let page = ended(&scene.node.cli(&["approvals", "show", &id]));
    assert_eq!(page.0, Some(0));
    assert!(!page.1.contains('\u{1b}'), "{}", page.1);
    insta::assert_snapshot!("show", steady(&scene, &id, &page.1));
    let list = ended(&scene.node.cli(&["approvals", "list"])).1;
    assert!(list.contains(&id) && list.contains("ann of local"), "{list}");

    scene.approve(&id);
    let collected = ended(&as_agent(&scene, &["approvals", "wait", &id]));
    assert_eq!(collected.0, Some(0), "{}", collected.1);
    assert!(collected.1.contains("bytes_written"), "{}", collected.1);
    let decided = ended(&scene.node.cli(&["approvals", "reject", &id, "--reason", "x"]));
    assert_eq!(decided.0, Some(1), "{}", decided.1);
    let unknown = ended(&scene.node.cli(&["approvals", "show", "approval:nothing"]));
    assert_eq!(unknown.0, Some(2), "{}", unknown.1);
}

#[test]
fn an_operators_own_request_is_no_dead_end() {
    let node = TestNode::start();
    let call = ["call", "tool.fs-write-file", r#"{"path": "a.txt", "content": "x"}"#];
    let (code, shown) = ended(&node.cli(&call));
    assert_eq!(code, Some(4), "{shown}");
    let list = node.cli(&["approvals", "list", "--json"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let id = list["approvals"][0]["id"].as_str().unwrap();
    for way in [format!("aegis approvals cancel {id}"), "another approver".into(), "--context".into()] {
        assert!(shown.contains(&way), "{way}: {shown}");
    }
    let (code, shown) = ended(&node.cli(&["approvals", "approve", id]));
    assert_eq!(code, Some(3), "{shown}");
    assert!(shown.contains(&format!("aegis approvals cancel {id}")), "{shown}");
    let answer = node.call("tool.fs-write-file", json!({"path": "a.txt", "content": "x"}));
    assert!(answer.body.contains(&format!("aegis approvals cancel {id}")), "{}", answer.body);
    assert_eq!(ended(&node.cli(&["approvals", "cancel", id])).0, Some(0));
}

#[test]
fn a_failure_of_the_call_is_told_as_such() {
    let scene = Scene::new();
    let caller = begun(&scene, &["call", "--wait", "fs.delete", r#"{"path": "nowhere"}"#]);
    let id = waiting(&scene);
    scene.approve(&id);
    let (code, shown) = ended(&caller.wait_with_output().unwrap());
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("NOT_FOUND"), "{shown}");
}

#[test]
fn settled_for_a_while() {
    let scene = Scene::new();
    as_agent(&scene, &["call", "fs.write", WRITE]);
    let id = waiting(&scene);
    let always = ended(&scene.node.cli(&["approvals", "always", &id, "--until", "1h", "--note", "fine"]));
    assert_eq!(always.0, Some(0), "{}", always.1);
    assert!(always.1.contains("is approved"), "{}", always.1);
    scene.ended(&id);
    let at_once = ended(&as_agent(&scene, &["call", "fs.write", WRITE]));
    assert_eq!(at_once.0, Some(0), "{}", at_once.1);
    let other = as_agent(&scene, &["call", "fs.write", r#"{"path": "b.txt", "content": ""}"#]);
    assert_eq!(other.status.code(), Some(4));

    let rows = scene.node.cli(&["approvals", "standing", "--json"]);
    let rows: Value = serde_json::from_slice(&rows.stdout).unwrap();
    let standing = rows["standing"][0]["id"].as_str().unwrap();
    let shown = ended(&scene.node.cli(&["approvals", "standing"])).1;
    assert!(shown.contains(standing) && shown.contains("fine") && !shown.contains('\u{1b}'), "{shown}");
    assert_eq!(ended(&scene.node.cli(&["approvals", "revoke", standing])).0, Some(0));
    assert_eq!(as_agent(&scene, &["call", "fs.write", WRITE]).status.code(), Some(4));

    // What was made is named, also when the request can't be approved any more.
    let id = waiting(&scene);
    assert_eq!(ended(&scene.node.cli(&["approvals", "reject", &id, "--reason", "not again"])).0, Some(0));
    let late = ["approvals", "always", &id, "--arguments", r#"{"path": "c.txt"}"#, "--json"];
    let late = scene.node.cli(&late);
    let told: Value = serde_json::from_slice(&late.stdout).unwrap();
    assert_eq!(late.status.code(), Some(1), "{told}");
    assert!(told["standing"]["id"].as_str().unwrap().starts_with("standing:"), "{told}");
    assert_eq!(told["error"]["data"]["violation"], "ApprovalDecided", "{told}");

    let pattern = r#"{"path": {"prefix": "/workspace/x/"}}"#;
    let made = ended(&scene.node.cli(&[
        "approvals",
        "always",
        "--tool",
        "fs.write",
        "--user",
        "ann",
        "--arguments",
        pattern,
    ]));
    assert_eq!(made.0, Some(0), "{}", made.1);
    assert!(
        made.1.contains("every call of fs.write by ann of tenant local where path begins with"),
        "{}",
        made.1
    );
    let always = ["approvals", "always", "--tool", "fs.write"];
    assert_eq!(ended(&scene.node.cli(&always)).0, Some(2));
    let unsaid = ended(&scene.node.cli(&[&always[..], &["--user", "ann"]].concat()));
    assert!(unsaid.0 == Some(2) && unsaid.1.contains("--any-arguments"), "{}", unsaid.1);
    let any = ended(&scene.node.cli(&[&always[..], &["--user", "ann", "--any-arguments"]].concat()));
    assert!(any.0 == Some(0) && any.1.contains("with any arguments whatever"), "{}", any.1);
    let shown = ended(&scene.node.cli(&["approvals", "standing"])).1;
    assert!(!shown.contains(standing), "{shown}");
    let shown = ended(&scene.node.cli(&["approvals", "standing", "--all"])).1;
    assert!(shown.contains(standing) && shown.contains("revoked"), "{shown}");
    let bad = ["approvals", "always", "--tool", "fs.write", "--user", "ann", "--arguments", "path"];
    assert_eq!(ended(&scene.node.cli(&bad)).0, Some(2));
}

#[test]
fn without_a_node_nobody_can_be_asked() {
    let dir = tempfile::tempdir().unwrap();
    write_config(dir.path(), super::CAREFUL);
    let config = dir.path().join("config.yaml");
    let data = dir.path().join("data");
    let call = ["call", "--config", config.to_str().unwrap(), "--context", "careful", "fs.write", WRITE];
    let (code, shown) = ended(&cli(&data, &call));
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("aegis up"), "{shown}");
    let (code, shown) = ended(&cli(&data, &["approvals", "list"]));
    assert_eq!(code, Some(1));
    assert!(shown.contains("start it with `aegis up --data "), "{shown}");
}
