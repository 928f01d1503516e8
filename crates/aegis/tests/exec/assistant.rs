//! The assistant tools that run programs.

use serde_json::json;

use super::{Scene, processes_with};
use crate::common::wait_until;

#[test]
fn programs_run_after_a_person_agreed() {
    let scene = Scene::new();
    scene.write("lib/a.txt", "x\n");
    let outcome =
        scene.approved("tool.shell-command", &json!({"command": "ls lib", "allowedCommands": ["nothing"]}));
    assert_eq!(outcome["value"]["stdout"], "a.txt\n", "{outcome}");
    assert_eq!((&outcome["value"]["command"], &outcome["value"]["args"]), (&json!("ls"), &json!(["lib"])));
    let arguments = json!({"command": "pwd", "args": ["-P"], "workingDir": "lib", "captureStderr": false});
    let outcome = scene.approved("tool.exec", &arguments);
    assert_eq!(outcome["value"]["stdout"], "/workspace/lib\n", "{outcome}");
    assert_eq!(outcome["value"]["sandboxMode"], "no_network_compute");
    assert_eq!(outcome["value"]["timedOut"], false);
    let outcome = scene.approved("tool.exec", &json!({"command": "sleep", "args": ["30"], "timeoutMs": 200}));
    assert_eq!((&outcome["value"]["timedOut"], &outcome["value"]["exitCode"]), (&json!(true), &json!(-1)));
}

#[test]
fn an_approver_sees_every_word() {
    let scene = Scene::new();
    let parked =
        scene.node.call_as(&scene.agent, "tool.exec", json!({"command": "ls", "args": ["a b", "; rm"]}));
    let id = parked.json()["approval"]["id"].as_str().unwrap().to_owned();
    let seen =
        scene.node.request("GET", &format!("/v1/approvals/{id}"), Some(&scene.node.token), None).json();
    assert_eq!(seen["preview"]["line"], "ls 'a b' '; rm'", "{seen}");
}

#[test]
fn long_scripts_go_in_as_input() {
    let scene = Scene::new();
    let script = format!("# {}\necho \"$# $1\"", "x".repeat(200 << 10));
    let outcome = scene.approved("tool.bash", &json!({"script": script, "args": ["one", "two"]}));
    assert_eq!(outcome["value"]["stdout"], "2 one\n", "{outcome}");
    let outcome = scene.approved(
        "tool.code-execution",
        &json!({"language": "shell", "code": "read a; echo $a", "stdin": "hi\n"}),
    );
    assert_eq!(outcome["value"]["stdout"], "hi\n", "{outcome}");
    let packages = json!({"language": "python", "code": "1", "packages": ["requests"]});
    let parked = scene.node.call_as(&scene.agent, "tool.code-execution", packages);
    assert_eq!(parked.status, 202, "{}", parked.body);
}

#[test]
fn processes_are_listed_inspected_and_killed_by_their_owner_only() {
    let scene = Scene::new();
    let arguments = json!({"command": "sleep", "args": ["86411"]});
    let call = || scene.node.call_as(&scene.agent, "cmd.run", arguments.clone());
    std::thread::scope(|scope| {
        let running = scope.spawn(call);
        wait_until(|| !processes_with("sleep\u{0}86411").is_empty());
        let listed = scene.approved("tool.process", &json!({"operation": "list", "filter": "sleep"}));
        let rows = listed["value"]["processes"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{listed}");
        assert_eq!((&rows[0]["command"], &rows[0]["args"]), (&json!("sleep"), &json!(["86411"])), "{listed}");
        assert_eq!(rows[0]["status"], "sleeping");
        let pid = rows[0]["pid"].clone();
        let inspected = scene.approved("tool.process", &json!({"operation": "inspect", "pid": pid}));
        assert_eq!(inspected["value"]["processes"][0]["handle"], rows[0]["handle"], "{inspected}");

        let other = scene.node.make_token("workspace");
        let parked = scene.node.call_as(
            &other,
            "tool.process",
            json!({"operation": "kill", "pid": pid, "signal": "SIGKILL"}),
        );
        let id = parked.json()["approval"]["id"].as_str().unwrap().to_owned();
        let approve = format!("/v1/approvals/{id}/approve");
        scene.node.request("POST", &approve, Some(&scene.node.token), Some(&json!({})));
        let ended =
            scene.node.request("GET", &format!("/v1/approvals/{id}?wait=30s"), Some(&other), None).json();
        assert_eq!(ended["outcome"]["value"]["error_kind"], "NOT_FOUND", "{ended}");

        let own_process = json!({"operation": "kill", "pid": std::process::id()});
        let refused = scene.approved("tool.process", &own_process);
        assert_eq!(refused["value"]["error_kind"], "NOT_FOUND", "{refused}");
        let killed = scene.approved("tool.process", &json!({"operation": "kill", "pid": pid}));
        assert_eq!(killed["value"]["signalSent"], "SIGTERM", "{killed}");
        let answer = running.join().unwrap();
        assert_eq!(answer.result()["exit_code"], 143, "{}", answer.body);
    });
}
