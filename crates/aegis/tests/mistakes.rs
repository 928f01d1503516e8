//! What a person who is new to the tool gets wrong, and what they are told.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use std::{
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use common::{AEGIS, TestNode, cli, text, write_config};
use serde_json::{Value, json};

fn told(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn json_of(output: &Output) -> Value {
    let out = text(&output.stdout);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {}", told(output)))
}

/// A configuration with these volumes, each as name, directory and access mode.
fn with_volumes(dir: &Path, volumes: &[(&str, &Path, &str)]) -> String {
    let rows: Vec<String> = volumes
        .iter()
        .map(|(name, host, mode)| {
            format!(
                "      - {{name: {name}, host_path: {}, mount_path: /workspace/{name}, access_mode: {mode}}}",
                host.display()
            )
        })
        .collect();
    write_config(dir, &format!("  storage:\n    volumes:\n{}", rows.join("\n")));
    dir.join("config.yaml").to_str().unwrap().to_owned()
}

#[test]
fn a_data_directory_that_can_not_be_read_is_not_taken_for_none() {
    let (dir, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_config(dir.path(), "  policy: {label_rules: enforce}");
    let file = dir.path().join("config.yaml").to_str().unwrap().to_owned();
    std::fs::write(data.path().join("VERSION"), "999\n").unwrap();
    let checked = cli(data.path(), &["policy", "check", "--config", &file]);
    assert!(!checked.status.success() && told(&checked).contains("format 999"), "{}", told(&checked));
    // The file is not to blame for it.
    let valid = cli(data.path(), &["config", "validate", &file]);
    assert!(valid.status.success() && told(&valid).contains("warning: "), "{}", told(&valid));
    assert!(told(&valid).contains("format 999"), "{}", told(&valid));
    let elsewhere = cli(data.path(), &["config", "validate", &file, "--elsewhere"]);
    assert!(elsewhere.status.success() && !told(&elsewhere).contains("999"), "{}", told(&elsewhere));
}

#[test]
fn directories_of_volumes_are_tried() {
    let dir = tempfile::tempdir().unwrap();
    let (data, gone, there) = (dir.path().join("data"), dir.path().join("gone"), dir.path().join("there"));
    std::fs::create_dir_all(there.join("inside")).unwrap();
    let steady = |output: &Output| {
        let code = output.status.code().unwrap();
        format!("{}[exit code {code}]", told(output)).replace(dir.path().to_str().unwrap(), "DIR")
    };
    let file = with_volumes(dir.path(), &[("gone", &gone, "read-write"), ("there", &there, "read-write")]);
    insta::assert_snapshot!("volume_missing", steady(&cli(&data, &["config", "validate", &file])));
    let elsewhere = cli(&data, &["config", "validate", &file, "--elsewhere"]);
    assert!(elsewhere.status.success(), "{}", told(&elsewhere));
    let doctor = cli(&data, &["doctor", "--config", &file]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(told(&doctor).contains("volume `gone`: there is no directory"), "{}", told(&doctor));
    let up = cli(&data, &["up", "--config", &file]);
    assert_eq!(up.status.code(), Some(1));
    assert_eq!(text(&up.stderr).matches("No such file or directory").count(), 1, "{}", told(&up));

    let file = with_volumes(
        dir.path(),
        &[("there", &there, "read-write"), ("inside", &there.join("inside"), "read-only")],
    );
    insta::assert_snapshot!("volume_overlap", steady(&cli(&data, &["config", "validate", &file])));

    // The node's own files are nobody's volume.
    let file = with_volumes(dir.path(), &[("all", dir.path(), "read-only")]);
    let validated = cli(&data, &["config", "validate", &file, "--json"]);
    assert_eq!((validated.status.code(), &json_of(&validated)["valid"]), (Some(1), &json!(false)));
    let up = cli(&data, &["up", "--config", &file]);
    assert_eq!(up.status.code(), Some(1));
    assert!(text(&up.stderr).contains("would let agents reach the node's own keys"), "{}", told(&up));
}

#[test]
fn what_waits_for_a_restart_is_not_shown_as_in_force() {
    let node = TestNode::with_config("  storage: {max_list_entries: 11}");
    let shown = text(&node.cli(&["config", "show"]).stdout);
    assert!(shown.contains("max_list_entries: 11") && !shown.contains("waits for a restart"), "{shown}");
    assert!(shown.contains("#     - name: aegis-system-operator"), "{shown}");
    write_config(
        node.dir.path(),
        "  storage: {max_list_entries: 12}\n  security_contexts: [{name: brand-new, capabilities: []}]",
    );
    common::wait_until(|| text(&node.cli(&["config", "show"]).stdout).contains("brand-new"));
    let shown = text(&node.cli(&["config", "show"]).stdout);
    assert!(shown.contains("#   spec.storage.max_list_entries: 12"), "{shown}");
    assert!(shown.contains("    max_list_entries: 11"), "{shown}");
    let found = json_of(&node.cli(&["config", "show", "--json"]));
    assert_eq!(
        found["waits_for_restart"],
        json!([{"path": "spec.storage.max_list_entries", "next": 12}]),
        "{found}"
    );
    let names: Vec<&str> = (found["config"]["spec"]["security_contexts"].as_array().unwrap().iter())
        .filter_map(|context| context["name"].as_str())
        .collect();
    for name in ["aegis-system-operator", "workspace", "read-only", "brand-new"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    std::fs::write(node.dir.path().join("config.yaml"), "kind: NodeConfig\n").unwrap();
    let shown = text(&node.cli(&["config", "show"]).stdout);
    assert!(shown.contains("the file can't be used as it is") && shown.contains("brand-new"), "{shown}");
    // What is printed can be used as a file.
    let copy = node.dir.path().join("copy.yaml");
    std::fs::write(&copy, &shown).unwrap();
    let validated = node.cli(&["config", "validate", copy.to_str().unwrap()]);
    assert!(validated.status.success(), "{}", told(&validated));
}

#[test]
fn a_command_says_that_it_has_a_node_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["call", "fs.list", "{\"path\": \"/workspace\"}"][..],
        &["tools", "list"],
        &["context", "list"],
        &["volume", "list"],
    ] {
        let output = cli(dir.path(), arguments);
        let note = text(&output.stderr);
        assert!(output.status.success(), "{note}");
        assert_eq!(note.lines().count(), 1, "{note}");
        assert!(note.starts_with("note: no node runs on ") && note.contains("aegis up --data"), "{note}");
        let quiet = cli(dir.path(), &[arguments, &["--json"]].concat());
        assert_eq!(text(&quiet.stderr), "", "{arguments:?}");
    }
}

/// One form and one exit code, whatever is named.
#[test]
fn names_that_are_not_there() {
    let node = TestNode::with_config(
        "  mcp_servers: [{name: notes, executable: /bin/false, enabled: false}]\n  \
         storage: {nfs: {enabled: true, listen: \"127.0.0.1:0\"}}",
    );
    let stored = Command::new(AEGIS)
        .args(["secret", "set", "github/token", "--data"])
        .arg(node.data())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .and_then(|mut child| {
            child.stdin.take().unwrap().write_all(b"value")?;
            child.wait()
        });
    assert!(stored.unwrap().success());
    let close = [
        (&["call", "fs.raed", "{}"][..], "fs.read", "aegis tools list"),
        (&["tools", "show", "fs.raed"], "fs.read", "aegis tools list"),
        (&["call", "--context", "readonly", "fs.list"], "read-only", "aegis context list"),
        (&["tools", "list", "--context", "readonly"], "read-only", "aegis context list"),
        (&["mcp", "--context", "readonly"], "read-only", "aegis context list"),
        (&["token", "create", "--context", "workspce"], "workspace", "aegis context list"),
        (&["seal", "enroll", "--context", "workspce"], "workspace", "aegis context list"),
        (&["context", "show", "workspce"], "workspace", "aegis context list"),
        (&["context", "delete", "workspce"], "workspace", "aegis context list"),
        (&["volume", "export", "--context", "workspce"], "workspace", "aegis context list"),
        (&["upstream", "show", "notse"], "notes", "aegis upstream list"),
        (&["upstream", "logs", "notse"], "notes", "aegis upstream list"),
        (&["secret", "delete", "github/tokn"], "github/token", "aegis secret list"),
        (&["explain", "ToolNotAlowed"], "ToolNotAllowed", "aegis explain"),
        (&["policy", "explain", "fs.read", "{}", "--context", "workspce"], "workspace", "aegis context list"),
    ];
    for (arguments, meant, next) in close {
        let output = node.cli(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", told(&output));
        assert!(errors.contains(&format!("did you mean `{meant}`?")), "{arguments:?}: {errors}");
        assert!(errors.lines().any(|line| line.starts_with("  next: ") && line.contains(next)), "{errors}");
        let output = node.cli(&[arguments, &["--json"]].concat());
        let error = &json_of(&output)["error"];
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains(meant), "{arguments:?}: {error}");
        assert!(error["data"]["hint"].as_str().unwrap().contains(next), "{arguments:?}: {error}");
    }
    // Nobody remembers an id, so none is proposed.
    for (arguments, next) in [
        (&["token", "revoke", "tok_0"][..], "aegis token list"),
        (&["seal", "revoke", "enr_0"], "aegis seal enrolments"),
        (&["seal", "end", "0"], "aegis seal sessions"),
        (&["volume", "unexport", "export:0"], "aegis volume list"),
        (&["approvals", "show", "approval:0"], "aegis approvals list"),
        (&["approvals", "revoke", "standing:0"], "aegis approvals standing"),
    ] {
        let output = node.cli(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", told(&output));
        assert!(errors.lines().any(|line| line.starts_with("  next: ") && line.contains(next)), "{errors}");
    }
    // The name is there; the state of things stands in the way.
    let shipped = node.cli(&["context", "delete", "workspace"]);
    assert_eq!(shipped.status.code(), Some(1), "{}", told(&shipped));
    assert!(text(&shipped.stderr).starts_with("error (Conflict): "), "{}", told(&shipped));
}

#[test]
fn a_context_that_is_not_there_serves_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let alone = cli(dir.path(), &["mcp", "--context", "nope"]);
    assert_eq!((alone.status.code(), text(&alone.stdout).as_str()), (Some(2), ""), "{}", told(&alone));
    assert!(text(&alone.stderr).contains("there is no security context `nope`"), "{}", told(&alone));
    let called = cli(dir.path(), &["call", "--context", "nope", "fs.list"]);
    assert_eq!(called.status.code(), Some(2), "{}", told(&called));
}

#[test]
fn a_line_that_is_no_json_is_answered_with_a_null_id() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(AEGIS)
        .args(["mcp", "--data"])
        .arg(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"{bad\n").unwrap();
    let answer = json_of(&child.wait_with_output().unwrap());
    assert_eq!((answer.get("id"), &answer["error"]["code"]), (Some(&json!(null)), &json!(-32700)));
}

#[test]
fn empty_lists_say_what_to_do() {
    let node = TestNode::start();
    for (arguments, words) in [
        (&["seal", "enrolments"][..], "aegis seal enroll"),
        (&["seal", "sessions"], "aegis seal enrolments"),
        (&["secret", "list"], "aegis secret set"),
        (&["approvals", "list"], "aegis approvals list --all"),
        (&["approvals", "standing"], "aegis approvals always"),
        (&["upstream", "list"], "aegis upstream add"),
        (&["volume", "list"], "spec.storage.nfs.enabled"),
        (&["policy", "check"], "aegis policy check PATH"),
        (&["tools", "search", "xyzzy"], "aegis tools list"),
        (&["audit", "tail", "--caller", "nobody"], "aegis audit tail"),
    ] {
        let output = node.cli(arguments);
        let shown = text(&output.stdout);
        assert!(output.status.success(), "{}", told(&output));
        let last = shown.lines().last().unwrap_or_default();
        assert!(last.contains(words), "{arguments:?}: {shown}");
    }
}

#[test]
fn mistakes_of_usage_are_json_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, words) in [
        (&["call", "--json"][..], "<TOOL>"),
        (&["--json", "audit", "tail", "--verdict", "nonsense"], "refused"),
        (&["--json", "nonsense"], "nonsense"),
        (&["call", "fs.read", "path=a", "--json"], "no JSON object"),
        (&["up", "--listen", "here", "--json"], "127.0.0.1:8392"),
        (&["explain", "Nonsense", "--json"], "Nonsense"),
        (&["policy", "check", "/no/such/place", "--json"], "/no/such/place"),
    ] {
        let output = cli(dir.path(), arguments);
        let error = &json_of(&output)["error"];
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(2), ""), "{arguments:?}");
        assert!(error["message"].as_str().unwrap().contains(words), "{arguments:?}: {error}");
        assert!(error["data"]["hint"].is_string(), "{arguments:?}: {error}");
    }
}

