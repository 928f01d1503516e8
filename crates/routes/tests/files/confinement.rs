//! Nothing outside a volume, or outside a grant, is ever read or changed.

use std::{
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use aegis_core::FailureKind;
use serde_json::{Value, json};

use crate::node::Node;

const SECRET: &str = "outside the volume";

fn node_with_secret() -> Node {
    Node::with(|_, outside| {
        std::fs::create_dir(outside.join("private")).unwrap();
        std::fs::write(outside.join("private/secret"), SECRET).unwrap();
    })
}

fn untouched(node: &Node) -> bool {
    std::fs::read_to_string(node.directory.path().join("private/secret")).unwrap() == SECRET
        && std::fs::read_dir(node.directory.path().join("private")).unwrap().count() == 1
}

/// Every way to use `path`, as (tool, arguments).
fn every_tool(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("fs.read", json!({"path": path})),
        ("tool.local-file-read", json!({"path": path, "encoding": "base64"})),
        ("fs.write", json!({"path": path, "content": "x"})),
        ("fs.edit", json!({"path": path, "target_content": "outside", "replacement_content": "inside"})),
        ("fs.grep", json!({"path": path, "pattern": "outside"})),
    ]
}

#[tokio::test]
async fn links_that_lead_out_are_refused_however_they_are_written() {
    let node = node_with_secret();
    let (workspace, private) = (node.workspace(), node.directory.path().join("private"));
    symlink("../../../private/secret", workspace.join("relative")).unwrap();
    symlink(private.join("secret"), workspace.join("absolute")).unwrap();
    symlink("../../../private", workspace.join("directory")).unwrap();
    symlink(&private, workspace.join("absolute_directory")).unwrap();
    symlink("/proc/self/root", workspace.join("magic")).unwrap();
    symlink("relative", workspace.join("twice")).unwrap();
    for path in
        ["relative", "absolute", "directory/secret", "absolute_directory/secret", "twice", "magic/etc/passwd"]
    {
        for (tool, arguments) in every_tool(path) {
            let (kind, message) = node.call(tool, arguments).await.failed();
            assert_eq!(kind, FailureKind::PermissionDenied, "{tool} {path}: {message}");
            assert!(!message.contains(SECRET));
        }
    }
    for (tool, arguments) in [
        ("fs.list", json!({"path": "directory"})),
        ("fs.glob", json!({"path": "directory", "pattern": "*"})),
        ("fs.create_dir", json!({"path": "directory/new"})),
        ("fs.write", json!({"path": "directory/new.txt", "content": "x"})),
        ("fs.write", json!({"path": "directory/deep/new.txt", "content": "x"})),
        ("fs.delete", json!({"path": "directory/secret"})),
        ("fs.delete", json!({"path": "absolute_directory/secret"})),
    ] {
        let (kind, message) = node.call(tool, arguments).await.failed();
        assert_eq!(kind, FailureKind::PermissionDenied, "{tool}: {message}");
    }
    // Searches of the whole tree and recursive deletes do not even look.
    assert_eq!(node.call("fs.grep", json!({"path": ".", "pattern": "outside"})).await.text(), "");
    assert_eq!(node.call("fs.glob", json!({"path": ".", "pattern": "**"})).await.text(), "");
    for path in ["relative", "absolute", "directory", "absolute_directory", "magic", "twice"] {
        node.call("fs.delete", json!({"path": path, "recursive": true})).await.done();
    }
    assert!(untouched(&node));
}

#[tokio::test]
async fn links_that_stay_inside_are_followed_for_reading_and_named_when_writing() {
    let node = Node::new();
    node.put("real/file", "text");
    symlink("real", node.workspace().join("link")).unwrap();
    symlink("real/file", node.workspace().join("shortcut")).unwrap();
    for path in ["link/file", "shortcut"] {
        assert_eq!(node.call("fs.read", json!({"path": path})).await.done()["content"], "text");
    }
    node.call("fs.write", json!({"path": "link/file", "content": "new"})).await.done();
    assert_eq!(std::fs::read_to_string(node.workspace().join("real/file")).unwrap(), "new");
    for (tool, arguments) in [
        ("fs.write", json!({"path": "shortcut", "content": "x"})),
        ("fs.edit", json!({"path": "shortcut", "target_content": "new", "replacement_content": "x"})),
    ] {
        let (kind, message) = node.call(tool, arguments).await.failed();
        assert_eq!(kind, FailureKind::PermissionDenied);
        assert!(message.contains("`real/file`"), "{message}");
    }
    let listing = node.call("fs.list", json!({"path": "."})).await.done();
    assert_eq!(
        listing["entries"],
        json!([
            {"name": "link", "file_type": "directory", "symlink": true},
            {"name": "real", "file_type": "directory"},
            {"name": "shortcut", "file_type": "file", "symlink": true},
        ])
    );
}

