//! Paths that a deny list closes.

use aegis_core::tool::{Mutability, Route, Target};
use proptest::prelude::*;
use serde_json::json;

use super::{
    tests::{arguments, caller, context, decide, denied, tool},
    *,
};

/// A tool that takes these two paths and moves one to the other.
fn mover() -> Arc<ToolSpec> {
    let plain = tool("tool.move", Mutability::Destructive, Route::Files);
    let targets = ["from", "to"].map(|argument| Target::Tree { argument: argument.into() }).into();
    Arc::new(ToolSpec { targets, ..ToolSpec::clone(&plain) })
}

fn closing(entry: &str) -> PolicyGate {
    let context =
        context(json!({"name": "workspace", "capabilities": [{"tool_pattern": "*"}], "deny_list": [entry]}));
    PolicyGate::new(&[context], Rules::none(), LabelBook::forgetful())
}

#[test]
fn a_path_can_be_closed_to_every_tool() {
    let gate = closing("*:/workspace/keys");
    for name in ["fs.read", "fs.write", "fs.delete", "tool.local-file-read"] {
        let spec = tool(name, Mutability::ReadOnly, Route::Files);
        let verdict = gate.decide(&caller("workspace"), &spec, &arguments(json!({"path": "keys/a"})));
        assert_eq!(denied(&verdict).unwrap().kind, ViolationKind::ToolExplicitlyDenied, "{name}");
        let open = gate.decide(&caller("workspace"), &spec, &arguments(json!({"path": "keysmith"})));
        let closed: Vec<String> =
            open.granted.unwrap().grant.denied_paths.iter().map(ToString::to_string).collect();
        assert_eq!(closed, ["/workspace/keys"], "{name}");
    }
    // What only others may not touch is no matter for the route of this one.
    let other = closing("fs.read:/workspace/keys");
    let web = decide(&other, "fs.write", json!({"path": "a"}));
    assert!(web.granted.unwrap().grant.denied_paths.is_empty());
}

#[test]
fn whoever_changes_something_keeps_the_way_to_what_is_closed_to_anybody() {
    let gate = closing("fs.read:/workspace/keys");
    let guarded = |mutability| {
        let spec = tool("fs.write", mutability, Route::Files);
        let decision = gate.decide(&caller("workspace"), &spec, &arguments(json!({"path": "a"})));
        let guarded = decision.granted.unwrap().grant.guarded_paths;
        guarded.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    assert_eq!(guarded(Mutability::Mutating), ["/workspace/keys"]);
    assert!(guarded(Mutability::ReadOnly).is_empty());
}

#[test]
fn what_is_closed_to_one_tool_is_moved_by_none() {
    let gate = closing("fs.read:/workspace/a/keys");
    let moves = |from: &str, to: &str| {
        let given = arguments(json!({"from": from, "to": to}));
        denied(&gate.decide(&caller("workspace"), &mover(), &given)).cloned()
    };
    for (from, to) in [
        ("a", "b"),
        ("/workspace", "b"),
        ("a/keys", "b"),
        ("a/keys/k", "b"),
        ("b", "a/keys/k"),
        ("b", "a/keys"),
    ] {
        let violation = moves(from, to).unwrap();
        assert_eq!(violation.kind, ViolationKind::ToolExplicitlyDenied, "{from} {to}");
        assert_eq!(
            violation.rule.as_deref(),
            Some("security_contexts[workspace].deny_list: fs.read:/workspace/a/keys")
        );
    }
    assert_eq!(moves("a/keysmith", "b"), None);
    assert_eq!(moves("b", "a/other"), None);
    // Looking at the tree is decided by what the entry names, and by nothing else.
    assert!(denied(&decide(&gate, "fs.write", json!({"path": "a/keys/new"}))).is_none());
}

#[test]
fn a_patch_that_renames_or_deletes_moves() {
    let gate = closing("fs.read:/workspace/keys");
    let plain = tool("tool.fs-apply-patch", Mutability::Destructive, Route::Files);
    let targets = vec![
        Target::Path { argument: "path".into() },
        Target::Patch { argument: "patch".into(), instead: "path".into() },
    ];
    let patcher = Arc::new(ToolSpec { targets, ..ToolSpec::clone(&plain) });
    let verdict = |given: Value| {
        denied(&gate.decide(&caller("workspace"), &patcher, &arguments(given)))
            .map(|violation| violation.kind)
    };
    let renames = "diff --git a/keys/k b/k\nrename from keys/k\nrename to k\n";
    let deletes = "--- keys/k\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
    let changes = "--- keys/k\n+++ keys/k\n@@ -1 +1 @@\n-x\n+y\n";
    assert_eq!(verdict(json!({"patch": renames})), Some(ViolationKind::ToolExplicitlyDenied));
    assert_eq!(verdict(json!({"patch": deletes})), Some(ViolationKind::ToolExplicitlyDenied));
    assert_eq!(verdict(json!({"patch": changes})), None);
    let other = deletes.replace("keys/k", "k");
    assert_eq!(verdict(json!({"patch": other, "path": "keys/k"})), Some(ViolationKind::ToolExplicitlyDenied));
    assert_eq!(verdict(json!({"patch": other})), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// However often things are moved, what was closed is never anywhere that is open.
    #[test]
    fn moving_opens_nothing(
        closed in "[ab](/[ab]){0,2}",
        moves in prop::collection::vec(("[abc](/[abc]){0,2}", "[abc](/[abc]){0,2}"), 1..12),
    ) {
        let gate = closing(&format!("fs.read:/workspace/{closed}"));
        let below = |path: &str, above: &str| {
            path.strip_prefix(above).filter(|rest| rest.is_empty() || rest.starts_with('/')).map(str::to_owned)
        };
        // Where each file is, and whether it began as one that is closed.
        let mut files: Vec<(String, bool)> = Vec::new();
        for path in ["a/a/a", "a/a/b", "a/b/a", "a/b/b", "b/a/a", "b/a/b", "b/b/a", "b/b/b"] {
            files.push((path.to_owned(), below(path, &closed).is_some()));
        }
        for (from, to) in moves {
            let taken = files.iter().any(|(path, _)| below(path, &to).is_some() || below(&to, path).is_some());
            let given = arguments(json!({"from": from, "to": to}));
            if taken || below(&to, &from).is_some() || denied(&gate.decide(&caller("workspace"), &mover(), &given)).is_some() {
                continue;
            }
            for (path, _) in &mut files {
                if let Some(rest) = below(path, &from) {
                    *path = format!("{to}{rest}");
                }
            }
        }
        for (path, secret) in &files {
            let readable = denied(&decide(&gate, "fs.read", json!({"path": path}))).is_none();
            prop_assert!(!(*secret && readable), "{} can be read", path);
        }
    }
}
