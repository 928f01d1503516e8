//! tool.fs-apply-patch: all of it, or nothing.

use aegis_core::FailureKind;
use serde_json::{Value, json};

use crate::node::{Node, leftovers, volume};

async fn patch(node: &Node, text: &str) -> Value {
    node.call("tool.fs-apply-patch", json!({"patch": text})).await.done()
}

#[tokio::test]
async fn one_file_with_hashes_and_where_the_hunk_went() {
    let node = Node::new();
    let file = node.put("src/a.txt", "zero\none\ntwo\nthree\n");
    let text = "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
    let told = patch(&node, text).await;
    assert_eq!(told["path"], "src/a.txt");
    assert_eq!((&told["operation"], &told["changed"]), (&json!("patch"), &json!(true)));
    assert_eq!((&told["sizeBefore"], &told["sizeAfter"]), (&json!(19), &json!(17)));
    assert_eq!(told["hunks"], json!([{"line": 2, "offset": 1, "fuzz": 0, "lineEndsAdapted": false}]));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "zero\none\n2\nthree\n");
    let (kind, message) = node.call("tool.fs-apply-patch", json!({"patch": text})).await.failed();
    assert_eq!(kind, FailureKind::PatchFailed);
    assert!(message.contains("hunk 1 of 1") && message.contains("nothing was changed"), "{message}");
}

#[tokio::test]
async fn a_path_says_which_file_is_meant() {
    let node = Node::new();
    node.put("real.txt", "old\n");
    let text = "--- whatever\n+++ whatever\n@@ -1 +1 @@\n-old\n+new\n";
    let told = node.call("tool.fs-apply-patch", json!({"patch": text, "path": "real.txt"})).await.done();
    assert_eq!(told["path"], "real.txt");
    assert_eq!(std::fs::read_to_string(node.workspace().join("real.txt")).unwrap(), "new\n");
    let two = format!("{text}{}", text.replace("whatever", "other"));
    let (kind, _) =
        node.call("tool.fs-apply-patch", json!({"patch": two, "path": "real.txt"})).await.failed();
    assert_eq!(kind, FailureKind::PatchFailed);
}

const SEVERAL: &str = "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+ONE\n\
    diff --git a/d/new b/d/new\nnew file mode 100755\n--- /dev/null\n+++ b/d/new\n@@ -0,0 +1 @@\n+made\n\
    diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n\
    diff --git a/from b/to\nsimilarity index 50%\nrename from from\nrename to to\n--- a/from\n+++ b/to\n@@ -1 +1 @@\n-f\n+t\n";

fn several(node: &Node) {
    for (name, content) in [("a", "one\n"), ("gone", "bye\n"), ("from", "f\n")] {
        node.put(name, content);
    }
}

fn state(node: &Node) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for name in ["a", "d/new", "gone", "from", "to"] {
        if let Ok(text) = std::fs::read_to_string(node.workspace().join(name)) {
            found.push((name.to_owned(), text));
        }
    }
    found
}

#[tokio::test]
async fn several_files_are_changed_made_deleted_and_renamed_together() {
    let node = Node::new();
    several(&node);
    let before = state(&node);
    let dry = node.call("tool.fs-apply-patch", json!({"patch": SEVERAL, "dryRun": true})).await;
    assert!(dry.events.is_empty());
    assert_eq!(dry.done()["files"].as_array().unwrap().len(), 4);
    assert_eq!(state(&node), before);

    let done = node.call("tool.fs-apply-patch", json!({"patch": SEVERAL})).await;
    assert_eq!(
        done.event_names(),
        [
            "StorageEvent::FileWritten",
            "StorageEvent::FileWritten",
            "StorageEvent::FileDeleted",
            "StorageEvent::FileRenamed",
            "StorageEvent::FileWritten"
        ]
    );
    let told = done.done();
    let files = told["files"].as_array().unwrap();
    assert_eq!(files[2]["hashAfter"], Value::Null);
    assert_eq!(files[3]["renamedFrom"], "/workspace/from");
    assert!(told["notes"][0].as_str().unwrap().contains("executable"));
    let text = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(state(&node), [text("a", "ONE\n"), text("d/new", "made\n"), text("to", "t\n")]);
    assert!(leftovers(&node.workspace()).is_empty());
}

