//! A server whose program runs in a container of an image. Where no engine can start one the test says so and passes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::json;
use tempfile::TempDir;

use super::{common, config, ready, status};
use crate::{
    common::{TestNode, text},
    engine::{image, working_engine},
};

/// The libraries that the fixture is linked with, which the image need not have.
fn libraries(program: &Path) -> TempDir {
    let place = tempfile::Builder::new().prefix("server-libraries-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let linked = text(&Command::new("ldd").arg(program).output().unwrap().stdout);
    let paths = linked.split_whitespace().filter(|word| word.starts_with('/') && word.contains(".so"));
    for library in paths.map(PathBuf::from) {
        fs::copy(&library, place.path().join(library.file_name().unwrap())).unwrap();
    }
    place
}

fn server(libraries: &Path, image: &str) -> String {
    let program = std::env::current_exe().unwrap();
    format!(
        "    - name: fix\n      executable: /server\n      args: [fixture_server, --exact, --ignored, --nocapture, --quiet]\n      \
         environment: {{LD_LIBRARY_PATH: /server-libraries, MODE: quiet}}\n      restart: {{backoff: 50ms}}\n      \
         resource_limits: {{memory_mb: 512, processes: 64}}\n      sandbox:\n        image: \"{image}\"\n        \
         egress: [127.0.0.1]\n        mounts:\n          - {{host: {}, inside: /server}}\n          - {{host: {}, inside: \
         /server-libraries}}\n          - {{volume: /workspace, inside: /volume, access: read-write}}\n",
        program.display(),
        libraries.display(),
    )
}

fn says(node: &TestNode, tool: &str, name: &str) -> String {
    let answer = node.call(&format!("fix.{tool}"), json!({ "name": name }));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.result().as_str().map_or_else(|| answer.body.clone(), str::to_owned)
}

#[test]
fn a_server_in_a_container_serves_sees_its_image_and_ends_with_the_node() {
    let Some(store) = working_engine() else { return };
    let libraries = libraries(&std::env::current_exe().unwrap());
    let web = common::web_server(|_| (200, "text/plain", "hello from outside".into()));
    let node = TestNode::with_config(&format!(
        "{}  exec: {{engine: {}, engine_options: {}}}\n  egress: {{allow_private: [127.0.0.1]}}\n",
        config(&[server(libraries.path(), image::NAME)]),
        store.engine.display(),
        json!(store.options()),
    ));
    ready(&node);
    assert_eq!(node.call("fix.echo", json!({"text": "hello"})).result(), json!("hello"));
    assert_eq!(says(&node, "look", "/etc/image"), "the image");
    assert!(says(&node, "look", node.data().join("operator.token").to_str().unwrap()).starts_with("can't"));
    assert_eq!(says(&node, "env", "MODE"), "5 bytes");
    // What it may write to, and where it may go.
    assert_eq!(says(&node, "write", "/volume/from-container"), "written");
    let read = node.call("fs.read", json!({"path": "/workspace/from-container"}));
    assert!(read.body.contains("written by a server"), "{}", read.body);
    assert_eq!(says(&node, "write", "/etc/new"), "can't");
    assert_eq!(says(&node, "reach", &web), "can't", "there is no way past the proxy");
    assert!(says(&node, "fetch", &format!("http://{web}/")).contains("hello from outside"));
    assert!(node.records().iter().any(|record| record.to_string().contains("egress-connected")));

    // It is looked after like every other server.
    let before = status(&node, "fix")["pid"].clone();
    let restarted = node.cli(&["upstream", "restart", "fix"]);
    assert!(restarted.status.success(), "{}", text(&restarted.stdout));
    assert_ne!(status(&node, "fix")["pid"], before);
    assert!(is_mounted_anywhere(libraries.path()));
    let (code, _) = node.stop();
    assert_eq!(code, Some(0));
    common::wait_until(|| !is_mounted_anywhere(libraries.path()));
}

/// Whether any process on this machine sees a place through a mount of its own: the container has one.
fn is_mounted_anywhere(place: &Path) -> bool {
    let name = place.file_name().unwrap().to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read_to_string(process.path().join("mountinfo")).ok())
        .any(|mounts| mounts.contains(name))
}

#[test]
fn an_image_that_is_not_there_is_told() {
    let Some(store) = working_engine() else { return };
    let libraries = libraries(&std::env::current_exe().unwrap());
    let node = TestNode::with_config(&format!(
        "{}  exec: {{engine: {}, engine_options: {}}}\n",
        config(&[server(libraries.path(), "registry.invalid/no/such:image")]),
        store.engine.display(),
        json!(store.options()),
    ));
    common::wait_until(|| status(&node, "fix")["state"] == "stopped");
    // Also while it is being tried again.
    let refused = node.call("fix.echo", json!({"text": "x"}));
    assert_eq!(refused.violation(), "UpstreamUnavailable", "{}", refused.body);
    assert!(refused.body.contains("registry.invalid"), "{}", refused.body);
}
