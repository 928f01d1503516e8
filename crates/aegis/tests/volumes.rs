//! Volumes handed out over NFS by a real node, and the tools that write files: from the command line to the disk.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use std::process::Command;

use common::{TestNode, text};
use serde_json::{Value, json};

const NFS: &str = "  storage: {nfs: {enabled: true, listen: \"127.0.0.1:0\"}}";

fn nfs(program: &str, arguments: &[&str]) -> std::process::Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/test installs libnfs-utils"))
}

#[test]
fn an_export_is_made_used_and_ended() {
    let node = TestNode::with_config(NFS);
    assert_eq!(
        node.call("fs.write", json!({"path": "notes/a.txt", "content": "from the node\n"})).status,
        200
    );
    let made = node.cli(&["volume", "export", "--context", "workspace", "--ttl", "10m", "--json"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let id = made["id"].as_str().unwrap();
    assert!(id.starts_with("export:") && made["mount_command"].as_str().unwrap().starts_with("mount -t nfs"));
    let base = format!("nfs://127.0.0.1{}", made["mount_path"].as_str().unwrap());
    let port = made["address"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let url = |path: &str| format!("{base}{path}?version=3&nfsport={port}&mountport={port}");

    let read = nfs("nfs-cat", &[&url("/notes/a.txt")]);
    assert_eq!(text(&read.stdout), "from the node\n", "{}", text(&read.stderr));
    let local = node.data().join("local.txt");
    std::fs::write(&local, "from elsewhere\n").unwrap();
    let copied = nfs("nfs-cp", &[local.to_str().unwrap(), &url("/notes/b.txt")]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert_eq!(node.call("fs.read", json!({"path": "notes/b.txt"})).result()["content"], "from elsewhere\n");

    let listed = text(&node.cli(&["volume", "list"]).stdout);
    assert!(listed.contains(id) && listed.contains("local/workspace"), "{listed}");
    assert!(!listed.contains(made["mount_path"].as_str().unwrap()));
    let listed: Value = serde_json::from_slice(&node.cli(&["volume", "list", "--json"]).stdout).unwrap();
    assert_eq!(
        (&listed["total"], &listed["exports_total"], &listed["nfs"]),
        (&json!(1), &json!(1), &json!(true))
    );
    let volumes = node.request("GET", "/v1/volumes", Some(&node.token), None).json();
    assert_eq!(volumes["volumes"][0]["mount_path"], "/workspace");

    let ended = node.cli(&["volume", "unexport", id]);
    assert!(text(&ended.stdout).contains("has ended"), "{}", text(&ended.stderr));
    assert!(!nfs("nfs-cat", &[&url("/notes/a.txt")]).status.success());
    let listed = text(&node.cli(&["volume", "list"]).stdout);
    assert!(listed.contains("aegis volume export"), "{listed}");
    let again = node.cli(&["volume", "unexport", id]);
    assert_eq!(again.status.code(), Some(2), "{}", text(&again.stderr));
    let slip = node.cli(&["volume", "export", "--context", "workspace", "--volume", "local/worksapce"]);
    assert_eq!(slip.status.code(), Some(2));
    let told = text(&slip.stderr);
    assert!(told.contains("did you mean `local/workspace`?") && told.contains("aegis volume list"), "{told}");

    // Only operators.
    let token = node.make_token("workspace");
    for (method, path) in
        [("GET", "/v1/volumes"), ("GET", "/v1/volumes/exports"), ("POST", "/v1/volumes/exports")]
    {
        let body = (method == "POST").then(|| json!({"context": "workspace"}));
        assert_eq!(
            node.request(method, path, Some(&token), body.as_ref()).violation(),
            "OperatorOnly",
            "{path}"
        );
    }
    let records = node.records();
    let asked = |name: &str| records.iter().any(|record| record["entry"]["asked_as"] == name);
    assert!(asked("nfs.create") && asked("nfs.write"), "no record of what was written");
    let action = |name: &str| records.iter().any(|record| record["entry"]["action"] == name);
    assert!(action("volume-exported") && action("volume-unexported") && action("unauthorized-volume-access"));
    let (code, _dir) = node.stop();
    assert_eq!(code, Some(0));
}

#[test]
fn a_node_that_speaks_no_nfs_says_so() {
    let node = TestNode::start();
    let refused = node.cli(&["volume", "export", "--context", "workspace"]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("spec.storage.nfs.enabled"), "{}", text(&refused.stderr));
}

const WRITERS: &str = "  security_contexts:
    - name: writers
      capabilities:
        - {tool_pattern: \"tool.*\", path_allowlist: [/workspace/src], approval: not_required}
      deny_list: [\"tool.fs-apply-patch:/workspace/src/keys\"]
    - name: careful
      capabilities:
        - {tool_pattern: \"tool.*\", path_allowlist: [/workspace]}";

fn patch(path: &str) -> String {
    format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-old\n+new\n")
}

/// What a patch names is what policy looks at, whichever way it is named.
#[test]
fn policy_sees_every_file_of_a_patch() {
    let node = TestNode::with_config(WRITERS);
    for path in ["src/a", "src/keys/k", "other"] {
        assert_eq!(node.call("fs.write", json!({"path": path, "content": "old\n"})).status, 200);
    }
    let token = node.make_token("writers");
    let apply = |arguments: Value| node.call_as(&token, "tool.fs-apply-patch", arguments);
    for (text, violation) in [
        (patch("other"), "PathOutsideBoundary"),
        (patch("src/a") + &patch("other"), "PathOutsideBoundary"),
        (patch("src/keys/k"), "ToolExplicitlyDenied"),
        (patch("../../etc/passwd"), "PathTraversalAttempt"),
        (patch("src/../other"), "PathTraversalAttempt"),
        (
            "diff --git a/src/a b/other\nrename from src/a\nrename to other2\n".to_owned(),
            "PathOutsideBoundary",
        ),
        (
            "--- src/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n".to_owned() + &patch("other"),
            "PathOutsideBoundary",
        ),
        ("no patch".to_owned(), "InvalidArguments"),
        (
            "diff --git a/src/a b/src/a\nindex 1..2\nGIT binary patch\nliteral 0\n".to_owned(),
            "InvalidArguments",
        ),
    ] {
        assert_eq!(apply(json!({"patch": text})).violation(), violation, "{text}");
    }
    // A path that is given stands for the names in the patch.
    assert_eq!(
        apply(json!({"path": "src/keys/k", "patch": patch("src/a")})).violation(),
        "ToolExplicitlyDenied"
    );
    assert_eq!(apply(json!({"path": "src/a", "patch": patch("other")})).status, 200);
    let renamed = node.call_as(&token, "tool.fs-rename-file", json!({"fromPath": "src/a", "toPath": "a"}));
    assert_eq!(renamed.violation(), "PathOutsideBoundary");
    for (path, content) in [("other", "old\n"), ("src/keys/k", "old\n"), ("src/a", "new\n")] {
        assert_eq!(std::fs::read_to_string(node.workspace().join(path)).unwrap(), content);
    }
}

#[test]
fn an_approver_sees_the_change_and_a_rehearsal_asks_nobody() {
    let node = TestNode::with_config(WRITERS);
    for path in ["a", "b"] {
        assert_eq!(node.call("fs.write", json!({"path": path, "content": "old\n"})).status, 200);
    }
    let token = node.make_token("careful");
    let both = patch("a") + &patch("b");
    let dry = node.call_as(&token, "tool.fs-apply-patch", json!({"patch": both, "dryRun": true}));
    assert_eq!((dry.status, &dry.result()["wouldChange"]), (200, &json!(true)), "{}", dry.body);
    for (tool, arguments, shown) in [
        ("tool.fs-apply-patch", json!({"patch": both}), "+++ /workspace/b"),
        ("tool.fs-write-file", json!({"path": "a", "content": "new\n"}), "-old\n+new\n"),
        ("tool.fs-append-file", json!({"path": "a", "content": "more\n"}), " old\n+more\n"),
        ("tool.fs-rename-file", json!({"fromPath": "a", "toPath": "c"}), "rename from a\nrename to c\n"),
    ] {
        let parked = node.call_as(&token, tool, arguments);
        assert_eq!(parked.status, 202, "{tool}: {}", parked.body);
        let id = parked.json()["approval"]["id"].as_str().unwrap().to_owned();
        let seen = node.request("GET", &format!("/v1/approvals/{id}"), Some(&node.token), None).json();
        let diff = seen["preview"]["text"].as_str().unwrap_or_default();
        assert!(diff.contains(shown), "{tool}: {seen}");
    }
    assert_eq!(std::fs::read_to_string(node.workspace().join("a")).unwrap(), "old\n");
}