#[tokio::test]
async fn when_one_file_does_not_fit_no_file_is_touched() {
    let node = Node::new();
    for spoil in ["a", "gone", "from"] {
        several(&node);
        node.put(spoil, "something else\n");
        let before = state(&node);
        let (kind, message) = node.call("tool.fs-apply-patch", json!({"patch": SEVERAL})).await.failed();
        assert_eq!(kind, FailureKind::PatchFailed, "{message}");
        assert_eq!(state(&node), before);
    }
    several(&node);
    node.put("d/new", "mine");
    let before = state(&node);
    let (kind, _) = node.call("tool.fs-apply-patch", json!({"patch": SEVERAL})).await.failed();
    assert_eq!(kind, FailureKind::AlreadyExists);
    assert_eq!(state(&node), before);
    std::fs::remove_file(node.workspace().join("from")).unwrap();
    std::fs::remove_file(node.workspace().join("d/new")).unwrap();
    let (kind, _) = node.call("tool.fs-apply-patch", json!({"patch": SEVERAL})).await.failed();
    assert_eq!(kind, FailureKind::NotFound);
    assert!(leftovers(&node.workspace()).is_empty());
}

#[tokio::test]
async fn hostile_patches_are_refused() {
    let node = Node::with(|config, outside| {
        std::fs::create_dir(outside.join("kept")).unwrap();
        std::fs::write(outside.join("kept/f"), "old\n").unwrap();
        config.volumes.push(volume(
            "kept",
            &outside.join("kept"),
            "/workspace/kept",
            aegis_core::config::AccessMode::ReadOnly,
        ));
    });
    node.put("a", "old\n");
    node.put("b", [0xff, b'\n']);
    std::os::unix::fs::symlink("/etc", node.workspace().join("out")).unwrap();
    let on = |path: &str| format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-old\n+new\n");
    for (text, kind) in [
        (on("../../etc/passwd"), FailureKind::PermissionDenied),
        (on("/etc/passwd"), FailureKind::NotFound),
        (on("out/hosts"), FailureKind::PermissionDenied),
        (on("kept/f"), FailureKind::ReadOnlyVolume),
        (on("a") + &on("./a"), FailureKind::PatchFailed),
        (on("a") + &on("../x"), FailureKind::PermissionDenied),
        (on("b"), FailureKind::PatchFailed),
        (
            "diff --git a/a b/a\nindex 1..2\nGIT binary patch\nliteral 1\n".to_owned(),
            FailureKind::PatchFailed,
        ),
        ("no patch at all".to_owned(), FailureKind::PatchFailed),
        (on("a\0b"), FailureKind::StorageError),
    ] {
        let (found, message) = node.call("tool.fs-apply-patch", json!({"patch": text})).await.failed();
        assert_eq!(found, kind, "{text}: {message}");
        assert_eq!(std::fs::read_to_string(node.workspace().join("a")).unwrap(), "old\n");
    }
    let (kind, _) = node
        .call_within(&["/workspace/open"], "tool.fs-apply-patch", json!({"patch": on("a")}))
        .await
        .failed();
    assert_eq!(kind, FailureKind::PermissionDenied);
}

/// The file is not text, and what is not touched stays byte for byte.
#[tokio::test]
async fn other_bytes_survive() {
    let node = Node::new();
    let file = node.put("mixed", b"\xff\xfe\nold\n\x00\n");
    patch(&node, "--- mixed\n+++ mixed\n@@ -2 +2 @@\n-old\n+new\n").await;
    assert_eq!(std::fs::read(file).unwrap(), b"\xff\xfe\nnew\n\x00\n");
}
