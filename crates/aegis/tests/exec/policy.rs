//! Who may run what.

use std::io::BufRead;

use serde_json::json;

use super::Scene;

const BUILDER: &str = r#"  security_contexts:
    - name: builder
      capabilities:
        - tool_pattern: cmd.run
          subcommand_allowlist: {git: [status, log], make: [], ls: [], "./bin/*": []}
          argument_patterns: {git: {deny: ["-O*", "--output*"]}}
        - {tool_pattern: tool.exec, command_allowlist: [bash]}
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
    assert_eq!(
        error["data"]["hint"],
        "its first argument must be one of: log, status; an operator can add `push`"
    );
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

/// Allowed or refused, what looks like a secret among the words of a command is in no record and in no event.
#[test]
fn secrets_of_commands_are_in_no_record_and_no_event() {
    const SECRET: &str = "hunter2-hunter2";
    let scene = Scene::acting_as("builder", BUILDER);
    let told = scene.node.subscribe().lines().map(Result::unwrap);
    // Read as they come: who is slow loses some.
    let told = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in told {
            let last = line.contains("\"exit_code\":86");
            lines.push(line);
            if last {
                break;
            }
        }
        lines
    });
    let forms: [&[&str]; 9] = [
        &["--token", SECRET],
        &["--password=hunter2-hunter2"],
        &["-H", "Authorization: Bearer hunter2-hunter2"],
        &["API_KEY=hunter2-hunter2"],
        &["-u", "ann:hunter2-hunter2"],
        &["-uann:hunter2-hunter2"],
        &["--user=ann:hunter2-hunter2"],
        &["-----BEGIN RSA PRIVATE KEY-----\nhunter2-hunter2\n"],
        &["https://ann:hunter2-hunter2@example.org/"],
    ];
    for words in forms {
        for (program, words) in
            [("true", words.to_vec()), ("git", words.to_vec()), ("git", [&["log"], words].concat())]
        {
            scene.node.call("cmd.run", json!({"command": program, "args": words}));
            scene.run(program, &words);
        }
        let line =
            format!("true {}", words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "));
        scene.node.call("cmd.run", json!({"command": line}));
        let args = [&["-c", "true"], words].concat();
        scene.approved("tool.exec", &json!({"command": "bash", "args": args}));
    }
    for program in ["PASSWORD=hunter2-hunter2 make", "https://ann:hunter2-hunter2@example.org/x"] {
        scene.node.call("cmd.run", json!({"command": program}));
        scene.run(program, &[]);
    }
    let records = scene.node.records();
    let of_commands = |record: &&serde_json::Value| {
        matches!(record["entry"]["tool"].as_str(), Some("cmd.run" | "tool.exec"))
    };
    assert!(records.iter().filter(of_commands).count() > forms.len() * 7);
    for record in records {
        assert!(!record.to_string().contains(SECRET), "{record}");
    }
    // Whatever was told of those commands has been told before this one.
    scene.ran("exit 86");
    let told = told.join().unwrap();
    for line in &told {
        assert!(!line.contains(SECRET), "{line}");
    }
    let starts = told.iter().filter(|line| line.ends_with("CommandExecutionStarted")).count();
    assert!(starts > forms.len() * 2, "{starts}");
}
