use aegis_core::{FailureKind, TrustClass, config::AccessMode};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::node::{Node, volume};

async fn grep(node: &Node, pattern: &str, path: &str) -> String {
    node.call("fs.grep", json!({"pattern": pattern, "path": path})).await.text()
}

async fn glob(node: &Node, pattern: &str, path: &str) -> String {
    node.call("fs.glob", json!({"pattern": pattern, "path": path})).await.text()
}

#[tokio::test]
async fn lines_are_found_with_path_and_number() {
    let node = Node::new();
    node.put("src/lib.rs", "use x;\nfn main() {\r\n}\n\nfn helper() {");
    node.put("src/bin/tool.rs", "fn tool() {}\n");
    node.put("src/.hidden", "fn hidden() {}\n");
    node.put("README", "no functions\n");
    let answer = node.call("fs.grep", json!({"pattern": r"^fn \w+", "path": "/workspace/src"})).await;
    assert_eq!(answer.event_names(), ["StorageEvent::TreeSearched"]);
    assert_eq!(answer.label.trust, TrustClass::ExternalUntrusted);
    let text =
        ".hidden:1:fn hidden() {}\nbin/tool.rs:1:fn tool() {}\nlib.rs:2:fn main() {\nlib.rs:5:fn helper() {";
    assert_eq!(
        answer.structured,
        json!({"result": text, "matches": 4, "files_searched": 3, "truncated": false})
    );
    assert_eq!(answer.text(), text);
    assert_eq!(grep(&node, "helper", "src/lib.rs").await, "lib.rs:5:fn helper() {");
    assert_eq!(grep(&node, "nothing like it", ".").await, "");
    assert_eq!(grep(&node, "(?i)FUNCTIONS$", ".").await, "README:1:no functions");
}

