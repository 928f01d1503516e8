//! Contexts that choose what their commands run in.

use serde_json::json;

use super::Scene;
use crate::engine::{image, working_engine};

fn contexts(store: &image::Store) -> String {
    let context = |name: &str, sandbox: &str| {
        format!(
            "    - {{name: {name}, capabilities: [{{tool_pattern: cmd.run, command_allowlist: [cat, bash], \
             sandbox: {sandbox}}}]}}\n"
        )
    };
    let named = |image: &str| format!("{{image: \"{image}\"}}");
    let other = format!("{{isolation: docker, image: \"{}\"}}", image::OTHER_NAME);
    format!(
        "  exec: {{engine: {}, engine_options: {}}}\n  security_contexts:\n{}{}{}{}{}",
        store.engine.display(),
        json!(store.options()),
        context("one", &named(image::NAME)),
        context("two", &other),
        context("missing", &named("registry.invalid/no/such:image")),
        context("nameless", "{isolation: docker}"),
        context("plain", "{isolation: process}"),
    )
}

#[test]
fn a_capability_chooses_isolation_and_image() {
    let Some(store) = working_engine() else { return };
    let scene = Scene::acting_as("one", &contexts(&store));
    let ask = |context: &str| {
        let token = scene.node.make_token(context);
        scene.node.call_as(&token, "cmd.run", json!({"command": "cat", "args": ["/etc/image"]}))
    };
    let first = ask("one");
    assert_eq!(first.result()["stdout"], "the image", "{}", first.body);
    assert_eq!(ask("two").result()["stdout"], "the other image");
    // The same programs of this machine, without an image.
    let plain = ask("plain");
    assert_eq!((plain.status, &plain.result()["exit_code"]), (200, &json!(1)), "{}", plain.body);
    for (context, reason) in [("missing", "registry.invalid"), ("nameless", "names an image")] {
        let refused = ask(context);
        assert_eq!(refused.violation(), "SandboxUnavailable", "{}", refused.body);
        assert!(refused.body.contains(reason), "{}", refused.body);
    }
}

#[test]
fn a_closed_path_is_closed_in_a_container_too() {
    let Some(store) = working_engine() else { return };
    let spec = format!(
        "  exec: {{engine: {}, engine_options: {}}}\n  security_contexts:\n    - name: walled\n      capabilities: \
         [{{tool_pattern: cmd.run, command_allowlist: [bash], sandbox: {{image: \"{}\"}}}}]\n      deny_list: \
         [\"*:/workspace/a/keys\", \"*:/workspace/.env\"]",
        store.engine.display(),
        json!(store.options()),
        image::NAME
    );
    let scene = Scene::acting_as("walled", &spec);
    scene.write("a/keys/secret", "for nobody");
    scene.write(".env", "for nobody");
    let script =
        "cat a/keys/secret .env; mv a b || echo stays; mv .env env || echo stays; echo x > a/new; cat a/new";
    let answer = scene.run("bash", &["-c", script]);
    assert_eq!(answer.result()["stdout"], "stays\nstays\nx\n", "{}", answer.body);
    assert!(scene.node.workspace().join("a/keys/secret").is_file());
}
