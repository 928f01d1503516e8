//! What people read, as they read it.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use std::process::Output;

use common::{TestNode, cli, text};

/// Both streams and the exit code, with what differs from run to run taken out.
fn shown(node: Option<&TestNode>, output: &Output) -> String {
    let code = output.status.code().unwrap();
    let mut shown = format!("{}{}[exit code {code}]", text(&output.stdout), text(&output.stderr));
    if let Some(node) = node {
        shown = shown
            .replace(&node.data().display().to_string(), "DATA")
            .replace(node.dir.path().to_str().unwrap(), "DIR")
            .replace(&node.address, "ADDRESS")
            .replace(&node.pid().to_string(), "PID");
    }
    shown
}

/// Times, durations, hashes and sizes of this machine.
fn steady(text: &str) -> String {
    let mut steady = String::new();
    for word in text.split_inclusive([' ', '\n']) {
        let (bare, end) = word.split_at(word.trim_end().len());
        let is_time = bare.len() >= 24 && bare.starts_with("20") && bare.contains('T') && bare.contains('Z');
        let word = if is_time {
            format!("TIME{}", &bare[bare.find('Z').map_or(0, |at| at + 1)..])
        } else if bare.starts_with("tok_") {
            "TOKEN-ID".to_owned()
        } else if bare.starts_with("aegis_") {
            "TOKEN".to_owned()
        } else {
            bare.to_owned()
        };
        steady += &word;
        steady += end;
    }
    steady
}

#[test]
fn help_texts() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arguments) in [
        ("help", vec!["--help"]),
        ("help_up", vec!["up", "--help"]),
        ("help_call", vec!["call", "--help"]),
        ("help_mcp", vec!["mcp", "--help"]),
        ("help_audit", vec!["audit", "--help"]),
        ("help_audit_tail", vec!["audit", "tail", "--help"]),
        ("help_config_validate", vec!["config", "validate", "--help"]),
        ("help_volume_list", vec!["volume", "list", "--help"]),
        ("help_approvals", vec!["approvals", "--help"]),
        ("help_approvals_always", vec!["approvals", "always", "--help"]),
        ("help_approvals_wait", vec!["approvals", "wait", "--help"]),
        ("help_policy", vec!["policy", "--help"]),
        ("help_policy_explain", vec!["policy", "explain", "--help"]),
        ("help_policy_replay", vec!["policy", "replay", "--help"]),
        ("help_context", vec!["context", "--help"]),
        ("help_context_apply", vec!["context", "apply", "--help"]),
        ("help_upstream", vec!["upstream", "--help"]),
        ("help_upstream_add", vec!["upstream", "add", "--help"]),
        ("help_upstream_import", vec!["upstream", "import", "--help"]),
        ("help_secret_set", vec!["secret", "set", "--help"]),
        ("help_token_create", vec!["token", "create", "--help"]),
        ("help_seal", vec!["seal", "--help"]),
        ("help_seal_enroll", vec!["seal", "enroll", "--help"]),
    ] {
        insta::assert_snapshot!(name, shown(None, &cli(dir.path(), &arguments)));
    }
}

