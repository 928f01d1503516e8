//! What agents send when they are wrong, or wrong on purpose.

use serde_json::{Value, json};

use super::Scene;

#[test]
fn commands_that_are_none() {
    let scene = Scene::new();
    let refused = |arguments: Value| {
        let answer = scene.node.call("cmd.run", arguments);
        assert_eq!(answer.violation(), "InvalidArguments", "{}", answer.body);
        answer.json()["error"]["message"].as_str().unwrap().to_owned()
    };
    for command in ["", "   ", "''"] {
        refused(json!({"command": command}));
    }
    assert!(refused(json!({"command": "ls 'open"})).contains("unclosed quote"));
    assert!(refused(json!({"command": "ls", "args": ["a\u{0}b"]})).contains("NUL"));
    assert!(refused(json!({"command": "ls\u{0}"})).contains("NUL"));
    assert!(refused(json!({"command": "make && make test"})).contains("`&&`"));
    assert!(refused(json!({"command": "echo $HOME"})).contains("`$H`"));
    let long = "x".repeat(200 << 10);
    assert!(refused(json!({"command": "echo", "args": [long]})).contains("is the limit"));
    let many = vec!["x".repeat(100_000); 21];
    assert!(refused(json!({"command": "echo", "args": many})).contains("is the limit"));
}

#[test]
fn a_program_that_is_not_there() {
    let scene = Scene::new();
    let answer = scene.node.call("cmd.run", json!({"command": "no-such-program"}));
    assert_eq!(
        (answer.status, &answer.result()["error_kind"]),
        (422, &json!("NOT_FOUND")),
        "{}",
        answer.body
    );
    scene.write("plain.txt", "no program\n");
    let answer = scene.node.call("cmd.run", json!({"command": "./plain.txt"}));
    assert_eq!(answer.status, 422, "{}", answer.body);
}

#[test]
fn output_that_is_no_text() {
    let scene = Scene::new();
    let result = scene.ran("printf 'a\\377\\376b\\303'");
    assert_eq!(result["stdout"], "a\u{fffd}\u{fffd}b\u{fffd}", "{result}");
    assert!(result["notice"].as_str().unwrap().contains("UTF-8"), "{result}");
}

#[test]
fn a_child_that_closes_its_pipes() {
    let scene = Scene::new();
    let result = scene.ran("exec >&- 2>&-; sleep 0.2; exit 7");
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(7), &json!("")), "{result}");
}

#[test]
fn a_script_with_line_ends_of_windows() {
    let scene = Scene::new();
    let script = "for word in a b\r\ndo\r\n  echo \"$word $1\"\r\ndone\r\n";
    let outcome = scene.approved("tool.bash", &json!({"script": script, "args": ["x y"]}));
    assert_eq!(outcome["value"]["stdout"], "a x y\nb x y\n", "{outcome}");
}

#[test]
fn variables_that_run_code_stay_out() {
    let scene = Scene::with("  exec: {environment: {allow: [CI, \"MY_*\"]}}");
    for name in
        ["LD_PRELOAD", "BASH_ENV", "GIT_SSH_COMMAND", "PYTHONPATH", "NODE_OPTIONS", "PATH", "MY_SECRET"]
    {
        let arguments = json!({"command": "printenv", "args": ["-0"], "env": {name: "x"}});
        let parked = scene.node.call_as(&scene.agent, "tool.exec", arguments);
        assert_eq!(parked.status, 202, "{}", parked.body);
        let id = parked.json()["approval"]["id"].as_str().unwrap().to_owned();
        let approve = format!("/v1/approvals/{id}/approve");
        scene.node.request("POST", &approve, Some(&scene.node.token), Some(&json!({})));
        let path = format!("/v1/approvals/{id}?wait=30s");
        let ended = scene.node.request("GET", &path, Some(&scene.agent), None);
        assert!(ended.body.contains("may not be set by a call"), "{name}: {}", ended.body);
    }
    let arguments =
        json!({"command": "printenv", "args": ["CI", "MY_MODE"], "env": {"CI": "1", "MY_MODE": "x"}});
    let outcome = scene.approved("tool.exec", &arguments);
    assert_eq!(outcome["value"]["stdout"], "1\nx\n", "{outcome}");
}

#[test]
fn nothing_of_the_node_is_seen_inside() {
    let scene = Scene::new();
    let data = scene.node.data();
    let script = format!(
        "printenv; ls -a / ; ls {0} {0}/operator.token /root /home /var/lib 2>&1; cat /proc/1/environ 2>&1 | tr '\\0' '\\n'; id -u; ls /proc | grep -c '^[0-9]'",
        data.display()
    );
    let result = scene.ran(&script);
    let text = result["stdout"].as_str().unwrap();
    assert!(!text.contains("AEGIS") && !text.contains("CARGO"), "{text}");
    assert!(!text.contains(&scene.node.token), "{text}");
    assert_eq!(scene.ran(&format!("cat {}/operator.token", data.display()))["exit_code"], 1);
    let uid = text.lines().rev().nth(1).unwrap();
    assert_ne!(uid, "0", "{text}");
}

#[test]
fn links_lead_nowhere() {
    let scene = Scene::new();
    let data = scene.node.data();
    scene.ran("ln -s / out; ln -s /proc/1/root root");
    let script = format!(
        "cat out{0}/operator.token root{0}/operator.token /proc/self/root{0}/operator.token",
        data.display()
    );
    let result = scene.ran(&script);
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(1), &json!("")), "{result}");
    // And files that a sandbox made are confined for the file tools, too.
    let answer = scene.node.call("fs.read", json!({"path": "out/etc/hostname"}));
    assert_ne!(answer.status, 200, "{}", answer.body);
}

#[test]
fn below_the_floor_nothing_runs() {
    let scene = Scene::with(
        "  exec: {required_layers: [cpu-cgroup, memory-cgroup, landlock, mapped-volumes, cgroup-namespace]}",
    );
    let answer = scene.shell("echo hi");
    // A machine that has every layer runs it; any other says what is missing.
    if answer.status == 200 {
        return;
    }
    assert_eq!((answer.status, answer.violation().as_str()), (503, "SandboxUnavailable"), "{}", answer.body);
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("floor"), "{}", answer.body);
}

#[test]
fn commands_can_be_turned_off() {
    let scene = Scene::with("  exec: {enabled: false}");
    let answer = scene.shell("echo hi");
    assert_eq!((answer.status, answer.violation().as_str()), (503, "SandboxUnavailable"), "{}", answer.body);
}
