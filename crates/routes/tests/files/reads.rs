use std::{
    io::Write,
    os::unix::ffi::OsStrExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use aegis_core::{FailureKind, TrustClass, config::HardLinks, quantity::Size};
use rustix::fs::{CWD, FileType, Mode};
use serde_json::json;

use crate::node::{Node, is_root};

#[tokio::test]
async fn a_text_comes_back_with_its_size_label_and_event() {
    let node = Node::new();
    node.put("app/lib.py", "x = 1\n");
    for path in ["app/lib.py", "/workspace/app/lib.py", "./app//lib.py"] {
        let answer = node.call("fs.read", json!({"path": path})).await;
        assert_eq!(answer.event_names(), ["StorageEvent::FileRead"]);
        assert_eq!(
            serde_json::Value::Object(answer.events[0].detail.clone()),
            json!({"path": "/workspace/app/lib.py", "volume": "local/workspace", "bytes": 6})
        );
        assert_eq!(answer.label.trust, TrustClass::ExternalUntrusted);
        assert_eq!(answer.label.source, "filesystem");
        assert_eq!(answer.label.origin.as_deref(), Some("/workspace/app/lib.py"));
        assert_eq!(
            answer.done(),
            json!({"status": "success", "path": "/workspace/app/lib.py", "content": "x = 1\n", "size_bytes": 6})
        );
    }
}

#[tokio::test]
async fn what_can_not_be_read_says_why() {
    let node = Node::new();
    node.put("file", "x");
    node.put("latin1", b"caf\xe9\n");
    std::fs::create_dir(node.workspace().join("directory")).unwrap();
    std::os::unix::fs::symlink("nowhere", node.workspace().join("dangling")).unwrap();
    std::os::unix::fs::symlink("circle", node.workspace().join("circle")).unwrap();
    for (path, kind, text) in [
        ("none.txt", FailureKind::NotFound, "nothing is there"),
        ("no/such/directory", FailureKind::NotFound, "nothing is there"),
        ("file/below", FailureKind::NotADirectory, "directory is needed"),
        ("directory", FailureKind::IsADirectory, "fs.list"),
        ("/workspace", FailureKind::IsADirectory, "fs.list"),
        ("latin1", FailureKind::NotUtf8, "offset 3); tool.local-file-read with encoding base64"),
        ("dangling", FailureKind::NotFound, "nothing is there"),
        ("circle", FailureKind::PermissionDenied, "circle"),
        ("/etc/passwd", FailureKind::NotFound, "files are at /workspace"),
        ("/", FailureKind::NotFound, "files are at /workspace"),
        ("a\0b", FailureKind::StorageError, "NUL"),
        ("../x", FailureKind::PermissionDenied, "`..`"),
    ] {
        let answer = node.call("fs.read", json!({"path": path})).await;
        assert_eq!(answer.value["status"], "error");
        assert!(answer.value["path"].is_string());
        let (said, message) = answer.failed();
        assert_eq!(said, kind, "{path}: {message}");
        assert!(message.contains(text), "{path}: {message}");
    }
}

#[tokio::test]
async fn long_paths_are_refused() {
    let node = Node::new();
    let (kind, message) = node.call("fs.read", json!({"path": "a/".repeat(32 << 10)})).await.failed();
    assert_eq!(kind, FailureKind::StorageError);
    assert!(message.contains("65536 bytes long"), "{message}");
    let (_, message) = node.call("fs.read", json!({"path": "a".repeat(256)})).await.failed();
    assert!(message.contains("component"), "{message}");
    // The longest path that can be written can also be asked for.
    let (kind, _) =
        node.call("fs.read", json!({"path": format!("/workspace/{}", "a/".repeat(2000))})).await.failed();
    assert_eq!(kind, FailureKind::NotFound);
}

#[tokio::test]
async fn dot_dot_is_told_to_subscribers() {
    let answer = Node::new().call("fs.read", json!({"path": "a/../../b"})).await;
    assert_eq!(answer.event_names(), ["StorageEvent::PathTraversalBlocked"]);
}

#[tokio::test]
async fn only_regular_files_are_read() {
    let node = Node::new();
    let workspace = node.workspace();
    let kinds =
        [("fifo", FileType::Fifo, 0), ("device", FileType::CharacterDevice, rustix::fs::makedev(1, 5))];
    for (name, kind, device) in kinds {
        if kind == FileType::CharacterDevice && !is_root() {
            eprintln!("skipped: a device node can be made by root only");
            continue;
        }
        rustix::fs::mknodat(CWD, workspace.join(name), kind, Mode::RWXU, device).unwrap();
    }
    let _socket = std::os::unix::net::UnixListener::bind(workspace.join("socket")).unwrap();
    for name in ["fifo", "device", "socket"] {
        if !workspace.join(name).exists() {
            continue;
        }
        for (tool, arguments) in [
            ("fs.read", json!({"path": name})),
            ("tool.local-file-read", json!({"path": name, "encoding": "base64"})),
            ("fs.write", json!({"path": name, "content": "x"})),
            ("fs.edit", json!({"path": name, "target_content": "x", "replacement_content": "y"})),
        ] {
            let (kind, message) = node.call(tool, arguments).await.failed();
            assert_eq!(kind, FailureKind::NotARegularFile, "{tool} {name}: {message}");
        }
    }
    // A search passes them by, and they can be deleted.
    assert_eq!(node.call("fs.grep", json!({"pattern": "x", "path": "."})).await.text(), "");
    node.call("fs.delete", json!({"path": "fifo"})).await.done();
}

#[tokio::test]
async fn a_file_with_other_names_is_refused_unless_allowed() {
    let node = Node::with(|_, outside| std::fs::write(outside.join("secret"), "outside").unwrap());
    std::fs::hard_link(node.directory.path().join("secret"), node.workspace().join("linked")).unwrap();
    for (tool, arguments) in [
        ("fs.read", json!({"path": "linked"})),
        ("tool.local-file-read", json!({"path": "linked"})),
        ("fs.grep", json!({"path": "linked", "pattern": "out"})),
        ("fs.edit", json!({"path": "linked", "target_content": "out", "replacement_content": "in"})),
    ] {
        let (kind, message) = node.call(tool, arguments).await.failed();
        assert_eq!(kind, FailureKind::PermissionDenied, "{tool}");
        assert!(message.contains("spec.storage.hard_links"), "{message}");
    }
    let answer = node.call("fs.grep", json!({"path": ".", "pattern": "out"})).await;
    assert_eq!(answer.structured["files_skipped"], json!({"hard_linked": 1}));
    assert_eq!(answer.text(), "");
    // Replacing gives this name a file of its own and leaves the other name's content alone.
    node.call("fs.write", json!({"path": "linked", "content": "inside"})).await.done();
    assert_eq!(std::fs::read_to_string(node.directory.path().join("secret")).unwrap(), "outside");

    let open = Node::with(|config, _| config.hard_links = HardLinks::Allow);
    open.put("a", "text");
    std::fs::hard_link(open.workspace().join("a"), open.workspace().join("b")).unwrap();
    assert_eq!(open.call("fs.read", json!({"path": "b"})).await.done()["content"], "text");
    assert_eq!(
        open.call("fs.grep", json!({"path": ".", "pattern": "text"})).await.text(),
        "a:1:text\nb:1:text"
    );
}

#[tokio::test]
async fn a_large_file_is_refused_without_reading_it() {
    let node = Node::with(|config, _| config.max_read_bytes = Size(16));
    node.put("full", "0123456789abcdef");
    node.put("over", "0123456789abcdefg");
    std::fs::File::create(node.workspace().join("sparse")).unwrap().set_len(1 << 30).unwrap();
    assert_eq!(node.call("fs.read", json!({"path": "full"})).await.done()["size_bytes"], 16);
    for (path, size) in [("over", "17"), ("sparse", "1073741824")] {
        let (kind, message) = node.call("fs.read", json!({"path": path})).await.failed();
        assert_eq!(kind, FailureKind::FileTooLarge);
        assert!(message.contains(size) && message.contains("fs.grep"), "{message}");
    }
    let start = node
        .call("tool.local-file-read", json!({"path": "sparse", "encoding": "base64", "maxBytes": 3}))
        .await
        .done();
    assert_eq!((&start["content"], &start["truncated"]), (&json!("AAAA"), &json!(true)));
    assert_eq!(start["sizeBytes"], 1 << 30);
}

#[tokio::test]
async fn files_that_grow_or_shrink_are_read_as_they_are() {
    let node = Node::new();
    let path = node.put("log", "");
    let stop = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let mut file = std::fs::File::options().append(true).open(&path).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.write_all(&[b'x'; 1000]).unwrap();
                if file.metadata().unwrap().len() > 100_000 {
                    file.set_len(0).unwrap();
                }
            }
        }
    });
    for _ in 0..300 {
        let answer = node.call("fs.read", json!({"path": "log"})).await;
        let content = answer.value["content"].as_str().map(str::to_owned).unwrap_or_default();
        if answer.value["size_bytes"] != content.len() || !content.bytes().all(|byte| byte == b'x') {
            stop.store(true, Ordering::Relaxed);
            panic!("{}", answer.value);
        }
    }
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_replaced_while_read_is_one_version_or_the_other() {
    let node = Arc::new(Node::new());
    let texts = ["a".repeat(300_000), "b".repeat(200_000)];
    node.put("file", &texts[0]);
    let writer = {
        let (node, texts) = (node.clone(), texts.clone());
        tokio::spawn(async move {
            for round in 0..60 {
                node.call("fs.write", json!({"path": "file", "content": texts[round % 2]})).await.done();
            }
        })
    };
    for _ in 0..200 {
        let answer = node.call("fs.read", json!({"path": "file"})).await.done();
        assert!(texts.iter().any(|text| answer["content"] == *text));
    }
    writer.await.unwrap();
}