#[tokio::test]
async fn patterns_that_can_not_be_used_are_explained() {
    let node = Node::new();
    node.put("file", "x");
    for (tool, pattern, text) in [
        ("fs.grep", "(unclosed".to_owned(), "unclosed group"),
        ("fs.grep", r"\pX".to_owned(), "Unicode property"),
        ("fs.grep", "(?=look)".to_owned(), "look-around"),
        ("fs.grep", r"one\ntwo".to_owned(), "line by line"),
        ("fs.grep", r"(\w{500}){500}".to_owned(), "too big"),
        ("fs.grep", "(((a{100}){100}){100}){100}".to_owned(), "too big"),
        ("fs.grep", "(".repeat(5000) + &")".repeat(5000), "nest"),
        ("fs.grep", "a".repeat(70 << 10), "the limit"),
        ("fs.glob", "[z".to_owned(), "no glob"),
        ("fs.glob", "{a,b".to_owned(), "no glob"),
        ("fs.glob", "../*".to_owned(), "`..`"),
        ("fs.glob", "/etc/*".to_owned(), "relative"),
    ] {
        let (kind, message) = node.call(tool, json!({"pattern": pattern, "path": "."})).await.failed();
        assert_eq!(kind, FailureKind::InvalidPattern, "{message}");
        assert!(message.contains(text), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
    for tool in ["fs.grep", "fs.glob"] {
        let (kind, _) = node.call(tool, json!({"pattern": "x", "path": "none"})).await.failed();
        assert_eq!(kind, FailureKind::NotFound);
    }
    let (kind, _) = node.call("fs.glob", json!({"pattern": "x", "path": "file"})).await.failed();
    assert_eq!(kind, FailureKind::NotADirectory);
}

#[tokio::test]
async fn a_catastrophic_pattern_takes_linear_time() {
    let node = Node::new();
    node.put("file", "a".repeat(50_000) + "\n");
    assert_eq!(grep(&node, r"^(a+)+$ {1,9}b|(a|aa)+c|(.*.*=.*){3}", ".").await, "");
}

#[tokio::test]
async fn hits_are_cut_and_that_is_said() {
    let node = Node::with(|config, _| {
        config.max_grep_matches = 100;
        config.max_glob_paths = 10;
    });
    for index in 0..40 {
        node.put(&format!("d{}/f{index}.txt", index % 7), "hit\n".repeat(5));
    }
    let answer = node.call("fs.grep", json!({"pattern": "hit", "path": "."})).await;
    assert_eq!((&answer.structured["matches"], &answer.structured["truncated"]), (&json!(100), &json!(true)));
    let text = answer.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 101);
    assert!(lines[100].starts_with("[cut: more than 100 matches"), "{}", lines[100]);
    assert!(lines[..100].is_sorted_by_key(|line| line.split_once(':').unwrap().0));
    let text = glob(&node, "*.txt", ".").await;
    assert_eq!(text.lines().count(), 11);
    assert!(text.lines().last().unwrap().starts_with("[cut: more than 10 paths"));
    // As many as the limit is not cut.
    let text = grep(&node, "hit", "d1").await;
    assert_eq!(text.lines().count(), 30);
    let exact = Node::with(|config, _| config.max_grep_matches = 5);
    exact.put("file", "hit\n".repeat(5));
    let answer = exact.call("fs.grep", json!({"pattern": "hit", "path": "."})).await;
    assert_eq!(answer.structured["truncated"], false);
}

#[tokio::test]
async fn what_is_no_text_is_skipped_and_counted() {
    let node = Node::new();
    node.put("text", "needle\n");
    node.put("bom", "\u{feff}needle\n");
    node.put("binary", b"needle\n\0\n");
    node.put("latin1", b"needle\ncaf\xe9\n");
    node.put("large binary", [b"needle\n".to_vec(), b"x\n".repeat(300_000), vec![0; 10]].concat());
    node.put("large latin1", [b"x\n".repeat(300_000), b"needle \xe9\n".to_vec()].concat());
    node.put("large", "x\n".repeat(300_000) + "needle\n");
    std::fs::File::create(node.workspace().join("sparse")).unwrap().set_len(1 << 30).unwrap();
    let answer = node.call("fs.grep", json!({"pattern": "^needle", "path": "."})).await;
    assert_eq!(answer.structured["files_skipped"], json!({"binary": 3, "not_utf8": 2}));
    assert_eq!(answer.text(), "bom:1:needle\nlarge:300001:needle\ntext:1:needle");
    let (kind, _) = node.call("fs.grep", json!({"pattern": "needle", "path": "latin1"})).await.failed();
    assert_eq!(kind, FailureKind::NotUtf8);
}

#[tokio::test]
async fn long_lines_are_cut_and_endless_ones_skipped() {
    let node = Node::new();
    node.put("long", format!("needle{}\n", "é".repeat(5000)));
    node.put("short", format!("needle{}\n", "é".repeat(1994)));
    node.put("endless", "needle\n".to_owned() + &"x".repeat(20 << 20));
    let answer = node.call("fs.grep", json!({"pattern": "needle", "path": "."})).await;
    assert_eq!(answer.structured["files_skipped"], json!({"long_lines": 1}));
    let text = answer.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "endless:1:needle");
    assert_eq!(lines[1], format!("long:1:needle{} […line cut]", "é".repeat(1994)));
    assert_eq!(lines[2], format!("short:1:needle{}", "é".repeat(1994)));
}

#[tokio::test]
async fn names_are_found_by_name_or_path() {
    let node = Node::new();
    for name in ["main.rs", "bin/tool.rs", "bin/deep/x.rs", "bin/notes.md", ".hidden/y.rs"] {
        node.put(&format!("src/{name}"), "");
    }
    node.put("src/.aegis-0123456789abcdef0123456789abcdef.part", "");
    for (pattern, path, expected) in [
        ("*.rs", "src", ".hidden/y.rs\nbin/deep/x.rs\nbin/tool.rs\nmain.rs"),
        ("**/*.rs", "src", ".hidden/y.rs\nbin/deep/x.rs\nbin/tool.rs\nmain.rs"),
        ("src/*.rs", ".", "src/main.rs"),
        ("/workspace/src/*.rs", "/workspace", "src/main.rs"),
        ("src/bin/**", ".", "src/bin/deep/x.rs\nsrc/bin/notes.md\nsrc/bin/tool.rs"),
        ("*/*.md", "src", "bin/notes.md"),
        ("{main,tool}.rs", "src", "bin/tool.rs\nmain.rs"),
        ("none/*.rs", "src", ""),
        ("*.py", "src", ""),
        ("src", ".", ""),
    ] {
        assert_eq!(glob(&node, pattern, path).await, expected, "{pattern} in {path}");
    }
}

