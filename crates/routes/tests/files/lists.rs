use rustix::fs::AtFlags;
use serde_json::json;

use crate::node::Node;

#[tokio::test]
async fn entries_are_sorted_and_typed() {
    let node = Node::new();
    node.put("src/main.rs", "x");
    node.put("a.txt", "x");
    node.put(".hidden", "x");
    node.put(".aegis-0123456789abcdef0123456789abcdef.part", "on its way");
    let answer = node.call("fs.list", json!({"path": "/workspace"})).await;
    assert_eq!(answer.event_names(), ["StorageEvent::DirectoryListed"]);
    assert_eq!(
        answer.done(),
        json!({"status": "success", "path": "/workspace", "entries": [
            {"name": ".hidden", "file_type": "file"},
            {"name": "a.txt", "file_type": "file"},
            {"name": "src", "file_type": "directory"},
        ]})
    );
    let (kind, _) = node.call("fs.list", json!({"path": "a.txt"})).await.failed();
    assert_eq!(kind.as_str(), "NotADirectory");
    let (kind, _) = node.call("fs.list", json!({"path": "none"})).await.failed();
    assert_eq!(kind.as_str(), "NOT_FOUND");
}

#[tokio::test]
async fn two_hundred_thousand_entries_are_cut_and_counted() {
    let node = Node::with(|config, _| config.max_glob_paths = 50);
    // Names of a few files: making as many files takes minutes on some disks.
    let directory = std::fs::File::open(node.workspace()).unwrap();
    for index in (0..200_000).rev() {
        let (name, first) = (format!("f{index:06}"), format!("f{:06}", index / 50_000 * 50_000 + 49_999));
        if name == first {
            std::fs::write(node.workspace().join(&name), "").unwrap();
        } else {
            rustix::fs::linkat(&directory, first, &directory, name, AtFlags::empty()).unwrap();
        }
    }
    let listing = node.call("fs.list", json!({"path": "."})).await.done();
    let entries = listing["entries"].as_array().unwrap();
    assert_eq!((&listing["truncated"], &listing["total"]), (&json!(true), &json!(200_000)));
    assert_eq!(entries.len(), 10_000);
    for (index, entry) in entries.iter().enumerate() {
        assert_eq!(entry["name"], format!("f{index:06}"));
    }
    // A search through them is cut too, and finds the one among the many.
    let found = node.call("fs.glob", json!({"path": ".", "pattern": "f*"})).await;
    assert_eq!((&found.structured["matches"], &found.structured["truncated"]), (&json!(50), &json!(true)));
    node.put("other", "x");
    let only = node.call("fs.glob", json!({"path": ".", "pattern": "o*"})).await;
    assert_eq!(only.text(), "other");
}
