//! Servers whose program runs in the sandbox.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{common, config, ready, status};
use crate::common::TestNode;

/// The fixture in a sandbox, with what stands under `sandbox`, and further members, each on a line.
fn sandboxed(sandbox: &[&str], more: &[&str]) -> String {
    let program = std::env::current_exe().unwrap();
    let lines = |lines: &[&str], indent: &str| -> String {
        lines.iter().map(|line| format!("{indent}{line}\n")).collect()
    };
    let mounts = lines(sandbox, "        ");
    format!(
        "    - name: fix\n      executable: /server\n      args: [fixture_server, --exact, --ignored, --nocapture, --quiet]\n      \
         restart: {{backoff: 50ms}}\n{}      sandbox:\n{}",
        lines(more, "      "),
        if mounts.contains("mounts:") {
            mounts.replace(
                "mounts:\n",
                &format!("mounts:\n          - {{host: {}, inside: /server}}\n", program.display()),
            )
        } else {
            format!("        mounts:\n          - {{host: {}, inside: /server}}\n{mounts}", program.display())
        }
    )
}

/// A node with the fixture in a sandbox, ready to be called.
fn node(sandbox: &[&str], more: &[&str], spec: &str) -> TestNode {
    let node = TestNode::with_config(&format!("{}{spec}", config(&[sandboxed(sandbox, more)])));
    ready(&node);
    node
}

fn says(node: &TestNode, tool: &str, name: &str) -> String {
    let answer = node.call(&format!("fix.{tool}"), json!({ "name": name }));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.result().as_str().map_or_else(|| answer.body.clone(), str::to_owned)
}

/// The processes of the host that run the server's program.
fn programs(node: &TestNode) -> Vec<u32> {
    let first = u32::try_from(status(node, "fix")["pid"].as_u64().unwrap()).unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    pids.filter(|pid| parent(*pid) == Some(first)).collect()
}

fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

#[test]
fn a_server_in_the_sandbox_lists_and_answers_and_sees_nothing_of_the_node() {
    let node = node(&[], &["environment: {MODE: quiet}"], "");
    assert_eq!(node.call("fix.echo", json!({"text": "hello"})).result(), json!("hello"));
    assert_eq!(status(&node, "fix")["state"], "running");
    let data = node.data();
    for secret in ["operator.token", "registry.db", "audit.db", ""] {
        let place = data.join(secret);
        assert!(says(&node, "look", place.to_str().unwrap()).starts_with("can't"), "{}", place.display());
    }
    assert!(says(&node, "look", "/root").starts_with("can't"));
    assert!(says(&node, "look", &format!("/proc/{}/environ", node.pid())).starts_with("can't"));
    // Its environment is what the entry names, with four defaults.
    assert_eq!(says(&node, "env", "MODE"), "5 bytes");
    assert_eq!(says(&node, "env", "USER"), "unset");
    assert_eq!(says(&node, "look", "/proc/self/cwd"), "");
    let logs = common::text(&node.cli(&["upstream", "logs", "fix"]).stdout);
    assert!(logs.contains("[running]"), "{logs}");
    assert_eq!(says(&node, "flood", ""), "flooded");
}

#[test]
fn credentials_reach_a_sandboxed_server_as_variables_only() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let secret = dir.path().join("token");
    std::fs::write(&secret, "s3cr3t-0f-th3-server").unwrap();
    let credentials = format!("credentials: {{TOKEN: \"file:{}\"}}", secret.display());
    let node = node(&[], &[&credentials], "");
    assert_eq!(says(&node, "env", "TOKEN"), "20 bytes");
    assert!(says(&node, "look", secret.to_str().unwrap()).starts_with("can't"));
    assert!(!says(&node, "look", "/proc/self/cmdline").contains("s3cr3t"));
}

#[test]
fn mounts_are_what_is_declared_and_no_more() {
    let place = tempfile::Builder::new().prefix("server-mount-").tempdir_in("/tmp").unwrap();
    std::fs::write(place.path().join("note"), "a note").unwrap();
    std::fs::create_dir(place.path().join("out")).unwrap();
    let shown = place.path().display();
    let mounts = [
        "mounts:".to_owned(),
        format!("  - {{host: {shown}, inside: /notes}}"),
        format!("  - {{host: {shown}/out, inside: /out, access: read-write}}"),
        "  - {volume: /workspace, inside: /volume, access: read-write}".to_owned(),
    ];
    let mounts: Vec<&str> = mounts.iter().map(String::as_str).collect();
    let node = node(&mounts, &[], "");
    assert_eq!(says(&node, "look", "/notes/note"), "a note");
    assert_eq!(says(&node, "write", "/notes/new"), "can't");
    assert_eq!(says(&node, "write", "/out/new"), "written");
    assert_eq!(std::fs::read_to_string(place.path().join("out/new")).unwrap(), "written by a server");
    // A volume is the one that agents work in.
    assert_eq!(says(&node, "write", "/volume/from-server"), "written");
    let read = node.call("fs.read", json!({"path": "/workspace/from-server"}));
    assert!(read.body.contains("written by a server"), "{}", read.body);
}

