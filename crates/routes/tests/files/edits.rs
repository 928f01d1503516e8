use std::sync::Arc;

use aegis_core::FailureKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::node::{Node, leftovers};

fn edit(target: &str, replacement: &str) -> Value {
    json!({"path": "file", "target_content": target, "replacement_content": replacement})
}

#[tokio::test]
async fn an_edit_wants_exactly_one_match() {
    let node = Node::new();
    let path = node.put("file", "one\r\ntwo two\r\nthree\r\n");
    let answer = node.call("fs.edit", edit("three", "four, five")).await;
    assert_eq!(answer.event_names(), ["StorageEvent::FileWritten"]);
    assert_eq!(
        answer.done(),
        json!({"status": "success", "path": "/workspace/file", "message": "1 replacement at line 3, 5 bytes longer"})
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\r\ntwo two\r\nfour, five\r\n");
    for (target, kind, text) in [
        ("two", FailureKind::TargetNotUnique, "occurs 2 times, at lines 2, 2"),
        ("six", FailureKind::TargetNotFound, "does not occur"),
        ("one\ntwo", FailureKind::TargetNotFound, "other line endings at line 1"),
    ] {
        let (said, message) = node.call("fs.edit", edit(target, "x")).await.failed();
        assert_eq!(said, kind);
        assert!(message.contains(text), "{message}");
    }
    node.call("fs.edit", edit("four, five\r\n", "")).await.done();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\r\ntwo two\r\n");
    let missing = json!({"path": "none", "target_content": "a", "replacement_content": "b"});
    assert_eq!(node.call("fs.edit", missing).await.failed().0, FailureKind::NotFound);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_never_damaged() {
    let node = Node::new();
    let bytes = b"caf\xe9 needle";
    let path = node.put("file", bytes);
    let (kind, _) = node.call("fs.edit", edit("needle", "x")).await.failed();
    assert_eq!(kind, FailureKind::NotUtf8);
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn several_edits_are_all_or_nothing() {
    let node = Node::new();
    let path = node.put("file", "a b c");
    let both = json!({"path": "file", "edits": [
        {"target_content": "a", "replacement_content": "xx"},
        {"target_content": "xx b", "replacement_content": "y"},
    ]});
    assert_eq!(
        node.call("fs.multi_edit", both).await.done(),
        json!({"status": "success", "path": "/workspace/file", "applied": 2})
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "y c");
    for (second, kind) in [("q", FailureKind::TargetNotFound), ("z", FailureKind::TargetNotUnique)] {
        let half = json!({"path": "file", "edits": [
            {"target_content": "c", "replacement_content": "z z"},
            {"target_content": second, "replacement_content": ""},
        ]});
        let answer = node.call("fs.multi_edit", half).await;
        assert!(answer.events.is_empty());
        let (said, message) = answer.failed();
        assert_eq!(said, kind);
        assert!(message.starts_with("edit 1 (0-based): ") && message.contains("left unchanged"), "{message}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "y c");
    }
    let none = node.call("fs.multi_edit", json!({"path": "file", "edits": []})).await;
    assert!(none.events.is_empty());
    assert_eq!(none.done()["applied"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_of_one_file_do_not_lose_each_other() {
    let node = Arc::new(Node::new());
    let words: Vec<String> = (0..24).map(|index| format!("<{index}>")).collect();
    node.put("real/file", words.join("\n"));
    // Two spellings of one file share its lock.
    std::os::unix::fs::symlink("real", node.workspace().join("link")).unwrap();
    let edits = words.iter().enumerate().map(|(index, word)| {
        let (node, word) = (node.clone(), word.clone());
        let path = if index % 2 == 0 { "real/file" } else { "link/file" };
        tokio::spawn(async move {
            let arguments =
                json!({"path": path, "target_content": word, "replacement_content": format!("done{index};")});
            node.call("fs.edit", arguments).await.done();
        })
    });
    let edits = futures::future::join_all(edits.collect::<Vec<_>>()).await;
    edits.into_iter().for_each(|edit| edit.unwrap());
    let text = std::fs::read_to_string(node.workspace().join("real/file")).unwrap();
    assert!((0..24).all(|index| text.contains(&format!("done{index};"))), "{text}");
    assert_eq!(leftovers(&node.workspace().join("real")), Vec::<String>::new());
}

/// What the edits make of a text, by the plainest means.
fn model(text: &str, edits: &[(String, String)]) -> Option<String> {
    let mut text = text.to_owned();
    for (target, replacement) in edits {
        let places =
            (0..text.len()).filter(|at| text.as_bytes()[*at..].starts_with(target.as_bytes())).count();
        if places != 1 {
            return None;
        }
        text = text.replacen(target, replacement, 1);
    }
    Some(text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edits_agree_with_plain_strings(
        text in "[abc\u{e9}\u{1F600} \n]{0,40}",
        edits in prop::collection::vec(("[abc\u{e9}]{1,3}", "[xyz\u{e9}]{0,3}"), 1..4),
    ) {
        let node = Node::new();
        let path = node.put("file", &text);
        let list: Vec<Value> = edits
            .iter()
            .map(|(target, replacement)| json!({"target_content": target, "replacement_content": replacement}))
            .collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let answer = runtime.block_on(node.call("fs.multi_edit", json!({"path": "file", "edits": list})));
        let expected = model(&text, &edits);
        prop_assert_eq!(answer.failure.is_none(), expected.is_some());
        prop_assert_eq!(std::fs::read_to_string(path).unwrap(), expected.unwrap_or(text));
    }
}