#[tokio::test]
async fn a_name_with_a_line_break_does_not_forge_a_hit() {
    let node = Node::new();
    node.put("a\nsecret.rs:1:forged", "needle\n");
    assert_eq!(grep(&node, "needle", ".").await, "a\\nsecret.rs:1:forged:1:needle");
    assert_eq!(glob(&node, "a*", ".").await, "a\\nsecret.rs:1:forged");
}

#[tokio::test]
async fn ignore_files_are_honoured_when_asked_for() {
    let set_up = |honour: bool| {
        let node = Node::with(|config, _| config.honour_ignore_files = honour);
        node.put(".gitignore", "/target\n*.log\n!keep.log\nsub/private/\n");
        node.put("sub/.ignore", "*.tmp\n!keep.log\n");
        for name in [
            "a.rs",
            "a.log",
            "keep.log",
            "target/b.rs",
            "sub/target/c.rs",
            "sub/private/d.rs",
            "sub/e.tmp",
            "sub/f.log",
            "other/g.tmp",
        ] {
            node.put(name, "needle\n");
        }
        node
    };
    let kept = "a.rs\nkeep.log\nother/g.tmp\nsub/target/c.rs";
    let node = set_up(true);
    let visible = |text: String| {
        text.lines()
            .filter(|line| !line.contains(".gitignore") && !line.contains(".ignore"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(visible(glob(&node, "**", ".").await), kept);
    assert_eq!(grep(&node, "needle", ".").await, kept.replace('\n', ":1:needle\n") + ":1:needle");
    // Rules from above the start count, too.
    assert_eq!(grep(&node, "needle", "sub").await, "target/c.rs:1:needle");
    assert_eq!(visible(glob(&node, "sub/**", ".").await), "sub/target/c.rs");
    let all = set_up(false);
    assert_eq!(grep(&all, "needle", ".").await.lines().count(), 9);
}

#[tokio::test]
async fn volumes_mounted_below_are_searched_and_cover_what_is_under_them() {
    let node = Node::with(|config, outside| {
        std::fs::create_dir_all(outside.join("shared/docs")).unwrap();
        std::fs::write(outside.join("shared/docs/a.md"), "needle\n").unwrap();
        config.volumes.push(volume(
            "shared",
            &outside.join("shared"),
            "/workspace/lib/shared",
            AccessMode::ReadOnly,
        ));
    });
    node.put("top.md", "needle\n");
    node.put("lib/shared/covered.md", "needle\n");
    assert_eq!(grep(&node, "needle", ".").await, "lib/shared/docs/a.md:1:needle\ntop.md:1:needle");
    assert_eq!(grep(&node, "needle", "lib/shared").await, "docs/a.md:1:needle");
    assert_eq!(glob(&node, "lib/**/*.md", ".").await, "lib/shared/docs/a.md");
    assert_eq!(glob(&node, "shared/docs/*.md", "lib").await, "shared/docs/a.md");
    assert_eq!(glob(&node, "*.md", ".").await, "lib/shared/docs/a.md\ntop.md");
}

#[tokio::test]
async fn a_cancelled_search_stops() {
    let node = Node::new();
    node.put("file", "needle\n");
    let cancel = CancellationToken::new();
    cancel.cancel();
    for tool in ["fs.grep", "fs.glob"] {
        let arguments = json!({"pattern": "needle", "path": "."});
        let (kind, _) = node.call_as("local", &[], tool, arguments, &cancel).await.failed();
        assert_eq!(kind, FailureKind::Timeout);
    }
}
