//! tool.fs-rename-file.

use aegis_core::FailureKind;
use serde_json::{Value, json};

use crate::node::{Answer, Node, volume};

fn arguments(from: &str, to: &str) -> Value {
    json!({"fromPath": from, "toPath": to})
}

async fn rename(node: &Node, from: &str, to: &str) -> Answer {
    node.call("tool.fs-rename-file", arguments(from, to)).await
}

fn with_volumes() -> Node {
    Node::with(|config, outside| {
        for (name, mode) in [
            ("other", aegis_core::config::AccessMode::ReadWrite),
            ("kept", aegis_core::config::AccessMode::ReadOnly),
        ] {
            std::fs::create_dir(outside.join(name)).unwrap();
            config.volumes.push(volume(name, &outside.join(name), &format!("/workspace/{name}"), mode));
        }
    })
}

#[tokio::test]
async fn files_and_directories_get_other_names() {
    let node = Node::new();
    node.put("a/x", "x");
    let dry = node
        .call("tool.fs-rename-file", json!({"fromPath": "a", "toPath": "b/c", "dryRun": true}))
        .await
        .done();
    assert_eq!(
        (&dry["wouldChange"], &dry["changed"], &dry["approved"]),
        (&json!(true), &json!(false), &json!(false))
    );
    assert!(!node.workspace().join("b").exists());
    let done = rename(&node, "a", "b/c").await;
    assert_eq!(done.event_names(), ["StorageEvent::FileRenamed"]);
    assert_eq!(done.done()["changed"], true);
    assert_eq!(std::fs::read_to_string(node.workspace().join("b/c/x")).unwrap(), "x");
    assert_eq!(rename(&node, "b/c/x", "y").await.done()["operation"], "rename");
    let same = rename(&node, "y", "./y").await.done();
    assert_eq!((&same["wouldChange"], &same["changed"]), (&json!(false), &json!(false)));
}

#[tokio::test]
async fn nothing_is_ever_replaced_or_left() {
    let node = with_volumes();
    node.put("f", "f");
    node.put("g", "g");
    node.put("dir/sub/x", "x");
    std::os::unix::fs::symlink("/etc", node.workspace().join("out")).unwrap();
    for (from, to, kind) in [
        ("f", "g", FailureKind::AlreadyExists),
        ("f", "dir", FailureKind::AlreadyExists),
        ("dir", "g", FailureKind::AlreadyExists),
        ("dir", "dir/sub/dir", FailureKind::PermissionDenied),
        ("none", "x", FailureKind::NotFound),
        ("f", "../x", FailureKind::PermissionDenied),
        ("../x", "f2", FailureKind::PermissionDenied),
        ("f", "out/f", FailureKind::PermissionDenied),
        ("out/passwd", "passwd", FailureKind::PermissionDenied),
        ("f", "kept/f", FailureKind::ReadOnlyVolume),
        ("dir", "other/dir", FailureKind::PermissionDenied),
        ("/workspace", "w", FailureKind::PermissionDenied),
        ("other", "o", FailureKind::PermissionDenied),
        ("f", "g/h", FailureKind::NotADirectory),
        ("f", ".aegis-0123456789abcdef0123456789abcdef.part", FailureKind::PermissionDenied),
    ] {
        let (found, message) = rename(&node, from, to).await.failed();
        assert_eq!(found, kind, "{from} to {to}: {message}");
    }
    assert_eq!(std::fs::read_to_string(node.workspace().join("g")).unwrap(), "g");
    let (kind, _) = node
        .call_within(&["/workspace/dir"], "tool.fs-rename-file", arguments("dir/sub", "elsewhere"))
        .await
        .failed();
    assert_eq!(kind, FailureKind::PermissionDenied);
}

#[tokio::test]
async fn a_file_goes_to_another_volume_whole() {
    let node = with_volumes();
    let other = node.directory.path().join("other");
    node.put("f", b"\xff content");
    assert_eq!(rename(&node, "f", "other/d/f").await.done()["changed"], true);
    assert_eq!(std::fs::read(other.join("d/f")).unwrap(), b"\xff content");
    assert!(!node.workspace().join("f").exists());
    node.put("f", "mine");
    let (kind, _) = rename(&node, "f", "other/d/f").await.failed();
    assert_eq!(kind, FailureKind::AlreadyExists);
    assert_eq!(std::fs::read(other.join("d/f")).unwrap(), b"\xff content");
}
