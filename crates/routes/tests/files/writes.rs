use std::{
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
    sync::Arc,
};

use aegis_core::{FailureKind, TrustClass, config::AccessMode, quantity::Size};
use aegis_routes::files::PER_ENTRY;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::node::{Node, is_root, leftovers, scratch, volume};

#[tokio::test]
async fn a_write_makes_parents_and_replaces_the_whole_content() {
    let node = Node::new();
    let answer = node.call("fs.write", json!({"path": "a/b/out.txt", "content": "hello world\n"})).await;
    assert_eq!(answer.event_names(), ["StorageEvent::FileWritten"]);
    assert_eq!(answer.label.trust, TrustClass::ControlTrusted);
    assert_eq!(
        answer.done(),
        json!({"status": "success", "path": "/workspace/a/b/out.txt", "bytes_written": 12})
    );
    let path = node.workspace().join("a/b/out.txt");
    node.call("fs.write", json!({"path": "a/b/out.txt", "content": "short"})).await.done();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "short");
    node.call("fs.write", json!({"path": "a/b/out.txt", "content": ""})).await.done();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(leftovers(path.parent().unwrap()), Vec::<String>::new());
}

#[tokio::test]
async fn mode_and_owner_are_kept() {
    let node = Node::new();
    let path = node.put("script", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
    if is_root() {
        chown(&path, Some(1234), Some(2345)).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4751)).unwrap();
    }
    let before = path.metadata().unwrap();
    for (tool, arguments) in [
        ("fs.write", json!({"path": "script", "content": "new"})),
        ("fs.edit", json!({"path": "script", "target_content": "new", "replacement_content": "newer"})),
    ] {
        node.call(tool, arguments).await.done();
        let after = path.metadata().unwrap();
        assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
        // New content never inherits the right to act as the file's owner.
        assert_eq!(after.mode() & 0o7777, 0o751);
    }
    if is_root() {
        // New files and directories belong to whom the directory belongs.
        let directory = node.workspace().join("theirs");
        std::fs::create_dir(&directory).unwrap();
        chown(&directory, Some(1234), Some(2345)).unwrap();
        node.call("fs.write", json!({"path": "theirs/new/file", "content": "x"})).await.done();
        for name in ["new", "new/file"] {
            let made = directory.join(name).metadata().unwrap();
            assert_eq!((made.uid(), made.gid()), (1234, 2345), "{name}");
        }
    }
}

#[tokio::test]
async fn what_can_not_be_written_says_why_and_stays() {
    let node = Node::with(|config, outside| {
        std::fs::create_dir(outside.join("shared")).unwrap();
        std::fs::write(outside.join("shared/file"), "kept").unwrap();
        config.volumes.push(volume(
            "shared",
            &outside.join("shared"),
            "/workspace/shared",
            AccessMode::ReadOnly,
        ));
    });
    let protected = node.put("protected", "kept");
    std::fs::set_permissions(&protected, std::fs::Permissions::from_mode(0o444)).unwrap();
    node.put("directory/file", "x");
    let reserved = ".aegis-0123456789abcdef0123456789abcdef.part";
    for (tool, arguments, kind) in [
        ("fs.write", json!({"path": "protected", "content": "x"}), FailureKind::PermissionDenied),
        (
            "fs.edit",
            json!({"path": "protected", "target_content": "kept", "replacement_content": "x"}),
            FailureKind::PermissionDenied,
        ),
        ("fs.write", json!({"path": "directory", "content": "x"}), FailureKind::IsADirectory),
        ("fs.write", json!({"path": "/workspace", "content": "x"}), FailureKind::PermissionDenied),
        ("fs.write", json!({"path": "directory/file/below", "content": "x"}), FailureKind::NotADirectory),
        ("fs.write", json!({"path": reserved, "content": "x"}), FailureKind::PermissionDenied),
        ("fs.write", json!({"path": "shared/file", "content": "x"}), FailureKind::ReadOnlyVolume),
        ("fs.write", json!({"path": "shared/new", "content": "x"}), FailureKind::ReadOnlyVolume),
        (
            "fs.edit",
            json!({"path": "shared/file", "target_content": "kept", "replacement_content": "x"}),
            FailureKind::ReadOnlyVolume,
        ),
        ("fs.delete", json!({"path": "shared/file"}), FailureKind::ReadOnlyVolume),
        ("fs.create_dir", json!({"path": "shared/new"}), FailureKind::ReadOnlyVolume),
        ("fs.create_dir", json!({"path": "directory/file"}), FailureKind::NotADirectory),
    ] {
        let (said, message) = node.call(tool, arguments).await.failed();
        assert_eq!(said, kind, "{tool}: {message}");
    }
    assert_eq!(std::fs::read_to_string(&protected).unwrap(), "kept");
    assert_eq!(node.call("fs.read", json!({"path": "shared/file"})).await.done()["content"], "kept");
}

