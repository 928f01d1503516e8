//! Paths that a context closes, in a sandbox that shows the volume they are in.

use serde_json::{Value, json};

use super::Scene;

const WALLED: &str = r#"  security_contexts:
    - name: walled
      capabilities:
        - {tool_pattern: cmd.run, command_allowlist: [bash]}
        - {tool_pattern: "fs.*"}
        - {tool_pattern: "tool.*", approval: not_required}
      deny_list: ["*:/workspace/a/keys", "*:/workspace/.env", "*:/workspace/missing/deep", "*:/etc"]
    - name: nowhere
      capabilities: [{tool_pattern: cmd.run, command_allowlist: [bash]}]
      deny_list: ["*:/workspace"]"#;

const SECRET: &str = "for nobody";

impl Scene {
    fn walled() -> Self {
        let scene = Self::acting_as("walled", WALLED);
        scene.write("a/keys/secret", SECRET);
        scene.write("a/plain", "plain");
        scene.write(".env", SECRET);
        scene
    }

    /// The answer of a shell command of the agent's.
    fn agent_ran(&self, script: &str) -> Value {
        let answer = self.run("bash", &["-c", script]);
        assert_eq!(answer.status, 200, "{script}: {}", answer.body);
        answer.result()
    }

    fn is_untouched(&self) -> bool {
        let read = |path: &str| std::fs::read_to_string(self.node.workspace().join(path)).unwrap_or_default();
        read("a/keys/secret") == SECRET && read(".env") == SECRET
    }
}

#[test]
fn a_closed_path_is_empty_and_stays_where_it_is() {
    let scene = Scene::walled();
    let result = scene.agent_ran(
        "cat a/keys/secret .env a/keys/../keys/secret; ls -A a/keys; ls -A missing/deep; find . -type f -size +0; \
         grep -r 'for nobody' . /proc/self/root/workspace",
    );
    assert_eq!(result["stdout"], "./a/plain\n", "{result}");
    for attempt in [
        "echo x > a/keys/new",
        "echo x > .env",
        "mkdir missing/deep/x",
        "mv a b",
        "mv a/keys keys",
        "mv missing found",
        "rmdir missing/deep",
        "rm -rf a/keys",
        "rm -f .env",
        "mv .env env",
        "ln .env env",
        "umount a/keys",
        "umount a",
    ] {
        let result = scene.agent_ran(attempt);
        assert_ne!(result["exit_code"], 0, "{attempt}: {result}");
    }
    assert!(scene.is_untouched());
    // Around it, work goes on.
    let result = scene.agent_ran(
        "echo new > a/other && mv a/other a/moved && mkdir -p a/sub && echo x > sub && mv sub a/sub/x && cat a/moved a/sub/x",
    );
    assert_eq!((&result["exit_code"], &result["stdout"]), (&json!(0), &json!("new\nx\n")), "{result}");
    assert!(scene.node.workspace().join("a/sub/x").is_file());
    // Others see what is theirs to see.
    assert_eq!(scene.ran("cat a/keys/secret .env")["stdout"], SECRET.repeat(2));
}

#[test]
fn what_commands_leave_behind_opens_nothing() {
    let scene = Scene::walled();
    scene.agent_ran("ln -s a/keys/secret one; ln -s a two; ln -s .env three");
    let call = |tool: &str, arguments: Value| scene.node.call_as(&scene.agent, tool, arguments);
    for path in ["one", "two/keys/secret", "three"] {
        for tool in ["fs.read", "tool.local-file-read"] {
            let answer = call(tool, json!({"path": path}));
            assert_eq!(answer.result()["error_kind"], "PERMISSION_DENIED", "{tool} {path}: {}", answer.body);
        }
    }
    for path in ["a/keys/secret", ".env"] {
        for tool in ["fs.read", "tool.local-file-read"] {
            let answer = call(tool, json!({"path": path}));
            assert_eq!(answer.violation(), "ToolExplicitlyDenied", "{tool} {path}: {}", answer.body);
        }
    }
    let renamed = call("tool.fs-rename-file", json!({"fromPath": "a", "toPath": "b"}));
    assert_eq!(renamed.violation(), "ToolExplicitlyDenied", "{}", renamed.body);
    let deleted = call("fs.delete", json!({"path": "a", "recursive": true}));
    assert_eq!(deleted.violation(), "ToolExplicitlyDenied", "{}", deleted.body);
    assert!(scene.is_untouched());
}

#[test]
fn what_can_not_be_covered_is_refused_with_the_reason() {
    let scene = Scene::walled();
    scene.ran("mv a real; ln -s real a");
    let answer = scene.run("bash", &["-c", "cat a/keys/secret"]);
    assert_eq!(answer.result()["error_kind"], "PERMISSION_DENIED", "{}", answer.body);
    assert!(answer.result()["error"].as_str().unwrap().contains("symbolic link"), "{}", answer.body);
    let nowhere = scene.node.make_token("nowhere");
    let answer = scene.node.call_as(&nowhere, "cmd.run", json!({"command": "bash", "args": ["-c", "ls"]}));
    assert_eq!(answer.violation(), "ToolExplicitlyDenied", "{}", answer.body);
    assert!(answer.body.contains("deny_list"), "{}", answer.body);
}

#[test]
fn more_closed_paths_than_a_sandbox_takes_are_refused_with_their_rule() {
    let closed: Vec<String> = (0..70).map(|number| format!("*:/workspace/closed-{number}")).collect();
    let spec = format!(
        "  security_contexts:\n    - {{name: walls, capabilities: [{{tool_pattern: cmd.run, command_allowlist: [bash]}}], \
         deny_list: {}}}",
        json!(closed)
    );
    let scene = Scene::acting_as("walls", &spec);
    let answer = scene.run("bash", &["-c", "ls"]);
    assert_eq!(answer.violation(), "ToolExplicitlyDenied", "{}", answer.body);
    let error = &answer.json()["error"];
    assert_eq!(error["data"]["rule"], "security_contexts[walls].deny_list", "{error}");
    assert!(error["message"].as_str().unwrap().contains("70"), "{error}");
}

#[test]
fn a_file_in_the_way_stays_in_the_way() {
    let scene = Scene::acting_as("walled", WALLED);
    scene.write("a", "a file");
    let result = scene.agent_ran("rm -f a; mv a b; mkdir -p a/keys; echo more >> a; cat a");
    assert_eq!(result["stdout"], "a filemore\n", "{result}");
}
