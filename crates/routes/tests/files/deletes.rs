use std::os::fd::{AsFd, OwnedFd};

use aegis_core::{FailureKind, config::AccessMode};
use rustix::fs::{CWD, Mode, OFlags};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::node::{Node, volume};

#[tokio::test]
async fn files_links_and_trees_are_deleted() {
    let node = Node::new();
    node.put("tree/a/b/c", "12345");
    node.put("tree/d", "123");
    node.put("kept", "x");
    std::fs::create_dir(node.workspace().join("empty")).unwrap();
    std::os::unix::fs::symlink("../kept", node.workspace().join("tree/link")).unwrap();
    std::os::unix::fs::symlink("kept", node.workspace().join("link")).unwrap();
    let (kind, message) = node.call("fs.delete", json!({"path": "tree"})).await.failed();
    assert_eq!(kind, FailureKind::DirectoryNotEmpty, "{message}");
    let answer = node.call("fs.delete", json!({"path": "tree", "recursive": true})).await;
    assert_eq!(answer.event_names(), ["StorageEvent::FileDeleted"]);
    assert_eq!(answer.events[0].detail["bytes"], 8);
    assert_eq!(answer.done(), json!({"status": "success", "path": "/workspace/tree", "deleted": 6}));
    node.call("fs.delete", json!({"path": "empty"})).await.done();
    node.call("fs.delete", json!({"path": "link", "recursive": true})).await.done();
    let names: Vec<_> =
        std::fs::read_dir(node.workspace()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept"]);
    let (kind, _) = node.call("fs.delete", json!({"path": "link"})).await.failed();
    assert_eq!(kind, FailureKind::NotFound);
}

#[tokio::test]
async fn mount_points_stay() {
    let node = Node::with(|config, outside| {
        std::fs::create_dir(outside.join("shared")).unwrap();
        std::fs::write(outside.join("shared/file"), "x").unwrap();
        config.volumes.push(volume(
            "shared",
            &outside.join("shared"),
            "/workspace/a/shared",
            AccessMode::ReadWrite,
        ));
    });
    node.put("a/file", "x");
    for path in ["/workspace", "a/shared", "a"] {
        let (kind, _) = node.call("fs.delete", json!({"path": path, "recursive": true})).await.failed();
        assert_eq!(kind, FailureKind::PermissionDenied, "{path}");
    }
    node.call("fs.delete", json!({"path": "a/shared/file"})).await.done();
    assert!(!node.directory.path().join("shared/file").exists());
    assert!(node.workspace().join("a/file").exists());
}

#[tokio::test]
async fn a_tree_deeper_than_any_path_is_no_problem() {
    // Also more levels than descriptors. (Kernels take a time that grows with the square of the depth.)
    const LEVELS: u64 = 4000;
    let node = Node::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at: OwnedFd = rustix::fs::openat(CWD, node.workspace(), flags, Mode::empty()).unwrap();
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(at.as_fd(), "deep", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "deep", flags, Mode::empty()).unwrap();
    }
    rustix::fs::openat(&at, "needle", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    // What is too deep for any path is passed by, not a crash.
    assert_eq!(node.call("fs.glob", json!({"path": ".", "pattern": "needle"})).await.text(), "");
    let deleted = node.call("fs.delete", json!({"path": "deep", "recursive": true})).await.done();
    assert_eq!(deleted["deleted"], LEVELS + 1);
}

#[tokio::test]
async fn a_cancelled_delete_says_how_far_it_came() {
    let node = Node::new();
    node.put("tree/a/b", "x");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let arguments = json!({"path": "tree", "recursive": true});
    let (kind, _) = node.call_as("local", &[], "fs.delete", arguments, &cancel).await.failed();
    assert_eq!(kind, FailureKind::Timeout);
    assert!(node.workspace().join("tree/a/b").exists());
}