#[tokio::test]
async fn local_file_read_keeps_the_callers_spelling_and_cuts_between_characters() {
    let node = Node::new();
    node.put("src/config.ts", "é=1");
    let answer = node.call("tool.local-file-read", json!({"path": "./src/config.ts"})).await;
    assert_eq!(answer.event_names(), ["StorageEvent::FileRead"]);
    assert_eq!(
        answer.done(),
        json!({
            "path": "./src/config.ts", "content": "é=1", "encoding": "utf8", "bytes": 4, "sizeBytes": 4,
            "truncated": false,
            "provenance": {"source": "filesystem", "trustClassification": "EXTERNAL_UNTRUSTED"}
        })
    );
    let cut = node.call("tool.local-file-read", json!({"path": "src/config.ts", "maxBytes": 3})).await.done();
    assert_eq!((&cut["content"], &cut["bytes"], &cut["truncated"]), (&json!("é="), &json!(3), &json!(true)));
    let (kind, _) =
        node.call("tool.local-file-read", json!({"path": "src/config.ts", "maxBytes": 1})).await.failed();
    assert_eq!(kind, FailureKind::NotUtf8);
    node.put("bytes", [0xff, 0x00, 0x61]);
    let bytes =
        node.call("tool.local-file-read", json!({"path": "bytes", "encoding": "base64"})).await.done();
    assert_eq!((&bytes["content"], &bytes["bytes"]), (&json!("/wBh"), &json!(3)));
    let failed = node.call("tool.local-file-read", json!({"path": "./none"})).await;
    assert_eq!(
        (&failed.value["tool"], &failed.value["path"]),
        (&json!("tool.local-file-read"), &json!("./none"))
    );
}

#[tokio::test]
async fn a_name_that_is_no_utf8_does_no_harm() {
    let node = Node::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    std::fs::write(node.workspace().join(name), "needle").unwrap();
    let listing = node.call("fs.list", json!({"path": "."})).await.done();
    assert_eq!(
        listing["entries"],
        json!([{"name": "caf\u{fffd}.txt", "file_type": "file", "name_base64": "Y2Fm6S50eHQ="}])
    );
    assert_eq!(
        node.call("fs.grep", json!({"path": ".", "pattern": "needle"})).await.text(),
        "caf\u{fffd}.txt:1:needle"
    );
    assert_eq!(
        node.call("fs.glob", json!({"path": ".", "pattern": "*.txt"})).await.text(),
        "caf\u{fffd}.txt"
    );
    let (kind, _) = node.call("fs.read", json!({"path": "caf\u{fffd}.txt"})).await.failed();
    assert_eq!(kind, FailureKind::NotFound);
}