#[tokio::test]
async fn directories_are_made_with_their_parents_once() {
    let node = Node::new();
    let answer = node.call("fs.create.dir", json!({"path": "build/logs"})).await;
    assert_eq!(answer.event_names(), ["StorageEvent::DirectoryCreated"]);
    assert_eq!(answer.done(), json!({"status": "success", "path": "/workspace/build/logs", "created": true}));
    for path in ["build/logs", "build", "/workspace"] {
        assert_eq!(node.call("fs.create_dir", json!({"path": path})).await.done()["created"], false);
    }
}

#[tokio::test]
async fn the_quota_counts_net_use() {
    let limit = 100 + 3 * PER_ENTRY;
    let node = Node::with(|config, _| config.workspace_size_limit = Size(limit));
    node.put("there before", "0123456789");
    node.put("empty", "");
    node.call("fs.write", json!({"path": "a", "content": "x".repeat(60)})).await.done();
    let refused = node.call("fs.write", json!({"path": "b", "content": "x".repeat(31)})).await;
    assert_eq!(refused.event_names(), ["StorageEvent::QuotaExceeded"]);
    assert_eq!(
        serde_json::Value::Object(refused.events[0].detail.clone()),
        json!({
            "path": "/workspace/b",
            "volume": "local/workspace",
            "bytes": 31 + PER_ENTRY,
            "used": 70 + 3 * PER_ENTRY,
            "limit": limit,
        })
    );
    let (kind, message) = refused.failed();
    assert_eq!(kind, FailureKind::VolumeQuotaExceeded);
    assert!(message.contains(&format!("may hold {limit} and has {} bytes", 70 + 3 * PER_ENTRY)), "{message}");
    assert!(!node.workspace().join("b").exists());
    // Replacing gives the old bytes back, and so do edits and deletes.
    node.call("fs.write", json!({"path": "a", "content": "x".repeat(90)})).await.done();
    let grow = json!({"path": "there before", "target_content": "0", "replacement_content": "00"});
    assert_eq!(node.call("fs.edit", grow.clone()).await.failed().0, FailureKind::VolumeQuotaExceeded);
    node.call("fs.write", json!({"path": "a", "content": "x".repeat(20)})).await.done();
    node.call("fs.edit", grow).await.done();
    node.call("fs.delete", json!({"path": "a"})).await.done();
    node.call("fs.delete", json!({"path": "empty"})).await.done();
    node.call("fs.write", json!({"path": "b/c", "content": "x".repeat(89)})).await.done();
    assert_eq!(
        node.call("fs.write", json!({"path": "d", "content": "x"})).await.failed().0,
        FailureKind::VolumeQuotaExceeded
    );
    // What somebody removed behind the node's back is found before refusing.
    std::fs::remove_dir_all(node.workspace().join("b")).unwrap();
    node.call("fs.write", json!({"path": "d", "content": "x".repeat(89)})).await.done();
    node.call("fs.delete", json!({"path": "d"})).await.done();
    node.call("fs.create_dir", json!({"path": "e"})).await.done();
    node.call("fs.write", json!({"path": "e/f", "content": "x".repeat(89)})).await.done();
    node.call("fs.delete", json!({"path": "e", "recursive": true})).await.done();
    node.call("fs.write", json!({"path": "g", "content": "x".repeat(89)})).await.done();
}

#[tokio::test]
async fn empty_files_and_directories_take_room_too() {
    let node = Node::with(|config, _| config.workspace_size_limit = Size(10 * PER_ENTRY));
    node.call("fs.create_dir", json!({"path": "a/b/c"})).await.done();
    for name in ["a/1", "a/2", "3", "4"] {
        node.call("fs.write", json!({"path": name, "content": ""})).await.done();
    }
    // A file with two missing parents is the tenth entry.
    node.call("fs.write", json!({"path": "d/e/f", "content": ""})).await.done();
    for (tool, arguments) in [
        ("fs.write", json!({"path": "5", "content": ""})),
        ("fs.write", json!({"path": "g/5", "content": ""})),
        ("fs.create_dir", json!({"path": "h"})),
    ] {
        let (kind, _) = node.call(tool, arguments).await.failed();
        assert_eq!(kind, FailureKind::VolumeQuotaExceeded, "{tool}");
    }
    assert!(!node.workspace().join("g").exists());
    // What is there already costs nothing again.
    node.call("fs.write", json!({"path": "3", "content": ""})).await.done();
    assert_eq!(node.call("fs.create_dir", json!({"path": "a/b"})).await.done()["created"], false);
    node.call("fs.delete", json!({"path": "d", "recursive": true})).await.done();
    node.call("fs.create_dir", json!({"path": "i/j/k"})).await.done();
    assert_eq!(
        node.call("fs.create_dir", json!({"path": "l"})).await.failed().0,
        FailureKind::VolumeQuotaExceeded
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_together_do_not_pass_the_quota() {
    let node = Arc::new(Node::with(|config, _| config.workspace_size_limit = Size(10 * (100 + PER_ENTRY))));
    let calls = (0..32).map(|index| {
        let node = node.clone();
        tokio::spawn(async move {
            let content = "x".repeat(100);
            node.call("fs.write", json!({"path": format!("file{index}"), "content": content})).await.failure
        })
    });
    let failures = futures::future::join_all(calls.collect::<Vec<_>>()).await;
    let written = failures.iter().filter(|failure| failure.as_ref().unwrap().is_none()).count();
    assert_eq!(written, 10);
    assert_eq!(std::fs::read_dir(node.workspace()).unwrap().count(), 10);
}

/// A file system of one mebibyte.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(at: &'a Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mount = ["-t", "tmpfs", "-o", "size=1m", "tmpfs"];
        let mounted =
            Command::new("mount").args(mount).arg(at).output().is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("skipped: no file system can be mounted here");
        }
        mounted.then_some(Self(at))
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0).output();
    }
}

