use std::os::unix::fs::PermissionsExt;

use aegis_core::{
    FailureKind,
    config::{AccessMode, StorageConfig},
    quantity::Size,
};
use aegis_routes::files::{Files, PER_ENTRY, VolumeError};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::node::{Node, leftovers, scratch, volume};

#[tokio::test]
async fn each_tenant_has_a_workspace_of_its_own() {
    let node = Node::new();
    let none = CancellationToken::new();
    let write = json!({"path": "note", "content": "mine"});
    node.call_as("acme", &[], "fs.write", write, &none).await.done();
    let read = json!({"path": "note"});
    assert_eq!(node.call_as("acme", &[], "fs.read", read.clone(), &none).await.done()["content"], "mine");
    let (kind, _) = node.call_as("other", &[], "fs.read", read.clone(), &none).await.failed();
    assert_eq!(kind, FailureKind::NotFound);
    let workspace = node.directory.path().join("volumes/acme/workspace");
    assert_eq!(workspace.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    // A tenant's name never becomes a path.
    let (kind, _) = node.call_as("../acme", &[], "fs.read", read, &none).await.failed();
    assert_eq!(kind, FailureKind::StorageError);
}

#[tokio::test]
async fn more_tenants_than_are_held_open_still_find_their_files() {
    let node = Node::new();
    let none = CancellationToken::new();
    let write = json!({"path": "note", "content": "mine"});
    node.call_as("first", &[], "fs.write", write, &none).await.done();
    for index in 0..1100 {
        let list = json!({"path": "."});
        node.call_as(&format!("t{index}"), &[], "fs.list", list, &none).await.done();
    }
    let answer = node.call_as("first", &[], "fs.read", json!({"path": "note"}), &none).await.done();
    assert_eq!(answer["content"], "mine");
}

#[tokio::test]
async fn configured_volumes_are_laid_over_the_workspace() {
    let node = Node::with(|config, outside| {
        for name in ["shared", "theirs", "own"] {
            std::fs::create_dir(outside.join(name)).unwrap();
            std::fs::write(outside.join(name).join("file"), name).unwrap();
        }
        let mount = |name: &str, at: &str| volume(name, &outside.join(name), at, AccessMode::ReadWrite);
        let mut theirs = mount("theirs", "/workspace/shared");
        theirs.tenant = Some("acme".into());
        theirs.size_limit = Some(Size(10 + 2 * PER_ENTRY));
        let mut own = mount("own", "/workspace");
        own.tenant = Some("whole".into());
        config.volumes = vec![mount("shared", "/workspace/shared"), theirs, own];
    });
    let none = CancellationToken::new();
    for (tenant, path, content) in [
        ("local", "shared/file", "shared"),
        ("acme", "shared/file", "theirs"),
        ("whole", "file", "own"),
        ("whole", "shared/file", "shared"),
    ] {
        let answer = node.call_as(tenant, &[], "fs.read", json!({"path": path}), &none).await;
        assert_eq!(answer.done()["content"], content, "{tenant} {path}");
    }
    // No workspace is made where a volume replaces it.
    assert!(!node.directory.path().join("volumes/whole").exists());
    node.put("other", "x");
    let listing = node.call("fs.list", json!({"path": "."})).await.done();
    assert_eq!(
        listing["entries"],
        json!([{"name": "other", "file_type": "file"}, {"name": "shared", "file_type": "directory"}])
    );
    let write = json!({"path": "shared/new", "content": "12345"});
    let (kind, _) = node.call_as("acme", &[], "fs.write", write, &none).await.failed();
    assert_eq!(kind, FailureKind::VolumeQuotaExceeded);
}

#[tokio::test]
async fn a_directory_that_is_there_only_for_a_mount_is_listed() {
    let node = Node::with(|config, outside| {
        std::fs::create_dir(outside.join("shared")).unwrap();
        config.volumes =
            vec![volume("shared", &outside.join("shared"), "/workspace/a/b", AccessMode::ReadOnly)];
    });
    for (path, name) in [(".", "a"), ("a", "b")] {
        let listing = node.call("fs.list", json!({"path": path})).await.done();
        assert_eq!(listing["entries"], json!([{"name": name, "file_type": "directory"}]));
    }
}

#[test]
fn a_volume_that_is_not_there_is_a_clear_error() {
    let directory = scratch();
    let mut config = StorageConfig::default();
    config.volumes.push(volume(
        "gone",
        &directory.path().join("gone"),
        "/workspace/gone",
        AccessMode::ReadOnly,
    ));
    let error = Files::new(directory.path().join("volumes"), &config).unwrap_err();
    assert!(matches!(error, VolumeError::HostPath { .. }));
    let message = error.to_string();
    assert!(message.contains("`gone`") && message.contains("host_path"), "{message}");
}

#[tokio::test]
async fn what_a_killed_node_left_is_swept_and_nothing_else() {
    let directory = scratch();
    let shared = directory.path().join("shared");
    std::fs::create_dir_all(shared.join("deep")).unwrap();
    let mut config = StorageConfig::default();
    config.volumes.push(volume("shared", &shared, "/workspace/shared", AccessMode::ReadWrite));
    let node = Node::start(directory, &config);
    node.call("fs.write", json!({"path": "file", "content": "x"})).await.done();
    // A kill: the node is gone without having ended, and a writer with it.
    let directory = node.kill();
    let half = ".aegis-0123456789abcdef0123456789abcdef.part";
    let workspace = directory.path().join("volumes/local/workspace");
    for place in [&workspace, &shared.join("deep")] {
        std::fs::write(place.join(half), "half").unwrap();
    }
    // Somebody else's writer is still at work on this one, and holds it.
    let living = ".aegis-ffffffffffffffffffffffffffffffff.part";
    let held = std::fs::File::create(shared.join(living)).unwrap();
    held.lock().unwrap();
    std::fs::write(workspace.join(".aegis-notes"), "the user's own").unwrap();

    let node = Node::start(directory, &config);
    node.files.wait_until_swept();
    assert_eq!(leftovers(&workspace), [".aegis-notes"]);
    assert_eq!(leftovers(&shared.join("deep")), Vec::<String>::new());
    assert_eq!(leftovers(&shared), [living]);
    // A node that ends well leaves no mark, so the next one need not look.
    let directory = node.stop();
    assert!(!directory.path().join("volumes/.unswept").exists());
}
