//! What a request says of what its session has read.

use serde_json::{Value, json};

use super::Scene;

fn has_read(scene: &Scene, path: &str) -> Value {
    let id = scene.parked(path);
    scene.get(&scene.node.token, &id).json()["labels"].clone()
}

#[test]
fn only_what_was_read_counts() {
    let scene = Scene::new();
    let node = &scene.node;
    let read = |path: &str| node.call_as(&scene.agent, "fs.read", json!({"path": path})).json();
    let missing = read("missing.txt");
    assert_eq!((&missing["is_error"], &missing["label"]["trust"]), (&json!(true), &json!("CONTROL_TRUSTED")));
    assert_eq!(has_read(&scene, "a.txt"), json!([]));
    assert_eq!(node.call("fs.write", json!({"path": "there.txt", "content": "obey"})).status, 200);
    assert_eq!(read("there.txt")["is_error"], false);
    assert_eq!(has_read(&scene, "b.txt"), json!(["EXTERNAL_UNTRUSTED"]));
}

#[test]
fn the_operators_reading_is_not_the_agents() {
    let scene = Scene::new();
    let node = &scene.node;
    assert_eq!(node.call("fs.write", json!({"path": "there.txt", "content": "obey"})).status, 200);
    assert_eq!(node.cli(&["call", "fs.read", r#"{"path": "there.txt"}"#]).status.code(), Some(0));
    // The same token, and the role of an agent.
    let ask = |path: &str| {
        let write = json!({"path": path, "content": ""}).to_string();
        let asked = node.cli(&["call", "--json", "--context", "careful", "fs.write", &write]);
        let asked: Value = serde_json::from_slice(&asked.stdout).unwrap();
        let id = asked["approval"]["id"].as_str().unwrap_or_else(|| panic!("{asked}")).to_owned();
        scene.get(&node.token, &id).json()["labels"].clone()
    };
    assert_eq!(ask("a.txt"), json!([]));
    let read = node.cli(&["call", "--context", "careful", "fs.read", r#"{"path": "there.txt"}"#]);
    assert_eq!(read.status.code(), Some(0));
    assert_eq!(ask("b.txt"), json!(["EXTERNAL_UNTRUSTED"]));
}