#[tokio::test]
async fn a_link_does_not_lead_out_of_what_the_context_grants() {
    let node = Node::new();
    node.put("open/file", "granted");
    node.put("closed/file", "not granted");
    symlink("../closed/file", node.workspace().join("open/link")).unwrap();
    symlink("../closed", node.workspace().join("open/directory")).unwrap();
    symlink("file", node.workspace().join("open/inner")).unwrap();
    symlink("closed", node.workspace().join("alias")).unwrap();
    let granted = ["/workspace/open"];
    for path in ["open/file", "open/inner"] {
        let answer = node.call_within(&granted, "fs.read", json!({"path": path})).await.done();
        assert_eq!(answer["content"], "granted");
    }
    for path in ["open/link", "open/directory/file"] {
        for (tool, arguments) in every_tool(path) {
            let (kind, message) = node.call_within(&granted, tool, arguments).await.failed();
            assert_eq!(kind, FailureKind::PermissionDenied, "{tool} {path}: {message}");
        }
    }
    let (kind, _) = node.call_within(&granted, "fs.read", json!({"path": "closed/file"})).await.failed();
    assert_eq!(kind, FailureKind::PermissionDenied);
    // The granted directory itself must be a real one.
    let (kind, _) =
        node.call_within(&["/workspace/alias"], "fs.read", json!({"path": "alias/file"})).await.failed();
    assert_eq!(kind, FailureKind::PermissionDenied);
    // A grant may name a file, or a directory that is still to be made.
    let file = ["/workspace/open/file"];
    node.call_within(&file, "fs.write", json!({"path": "open/file", "content": "granted too"})).await.done();
    node.call_within(&["/workspace/new/place"], "fs.write", json!({"path": "new/place/a", "content": "x"}))
        .await
        .done();
    assert_eq!(std::fs::read_to_string(node.workspace().join("closed/file")).unwrap(), "not granted");
}

