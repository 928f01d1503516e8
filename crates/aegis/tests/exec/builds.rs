//! What it is all for: building, testing and computing on a workspace.

use serde_json::json;

use super::{Scene, host_has};

const PRIMES: &str = "n, found, total = 2, 0, 0
while found < 100:
    if all(n % d for d in range(2, int(n ** 0.5) + 1)):
        found, total = found + 1, total + n
    n += 1
print(total)";

#[test]
fn a_c_project_is_built_and_tested_offline() {
    let scene = Scene::new();
    scene.write(
        "project/Makefile",
        "CFLAGS = -O1 -Wall -Werror\ntest: sum_test\n\t./sum_test\nsum_test: sum.o sum_test.o\n\t$(CC) -o $@ $^\n.PHONY: test\n",
    );
    scene.write("project/sum.h", "int sum(const int *numbers, int count);\n");
    scene.write(
        "project/sum.c",
        "#include \"sum.h\"\nint sum(const int *numbers, int count) { int total = 0; while (count--) total += numbers[count]; return total; }\n",
    );
    scene.write(
        "project/sum_test.c",
        "#include <stdio.h>\n#include \"sum.h\"\nint main(void) { int n[] = {1, 2, 39}; printf(\"sum is %d\\n\", sum(n, 3)); return sum(n, 3) != 42; }\n",
    );
    let answer = scene.run("make", &["-C", "project", "test"]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let result = answer.result();
    assert_eq!(result["exit_code"], 0, "{result}");
    assert!(result["stdout"].as_str().unwrap().contains("sum is 42"), "{result}");
    assert!(scene.node.workspace().join("project/sum_test").is_file());

    // A test that fails is a normal answer.
    scene.write(
        "project/sum.c",
        "#include \"sum.h\"\nint sum(const int *numbers, int count) { return *numbers * count; }\n",
    );
    let result = scene.run("make", &["-C", "project", "test"]).result();
    assert_eq!(result["exit_code"], 2, "{result}");
}

#[test]
fn python_and_node_compute() {
    let scene = Scene::new();
    let code = json!({"language": "python", "code": PRIMES});
    let outcome = scene.approved("tool.code-execution", &code);
    assert_eq!(outcome["value"]["stdout"], "24133\n", "{outcome}");
    assert_eq!(outcome["value"]["sandboxMode"], "no_network_compute");

    let code = json!({"language": "javascript", "code": "let s = 0; process.stdin.on('data', d => s += +d).on('end', () => console.log(s * 2))", "stdin": "21"});
    let outcome = scene.approved("tool.code-execution", &code);
    if host_has("node") {
        assert_eq!(outcome["value"]["stdout"], "42\n", "{outcome}");
    } else {
        assert_eq!(outcome["value"]["error_kind"], "NOT_FOUND", "{outcome}");
        assert!(outcome["value"]["error"].as_str().unwrap().contains("there is no node"), "{outcome}");
    }
    let spec = scene.node.request("GET", "/v1/tools/tool.code-execution", Some(&scene.agent), None).json();
    let description = spec["description"].as_str().unwrap();
    assert_eq!(description.contains("javascript, typescript"), host_has("node"), "{description}");
}

#[test]
fn git_works_on_the_workspace() {
    let scene = Scene::new();
    scene.write("repo/a.txt", "one\n");
    for line in ["git init -q repo", "git add a.txt", "git commit -q -m first --author 'A <a@example.org>'"] {
        let directory = if line.contains("init") { "/workspace" } else { "/workspace/repo" };
        let script = format!(
            "cd {directory} && export GIT_COMMITTER_NAME=A GIT_COMMITTER_EMAIL=a@example.org && {line}"
        );
        let result = scene.ran(&script);
        assert_eq!(result["exit_code"], 0, "{line}: {result}");
    }
    let result = scene.ran("cd repo && git log --oneline | wc -l");
    assert_eq!(result["stdout"].as_str().unwrap().trim(), "1", "{result}");
}

#[test]
fn a_whole_line_is_split_and_runs() {
    let scene = Scene::new();
    scene.write("a b.txt", "x\n");
    let answer = scene.node.call_as(&scene.agent, "cmd.run", json!({"command": "ls 'a b.txt' -1"}));
    assert_eq!(answer.result()["stdout"], "a b.txt\n", "{}", answer.body);
}

#[test]
fn cargo_builds_with_a_toolchain_from_elsewhere() {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let Some(sysroot) = sysroot.ok().filter(|output| output.status.success()) else { return };
    let sysroot = String::from_utf8(sysroot.stdout).unwrap().trim().to_owned();
    if sysroot.starts_with("/usr") {
        return;
    }
    let scene = Scene::with(&format!(
        "  exec:\n    read_only_directories: [{sysroot}]\n    search_path: [{sysroot}/bin]\n    default_timeout: 120s"
    ));
    scene.write("hello/Cargo.toml", "[package]\nname = \"hello\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
    scene.write(
        "hello/src/main.rs",
        "fn main() { println!(\"{}\", answer()); }\nfn answer() -> u32 { 6 * 7 }\n#[test]\nfn holds() { assert_eq!(answer(), 42); }\n",
    );
    let manifest = "--manifest-path=hello/Cargo.toml";
    for arguments in [["build", "--offline", manifest], ["test", "--offline", manifest]] {
        let result = scene.run("cargo", &arguments).result();
        assert_eq!(result["exit_code"], 0, "{result}");
    }
    let result = scene.run("cargo", &["run", "-q", "--offline", manifest]).result();
    assert_eq!(result["stdout"], "42\n", "{result}");
}

#[test]
fn volumes_are_mounted_with_their_access_mode() {
    let shared = tempfile::tempdir().unwrap();
    std::fs::write(shared.path().join("a.txt"), "shared\n").unwrap();
    let scene = Scene::with(&format!(
        "  storage:\n    volumes:\n      - {{name: shared, host_path: {}, mount_path: /workspace/shared, access_mode: read-only}}",
        shared.path().display()
    ));
    let result = scene.ran("cat shared/a.txt; echo x > shared/b.txt; echo x > own.txt; ls");
    assert!(result["stdout"].as_str().unwrap().starts_with("shared\n"), "{result}");
    assert!(result["stderr"].as_str().unwrap().contains("Read-only file system"), "{result}");
    assert!(!shared.path().join("b.txt").exists());
    assert_eq!(std::fs::read_to_string(scene.node.workspace().join("own.txt")).unwrap(), "x\n");
    // And what a command has made, the file tools can use.
    let read = scene.node.call("fs.read", json!({"path": "own.txt"}));
    assert_eq!(read.status, 200, "{}", read.body);
}

#[test]
fn a_grant_of_a_part_mounts_nothing() {
    let scene = Scene::acting_as(
        "narrow",
        "  security_contexts:\n    - name: narrow\n      capabilities: [{tool_pattern: cmd.run, path_allowlist: [/workspace/src], command_allowlist: [ls]}]",
    );
    let answer = scene.run("ls", &["-a"]);
    assert_eq!((answer.status, answer.violation().as_str()), (403, "PathOutsideBoundary"), "{}", answer.body);
}

#[test]
fn a_full_volume_takes_no_more_commands() {
    let scene = Scene::with("  storage: {workspace_size_limit: 1Mi}");
    let result = scene.ran("head -c 2M /dev/zero > fill");
    assert_eq!(result["exit_code"], 0, "{result}");
    let answer = scene.shell("echo more > more");
    assert_eq!(answer.result()["error_kind"], "VolumeQuotaExceeded", "{}", answer.body);
    let refused = scene.node.call("fs.write", json!({"path": "x", "content": "x"}));
    assert_eq!(refused.result()["error_kind"], "VolumeQuotaExceeded", "{}", refused.body);
    assert_eq!(scene.node.call("fs.delete", json!({"path": "fill"})).status, 200);
    assert_eq!(scene.ran("echo again")["stdout"], "again\n");
}
