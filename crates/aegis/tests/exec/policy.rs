//! Who may run what.

use serde_json::json;

use super::Scene;

const BUILDER: &str = r#"  security_contexts:
    - name: builder
      capabilities:
        - tool_pattern: cmd.run
          subcommand_allowlist: {git: [status, log], make: [], ls: [], "./bin/*": []}
          argument_patterns: {git: {deny: ["-O*", "--output*"]}}
    - name: anything
      capabilities: [{tool_pattern: cmd.run, command_allowlist: ["*"]}]
    - name: silent
      capabilities: [{tool_pattern: cmd.run}]
  exec:
    ceiling: {commands: {"*": [], git: [status, log, diff], bash: [], "./bin/*": [], sh: []}}"#;

#[test]
fn denied_before_anything_runs() {
    let scene = Scene::acting_as("builder", BUILDER);
    let refused = |command: &str, args: &[&str]| {
        let answer = scene.run(command, args);
        (answer.status, answer.violation(), answer.body)
    };
    for (command, args, kind) in [
        ("git", &["push"] as &[&str], "SubcommandNotAllowed"),
        ("git", &["-c", "core.pager=sh", "log"], "SubcommandNotAllowed"),
        ("git", &["log", "--output=x"], "SubcommandNotAllowed"),
        ("git", &[], "SubcommandNotAllowed"),
        ("bash", &["-c", "ls"], "CommandNotAllowed"),
        ("/usr/bin/git", &["status"], "CommandNotAllowed"),
        ("curl", &["http://example.org"], "CommandNotAllowed"),
        ("./bin/../x", &["a"], "CommandNotAllowed"),
    ] {
        let (status, violation, body) = refused(command, args);
        assert_eq!((status, violation.as_str()), (403, kind), "{command} {args:?}: {body}");
    }
    let answer = scene.run("git", &["push"]);
    let error = &answer.json()["error"];
    assert_eq!(error["message"], "`git push` is not allowed");
    assert_eq!(error["data"]["hint"], "its first argument must be one of: log, status");
    assert!(error["data"]["rule"].as_str().unwrap().contains("subcommand_allowlist.git"), "{error}");
    assert_eq!(scene.run("ls", &["-a"]).status, 200);
}

#[test]
fn a_wildcard_grants_no_interpreter_and_silence_grants_nothing() {
    let scene = Scene::acting_as("anything", BUILDER);
    assert_eq!(scene.run("ls", &["-a"]).status, 200);
    for program in ["bash", "python3", "env", "perl"] {
        let answer = scene.run(program, &["--version"]);
        assert_eq!(answer.violation(), "CommandNotAllowed", "{program}: {}", answer.body);
    }
    let silent = scene.node.make_token("silent");
    let answer = scene.node.call_as(&silent, "cmd.run", json!({"command": "ls"}));
    assert_eq!(answer.violation(), "CommandNotAllowed", "{}", answer.body);
}

#[test]
fn the_ceiling_holds_for_the_operator_too() {
    let scene = Scene::acting_as("builder", BUILDER);
    let operator = |command: &str| scene.node.call("cmd.run", json!({"command": command}));
    assert_eq!(operator("bash -c 'exit 3'").result()["exit_code"], 3);
    let refused = operator("git push");
    assert_eq!(refused.json()["error"]["data"]["rule"], "spec.exec.ceiling.commands.git", "{}", refused.body);
    assert_eq!(operator("python3 --version").violation(), "CommandNotAllowed");
}

#[test]
fn the_record_names_the_rule() {
    let scene = Scene::acting_as("builder", BUILDER);
    scene.run("git", &["push"]);
    let records = scene.node.records();
    let record = &records.iter().rev().find(|record| record["entry"]["tool"] == "cmd.run").unwrap()["entry"];
    assert_eq!(record["result"]["kind"], "SubcommandNotAllowed", "{record}");
    assert!(record["result"]["rule"].as_str().unwrap().ends_with("subcommand_allowlist.git"), "{record}");
}