#[tokio::test]
async fn a_full_disk_keeps_the_old_file_and_leaves_nothing() {
    let directory = scratch();
    let at = directory.path().join("small");
    let Some(_disk) = SmallDisk::mount(&at) else { return };
    let node = Node::with(|config, _| {
        config.volumes.push(volume("small", &at, "/workspace", AccessMode::ReadWrite));
    });
    node.call("fs.write", json!({"path": "file", "content": "old"})).await.done();
    let large = "x".repeat(2 << 20);
    for (tool, arguments) in [
        ("fs.write", json!({"path": "file", "content": large})),
        ("fs.edit", json!({"path": "file", "target_content": "old", "replacement_content": large})),
        ("fs.write", json!({"path": "other", "content": large})),
    ] {
        let (kind, message) = node.call(tool, arguments).await.failed();
        assert_eq!(kind, FailureKind::StorageError);
        assert!(message.contains("disk is full"), "{message}");
    }
    assert_eq!(std::fs::read_to_string(at.join("file")).unwrap(), "old");
    assert_eq!(std::fs::read_dir(&at).unwrap().count(), 1);
}

#[tokio::test]
async fn another_file_system_inside_a_volume_is_not_deleted() {
    let node = Node::new();
    let at = node.put("tree/file", "x").with_file_name("mounted");
    let Some(_disk) = SmallDisk::mount(&at) else { return };
    std::fs::write(at.join("kept"), "x").unwrap();
    for path in ["tree", "tree/mounted"] {
        let (kind, message) = node.call("fs.delete", json!({"path": path, "recursive": true})).await.failed();
        assert_eq!(kind, FailureKind::PermissionDenied, "{message}");
        assert!(message.contains("another file system"), "{message}");
    }
    assert!(at.join("kept").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_writers_one_wins_whole() {
    let node = Arc::new(Node::new());
    let texts: Vec<String> = ["a", "b", "c", "d"].iter().map(|letter| letter.repeat(50_000)).collect();
    let writers = texts.clone().into_iter().map(|text| {
        let node = node.clone();
        tokio::spawn(async move {
            for _ in 0..25 {
                node.call("fs.write", json!({"path": "file", "content": text})).await.done();
            }
        })
    });
    let writers = futures::future::join_all(writers.collect::<Vec<_>>());
    let reader = async {
        let mut reads = 0;
        while reads < 100 {
            let answer = node.call("fs.read", json!({"path": "file"})).await;
            assert!(answer.failure.is_some() || texts.iter().any(|text| answer.value["content"] == *text));
            reads += 1;
        }
    };
    let (writers, ()) = futures::join!(writers, reader);
    writers.into_iter().for_each(|writer| writer.unwrap());
    let last = std::fs::read_to_string(node.workspace().join("file")).unwrap();
    assert!(texts.contains(&last));
    assert_eq!(leftovers(&node.workspace()), Vec::<String>::new());
}

#[tokio::test]
async fn a_cancelled_write_changes_nothing() {
    let node = Node::new();
    node.put("file", "old");
    let cancel = CancellationToken::new();
    cancel.cancel();
    let arguments = json!({"path": "file", "content": "new"});
    let (kind, _) = node.call_as("local", &[], "fs.write", arguments, &cancel).await.failed();
    assert_eq!(kind, FailureKind::Timeout);
    assert_eq!(std::fs::read_to_string(node.workspace().join("file")).unwrap(), "old");
    assert_eq!(leftovers(&node.workspace()), Vec::<String>::new());
}