/// Each start could otherwise add a little to what is too much already.
#[test]
fn a_server_does_not_start_on_a_full_volume() {
    let mounts = ["mounts:", "  - {volume: /workspace, inside: /volume, access: read-write}"];
    let node = node(&mounts, &[], "  storage: {workspace_size_limit: 64Ki}\n");
    assert_eq!(says(&node, "write", "/volume/new"), "written");
    // Past the node, as the server itself could have done it.
    let filling = node.workspace().join("filling");
    std::fs::write(&filling, vec![0; 128 << 10]).unwrap();
    let ended = node.cli(&["upstream", "restart", "fix", "--json"]);
    assert_eq!(ended.status.code(), Some(1), "{}", common::text(&ended.stdout));
    let is_full = |status: &Value| status["reason"].to_string().contains("the volume at /workspace is full");
    common::wait_until(|| is_full(&status(&node, "fix")));
    let restarts = status(&node, "fix")["restarts"].as_u64().unwrap();
    common::wait_until(|| {
        let now = status(&node, "fix");
        is_full(&now) && now["restarts"].as_u64().unwrap() > restarts
    });
    assert_eq!(status(&node, "fix")["pid"], Value::Null);
    // With room again it comes back by itself.
    std::fs::remove_file(filling).unwrap();
    ready(&node);
}

#[test]
fn an_image_of_its_own_means_a_container() {
    let node = TestNode::with_config(&format!(
        "{}  exec: {{engine: /nowhere/podman}}\n",
        config(&[sandboxed(&["image: localhost/none:1"], &[])])
    ));
    // Without a container there is none of the usual sandboxes in its place.
    let reason = || status(&node, "fix")["reason"].to_string();
    common::wait_until(|| reason().contains("it is to run in a sandbox, and"));
    assert_ne!(node.call("fix.echo", json!({"text": "x"})).status, 200);
}

#[test]
fn the_nodes_own_directory_can_not_be_mounted() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let data = dir.path().canonicalize().unwrap().join("data");
    for place in [data.clone(), data.join("volumes"), data.parent().unwrap().to_owned()] {
        let mounts = ["mounts:".to_owned(), format!("  - {{host: {}, inside: /x}}", place.display())];
        let mounts: Vec<&str> = mounts.iter().map(String::as_str).collect();
        common::write_config(dir.path(), &config(&[sandboxed(&mounts, &[])]));
        let node = TestNode::on(Arc::clone(&dir));
        common::wait_until(|| status(&node, "fix")["state"] == "stopped");
        let reason = status(&node, "fix")["reason"].to_string();
        assert!(reason.contains("the node's own directory"), "{reason}");
    }
}

#[test]
fn the_network_is_what_is_declared_and_every_connection_is_recorded() {
    let web = common::web_server(|_| (200, "text/plain", "hello from outside".into()));
    let port = web.rsplit(':').next().unwrap().to_owned();
    let private = "  egress: {allow_private: [127.0.0.1]}\n";
    let closed = node(&[], &[], private);
    assert_eq!(says(&closed, "reach", &web), "can't");
    assert!(says(&closed, "fetch", &format!("http://{web}/")).starts_with("can't"));
    assert_eq!(says(&closed, "reach", &closed.address), "can't");
    drop(closed);

    let open = node(&["egress: [127.0.0.1]"], &[], private);
    assert_eq!(says(&open, "reach", &web), "can't", "there is no way past the proxy");
    assert!(says(&open, "fetch", &format!("http://{web}/")).contains("hello from outside"));
    let refused = says(&open, "fetch", &format!("http://localhost:{port}/"));
    assert!(refused.contains("403") && refused.contains("sandbox.egress"), "{refused}");
    let recorded = |action: &str| -> Vec<Value> {
        open.records().into_iter().filter(|record| record.to_string().contains(action)).collect()
    };
    common::wait_until(|| !recorded("egress-connected").is_empty() && !recorded("egress-refused").is_empty());
    let connected = recorded("egress-connected").remove(0).to_string();
    assert!(connected.contains("\"server\":\"fix\"") && connected.contains("127.0.0.1"), "{connected}");
}

#[test]
fn a_killed_server_is_started_again_and_nothing_of_it_is_left() {
    let node = node(&[], &[], "");
    let before = status(&node, "fix")["pid"].clone();
    let running = programs(&node);
    assert!(!running.is_empty());
    for pid in &running {
        common::signal(*pid, "KILL");
    }
    common::wait_until(|| {
        let now = status(&node, "fix");
        now["state"] == "running" && now["pid"] != before
    });
    ready(&node);
    assert!(running.iter().all(|pid| !alive(*pid)));
    let said = common::text(&node.cli(&["upstream", "logs", "fix"]).stdout);
    assert!(said.contains("signal: 9"), "{said}");
    // One that dies of itself, too.
    assert_eq!(super::error_kind(&node.call("fix.die", json!({}))), "UpstreamUnavailable");
    ready(&node);
}

#[test]
fn nothing_of_a_server_outlives_its_node() {
    let dir = {
        let node = node(&[], &[], "");
        let running = programs(&node);
        let dir = node.kill();
        common::wait_until(|| running.iter().all(|pid| !alive(*pid)));
        dir
    };
    let node = TestNode::on(dir);
    ready(&node);
    let running = programs(&node);
    let (code, _) = node.stop();
    assert_eq!(code, Some(0));
    common::wait_until(|| running.iter().all(|pid| !alive(*pid)));
}
