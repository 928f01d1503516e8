//! tool.fs-write-file and tool.fs-append-file.

use aegis_core::{FailureKind, quantity::Size};
use serde_json::json;

use crate::node::{Node, leftovers, volume};

const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[tokio::test]
async fn writing_tells_hashes_and_sizes() {
    let node = Node::new();
    let write = |content: &str| json!({"path": "a/b.txt", "content": content});
    let made = node.call("tool.fs-write-file", write("abc")).await;
    assert_eq!(made.event_names(), ["StorageEvent::FileWritten"]);
    assert_eq!(
        made.done(),
        json!({
            "operation": "write", "dryRun": false, "approved": true, "path": "a/b.txt", "wouldChange": true,
            "changed": true, "hashBefore": null, "hashAfter": ABC, "sizeBefore": 0, "sizeAfter": 3
        })
    );
    let same = node.call("tool.fs-write-file", write("abc")).await;
    assert!(same.events.is_empty());
    let same = same.done();
    assert_eq!((&same["changed"], &same["wouldChange"]), (&json!(false), &json!(false)));
    let emptied = node.call("tool.fs-write-file", write("")).await.done();
    assert_eq!((&emptied["hashBefore"], &emptied["hashAfter"]), (&json!(ABC), &json!(EMPTY)));
    assert!(leftovers(&node.workspace().join("a")).is_empty());
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let node = Node::new();
    for (tool, before, after) in [
        ("tool.fs-write-file", None, 3),
        ("tool.fs-append-file", Some("x"), 4),
        ("tool.fs-append-file", None, 3),
    ] {
        let path = node.workspace().join("d/f");
        let _ = std::fs::remove_dir_all(node.workspace().join("d"));
        if let Some(before) = before {
            node.put("d/f", before);
        }
        let told = node.call(tool, json!({"path": "d/f", "content": "abc", "dryRun": true})).await;
        assert!(told.events.is_empty());
        let told = told.done();
        assert_eq!(told["dryRun"], true);
        assert_eq!(
            (&told["wouldChange"], &told["changed"], &told["approved"]),
            (&json!(true), &json!(false), &json!(false))
        );
        assert_eq!(told["sizeAfter"], after);
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), before);
    }
}

#[tokio::test]
async fn appending_keeps_what_is_there_byte_for_byte() {
    let node = Node::new();
    let file = node.put("log", [b"bytes \xff\n".as_slice(), b"no end"].concat());
    let told = node.call("tool.fs-append-file", json!({"path": "log", "content": "+1\n"})).await.done();
    assert_eq!((&told["sizeBefore"], &told["sizeAfter"]), (&json!(14), &json!(17)));
    assert_eq!(std::fs::read(file).unwrap(), b"bytes \xff\nno end+1\n");
    let made = node.call("tool.fs-append-file", json!({"path": "new", "content": "abc"})).await.done();
    assert_eq!((&made["hashBefore"], &made["hashAfter"]), (&json!(null), &json!(ABC)));
}

#[tokio::test]
async fn what_can_not_be_written_is_refused() {
    let node = Node::with(|config, outside| {
        std::fs::create_dir(outside.join("kept")).unwrap();
        config.volumes.push(volume(
            "kept",
            &outside.join("kept"),
            "/workspace/kept",
            aegis_core::config::AccessMode::ReadOnly,
        ));
        config.workspace_size_limit = Size(64 << 10);
    });
    node.put("dir/x", "x");
    std::os::unix::fs::symlink("dir/x", node.workspace().join("link")).unwrap();
    std::os::unix::fs::symlink("/etc", node.workspace().join("out")).unwrap();
    let long = "x".repeat(70 << 10);
    for (path, content, kind) in [
        ("dir", "a", FailureKind::IsADirectory),
        ("kept/a", "a", FailureKind::ReadOnlyVolume),
        ("kept", "a", FailureKind::ReadOnlyVolume),
        ("link", "a", FailureKind::PermissionDenied),
        ("out/passwd", "a", FailureKind::PermissionDenied),
        ("dir/x/y", "a", FailureKind::NotADirectory),
        ("../up", "a", FailureKind::PermissionDenied),
        ("big", long.as_str(), FailureKind::VolumeQuotaExceeded),
        (".aegis-0123456789abcdef0123456789abcdef.part", "a", FailureKind::PermissionDenied),
    ] {
        for tool in ["tool.fs-write-file", "tool.fs-append-file"] {
            let (found, message) = node.call(tool, json!({"path": path, "content": content})).await.failed();
            assert_eq!(found, kind, "{tool} {path}: {message}");
        }
    }
    assert_eq!(std::fs::read_to_string(node.workspace().join("dir/x")).unwrap(), "x");
    let (kind, _) = node
        .call_within(&["/workspace/open"], "tool.fs-write-file", json!({"path": "dir/x", "content": "y"}))
        .await
        .failed();
    assert_eq!(kind, FailureKind::PermissionDenied);
}