#[test]
fn a_configuration_is_no_context() {
    let dir = tempfile::tempdir().unwrap();
    write_config(dir.path(), "  security_contexts: [{name: mine}]");
    let applied = cli(
        &dir.path().join("data"),
        &["context", "apply", dir.path().join("config.yaml").to_str().unwrap()],
    );
    assert_eq!(applied.status.code(), Some(2));
    let errors = text(&applied.stderr);
    assert!(
        errors.contains("is a node's configuration") && errors.contains("spec.security_contexts"),
        "{errors}"
    );
}

#[test]
fn hints_name_the_command_that_was_meant() {
    let dir = tempfile::tempdir().unwrap();
    let policies = dir.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::write(
        policies.join("a.cedar"),
        "forbid (principal, action == Action::\"fs.delete\", resource);",
    )
    .unwrap();
    let (policies, file) = (policies.to_str().unwrap(), policies.join("a.cedar"));
    let check = format!("aegis policy check {policies}");
    for (arguments, words) in [
        (&["policy", "replay", "--policies", "/no/such"][..], "aegis policy replay --policies DIR"),
        (&["policy", "check", "/no/such"], "aegis policy check PATH"),
        (&["policy", "test", policies], check.as_str()),
        (&["policy", "test", policies], "holds policies, and no cases (*.yaml)"),
        (&["policy", "test", file.to_str().unwrap()], "is a policy file, and cases are YAML"),
        (&["approvals", "always"], "--tool, --user and --arguments or --any-arguments are missing"),
        (&["approvals", "always", "--tool", "fs.write", "--any-arguments"], "--user is missing"),
        (&["approvals", "always", "--tool", "fs.write"], "aegis approvals always --tool fs.write --user ann"),
    ] {
        let output = cli(dir.path(), arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}

#[test]
fn a_finding_of_several_lines_stays_in_its_column() {
    let dir = tempfile::tempdir().unwrap();
    write_config(dir.path(), "  limits: {max_concurrent_calls: none, drain_timout: 1s}");
    let config = dir.path().join("config.yaml");
    let output = cli(&dir.path().join("data"), &["doctor", "--config", config.to_str().unwrap()]);
    let shown = text(&output.stdout);
    let marks = ["good  ", "WARN  ", "BAD   ", "                     "];
    assert!(shown.contains("2 mistakes"), "{shown}");
    for line in shown.lines() {
        assert!(marks.iter().any(|mark| line.starts_with(mark)), "{line}\n{shown}");
    }
}