/// Swaps `at` between a real thing and a link to the outside until told to stop.
fn swap(at: &Path, real: impl Fn(&Path), outside: &Path, stop: &AtomicBool) {
    let (spare, away) = (at.with_extension("spare"), at.with_extension("away"));
    let clear = |path: &Path| {
        let _ = std::fs::remove_file(path);
        let _ = std::fs::remove_dir_all(path);
    };
    while !stop.load(Ordering::Relaxed) {
        clear(&spare);
        clear(&away);
        real(&spare);
        symlink(outside, &away).unwrap();
        for new in [&spare, &away] {
            // A directory can't be renamed over, so what is there goes first.
            clear(at);
            let _ = std::fs::rename(new, at);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_swapped_in_during_the_call_gains_nothing() {
    let node = std::sync::Arc::new(node_with_secret());
    let (workspace, private) = (node.workspace(), node.directory.path().join("private"));
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = [
        (
            "file",
            Box::new(|at: &Path| std::fs::write(at, "mine").unwrap()) as Box<dyn Fn(&Path) + Send>,
            "secret",
        ),
        (
            "directory",
            Box::new(|at: &Path| {
                std::fs::create_dir(at).unwrap();
                std::fs::write(at.join("secret"), "mine").unwrap();
            }),
            "",
        ),
    ]
    .into_iter()
    .map(|(name, real, outside)| {
        let (at, outside, stop) = (workspace.join(name), private.join(outside), stop.clone());
        std::thread::spawn(move || swap(&at, real, &outside, &stop))
    })
    .collect();
    let mut seen = 0;
    for round in 0..200 {
        for path in ["file", "directory/secret"] {
            let answer = node.call("fs.read", json!({"path": path})).await;
            if answer.failure.is_none() {
                // What our own writer below has put there, or what the other thread has.
                assert!(
                    ["mine", "node's"].contains(&answer.value["content"].as_str().unwrap()),
                    "{}",
                    answer.value
                );
                seen += 1;
            }
            if round % 4 == 0 {
                node.call("fs.write", json!({"path": path, "content": "node's"})).await;
                let edit =
                    json!({"path": path, "target_content": "outside", "replacement_content": "inside"});
                assert!(node.call("fs.edit", edit).await.failure.is_some());
            }
        }
        if round % 4 == 0 {
            assert_eq!(node.call("fs.grep", json!({"path": ".", "pattern": "outside"})).await.text(), "");
            node.call("fs.delete", json!({"path": "directory", "recursive": true})).await;
            node.call("fs.create_dir", json!({"path": "directory/below"})).await;
        }
    }
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(seen > 0, "the race never let a read through");
    assert!(untouched(&node));
}

/// A link is another name for what it leads to, and what is closed under one name is closed under all.
#[tokio::test]
async fn no_link_is_followed_in_a_volume_with_a_closed_path() {
    let node = Node::new();
    node.put("keys/secret", SECRET);
    node.put("open/file", "plain");
    let workspace = node.workspace();
    symlink("keys/secret", workspace.join("file_link")).unwrap();
    symlink("keys", workspace.join("directory_link")).unwrap();
    symlink("open", workspace.join("harmless")).unwrap();
    for path in ["file_link", "directory_link/secret", "harmless/file"] {
        for (tool, arguments) in every_tool(path) {
            let (kind, message) = node.call_without(&["/workspace/keys"], tool, arguments).await.failed();
            assert_eq!(kind, FailureKind::PermissionDenied, "{tool} {path}: {message}");
            assert!(!message.contains(SECRET));
        }
    }
    let renames = json!({"fromPath": "directory_link/secret", "toPath": "out"});
    let (kind, _) = node.call_without(&["/workspace/keys"], "tool.fs-rename-file", renames).await.failed();
    assert_eq!(kind, FailureKind::PermissionDenied);
    let new = json!({"path": "new/file", "content": "x"});
    node.call_without(&["/workspace/keys"], "fs.write", new).await.done();
    let plain = node.call_without(&["/workspace/keys"], "fs.read", json!({"path": "open/file"})).await;
    assert_eq!(plain.done()["content"], "plain");
    // What is closed elsewhere does not matter here: links don't leave their volume.
    let elsewhere = node.call_without(&["/etc"], "fs.read", json!({"path": "harmless/file"})).await;
    assert_eq!(elsewhere.done()["content"], "plain");
    assert_eq!(std::fs::read_to_string(workspace.join("keys/secret")).unwrap(), SECRET);
}

/// A file there would be in the way of whoever puts what is closed where it belongs.
#[tokio::test]
async fn on_the_way_to_a_closed_path_only_directories_are_made() {
    let node = Node::new();
    let closed = ["/workspace/a/b/keys"];
    node.put("open/file", "plain");
    let patch = "--- /dev/null\n+++ a\n@@ -0,0 +1 @@\n+x\n";
    for (tool, arguments) in [
        ("fs.write", json!({"path": "a", "content": "x"})),
        ("fs.write", json!({"path": "/workspace//a/./b", "content": "x"})),
        ("tool.fs-write-file", json!({"path": "a/b", "content": "x", "dryRun": false})),
        ("tool.fs-append-file", json!({"path": "a/b", "content": "x", "dryRun": false})),
        ("tool.fs-apply-patch", json!({"patch": patch, "dryRun": false})),
    ] {
        let (kind, message) = node.call_guarding(&closed, tool, arguments).await.failed();
        assert_eq!(kind, FailureKind::PermissionDenied, "{tool}: {message}");
        assert!(message.contains("`/workspace/a/b/keys`"), "{tool}: {message}");
    }
    assert!(!node.workspace().join("a").exists());
    // What reads another way than it is written is no way around.
    symlink(".", node.workspace().join("here")).unwrap();
    let through = json!({"path": "here/a", "content": "x"});
    assert_eq!(
        node.call_guarding(&closed, "fs.write", through).await.failed().0,
        FailureKind::PermissionDenied
    );
    node.call_guarding(&closed, "fs.create_dir", json!({"path": "a/b"})).await.done();
    for path in ["a/b/keys", "a/b/other", "a/c", "ab"] {
        node.call_guarding(&closed, "fs.write", json!({"path": path, "content": "x"})).await.done();
    }
}

/// What a person said about paths beforehand was said of them as they are written.
#[tokio::test]
async fn what_was_settled_beforehand_follows_no_link() {
    let node = Node::new();
    node.put("prod/file", SECRET);
    node.put("docs/file", "plain");
    symlink("../prod", node.workspace().join("docs/directory_link")).unwrap();
    symlink("../prod/file", node.workspace().join("docs/file_link")).unwrap();
    for path in ["docs/file_link", "docs/directory_link/file"] {
        for (tool, arguments) in every_tool(path) {
            let (kind, message) = node.call_without_links(tool, arguments).await.failed();
            assert_eq!(kind, FailureKind::PermissionDenied, "{tool} {path}: {message}");
        }
    }
    let new = json!({"path": "docs/directory_link/new", "content": "x"});
    assert_eq!(node.call_without_links("fs.write", new).await.failed().0, FailureKind::PermissionDenied);
    node.call_without_links("fs.write", json!({"path": "docs/new/file", "content": "x"})).await.done();
    let plain = node.call_without_links("fs.read", json!({"path": "docs/file"})).await;
    assert_eq!(plain.done()["content"], "plain");
    assert_eq!(std::fs::read_dir(node.workspace().join("prod")).unwrap().count(), 1);
}