#[test]
fn answers_and_refusals() {
    let node = TestNode::start();
    let steps: Vec<(&str, Vec<&str>)> = vec![
        ("write", vec!["call", "fs.write", r#"{"path": "hello.txt", "content": "hi there\n"}"#]),
        ("read_as_json", vec!["call", "--json", "fs.read", r#"{"path": "hello.txt"}"#]),
        ("grep", vec!["call", "fs.grep", r#"{"pattern": "th.re", "path": "."}"#]),
        ("denied", vec!["call", "--context", "read-only", "fs.delete", r#"{"path": "hello.txt"}"#]),
        (
            "denied_as_json",
            vec!["call", "--json", "--context", "read-only", "fs.delete", r#"{"path": "hello.txt"}"#],
        ),
        ("traversal", vec!["call", "fs.read", r#"{"path": "../x"}"#]),
        ("not_found", vec!["call", "fs.read", r#"{"path": "nowhere"}"#]),
        ("no_such_tool", vec!["call", "fs.raed", "{}"]),
        ("missing_argument", vec!["call", "fs.read", "{}"]),
        ("no_json", vec!["call", "fs.read", "path=hello.txt"]),
        ("unknown_context", vec!["call", "--context", "readonly", "fs.read", r#"{"path": "x"}"#]),
        ("tools_show", vec!["tools", "show", "fs.edit"]),
        ("tools_of_a_context", vec!["tools", "list", "--context", "read-only"]),
        ("explain", vec!["explain", "toolnotallowed"]),
        ("explain_unknown", vec!["explain", "ToolNotAlowed"]),
        ("token_without_a_context", vec!["token", "create", "--context", "workspaces"]),
        ("revoke_unknown", vec!["token", "revoke", "nothing"]),
        (
            "policy_explain_allowed",
            vec!["policy", "explain", "fs.read", r#"{"path": "a"}"#, "--context", "read-only"],
        ),
        (
            "policy_explain_denied",
            vec!["policy", "explain", "fs.delete", r#"{"path": "a"}"#, "--context", "read-only"],
        ),
        (
            "policy_explain_shadow",
            vec![
                "policy",
                "explain",
                "fs.delete",
                r#"{"path": "a"}"#,
                "--context",
                "workspace",
                "--having",
                "EXTERNAL_UNTRUSTED",
            ],
        ),
        ("policy_list", vec!["policy", "list"]),
        ("context_unknown", vec!["context", "show", "workspce"]),
    ];
    for (name, arguments) in steps {
        let output = shown(Some(&node), &node.cli(&arguments));
        let output = match name {
            // The call's id is new each time.
            "read_as_json" => {
                let mut value: serde_json::Value =
                    serde_json::from_str(output.lines().next().unwrap()).unwrap();
                value["call"] = "CALL".into();
                value.to_string()
            }
            _ => steady(&output),
        };
        insta::assert_snapshot!(name, output);
    }
    let tail = steady(&shown(Some(&node), &node.cli(&["audit", "tail", "--limit", "4"])));
    let without_times: Vec<String> = tail
        .lines()
        .map(|line| match line.find(" µs") {
            Some(end) => {
                let start = line[..end].rfind(' ').unwrap_or(end);
                format!("{} N{}", &line[..start], &line[end..])
            }
            None => line.to_owned(),
        })
        .collect();
    insta::assert_snapshot!("audit_tail", without_times.join("\n"));
    let verified = node.cli(&["audit", "verify"]);
    assert!(text(&verified.stdout).starts_with("sound: "), "{}", text(&verified.stdout));
}

#[test]
fn without_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let written = cli(&data, &["call", "fs.write", r#"{"path": "a", "content": "x"}"#]);
    assert!(written.status.success(), "a node of its own: {}", text(&written.stderr));
    let verified = cli(&data, &["audit", "verify"]);
    assert!(text(&verified.stdout).starts_with("sound: 2 records"), "{}", text(&verified.stdout));
    let token = cli(&data, &["token", "list"]);
    assert!(text(&token.stderr).contains("start it with `aegis up --data "), "{}", text(&token.stderr));
    let doctor = cli(&data, &["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let mut checks: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|finding| finding["check"].as_str())
        .collect();
    // What a sandbox lacks on some machines is a finding of its own.
    checks.dedup();
    assert_eq!(
        checks,
        [
            "configuration",
            "data directory",
            "operator token",
            "disk",
            "volumes",
            "policies",
            "clock",
            "kernel",
            "open files",
            "sandbox",
            "runtimes",
            "node"
        ]
    );
}

#[test]
fn doctor_finds_what_is_wrong() {
    use std::os::unix::fs::PermissionsExt;
    let node = TestNode::start();
    let data = node.data();
    let (_, dir) = node.stop();
    std::fs::set_permissions(data.join("operator.token"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let config = dir.path().join("bad.yaml");
    std::fs::write(
        &config,
        "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {name: x}\nspec: {netwrok: {}}\n",
    )
    .unwrap();
    let doctor = cli(&data, &["doctor", "--config", config.to_str().unwrap()]);
    let report = text(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(report.contains("did you mean `network`"), "{report}");
    assert!(report.contains("others can read"), "{report}");
    let validated = cli(&data, &["config", "validate", config.to_str().unwrap()]);
    assert_eq!(validated.status.code(), Some(1));
    insta::assert_snapshot!(
        "config_mistake",
        text(&validated.stderr).replace(dir.path().to_str().unwrap(), "DIR")
    );
}

#[test]
fn completions_for_every_shell() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = cli(dir.path(), &["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("aegis"), "{shell}");
    }
}

#[test]
fn policies_without_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let shown = |arguments: &[&str]| {
        let output = cli(&dir.path().join("data"), arguments);
        shown(None, &output).replace(dir.path().to_str().unwrap(), "DIR")
    };
    let file = |name: &str, text: &str| {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let rules = "// Deleting is for ann.\n\
         // deny: fs.delete {\"path\": \"a\"} as workspace by bob\n\
         // allow: fs.delete {\"path\": \"a\"} as workspace by ann\n\
         @id(\"no-deletes\")\n\
         forbid (principal, action == Action::\"fs.delete\", resource)\n\
         unless { principal.user == \"ann\" };\n";
    let good = file("good.cedar", rules);
    insta::assert_snapshot!("policy_check", shown(&["policy", "check", &good]));
    let wrong = file(
        "wrong.cedar",
        &rules.replace("fs.delete\"", "fs.delet\"").replace("principal.user", "principal.usr"),
    );
    insta::assert_snapshot!("policy_check_mistakes", shown(&["policy", "check", &wrong]));
    let broken = file("broken.cedar", &rules.replace("unless {", "unles {"));
    insta::assert_snapshot!("policy_check_syntax", shown(&["policy", "check", &broken]));
    let untrue = file("untrue.cedar", &rules.replace("deny:", "allow:"));
    insta::assert_snapshot!("policy_check_example", shown(&["policy", "check", &untrue]));
    let cases = file(
        "cases.yaml",
        "cases:\n  - {tool: fs.read, arguments: {path: a}, verdict: pass}\n  \
         - {tool: fs.read, arguments: {path: /etc/passwd}, verdict: pass}\n",
    );
    insta::assert_snapshot!("policy_test", shown(&["policy", "test", "--all", &cases]));
    let schema = shown(&["policy", "schema"]);
    assert!(schema.contains("action \"fs.read\"") && schema.contains("[exit code 0]"), "{schema}");
    assert!(!dir.path().join("data").exists(), "looking makes nothing");
}

/// What stands on the first screen of the README is what a person sees who types it.
#[test]
fn the_first_screen_of_the_readme_is_true() {
    let readme = include_str!("../../../README.md");
    let screen = readme.split("```console\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    let node = TestNode::start();
    let mut typed = 0;
    for step in screen.split("$ ").filter(|step| step.starts_with("aegis ")) {
        let (command, expected) = step.split_once('\n').unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("{} {}", common::AEGIS, command.trim_start_matches("aegis "))])
            .env("AEGIS_DATA", node.data())
            .env_remove("AEGIS_TOKEN")
            .output()
            .unwrap();
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(timeless(&said), timeless(expected), "{command}");
        typed += 1;
    }
    assert_eq!(typed, 4, "{screen}");
}

/// Without what differs from run to run: times, and how many heads have been signed meanwhile.
fn timeless(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let shown = words.iter().enumerate().map(|(index, word)| {
        let before = |unit: &str| words.get(index + 1).is_some_and(|next| next.starts_with(unit));
        if word.starts_with("20") && word.ends_with('Z') {
            "TIME"
        } else if before("µs") || (before("signed") && word.parse::<u32>().is_ok()) {
            "N"
        } else if *word == "heads" {
            "head"
        } else {
            word
        }
    });
    shown.collect::<Vec<_>>().join(" ")
}
