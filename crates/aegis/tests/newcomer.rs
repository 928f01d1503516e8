//! What somebody meets who writes a first policy, a first context, and mistypes both.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]

mod common;

use std::process::Output;

use common::{TestNode, cli, text, wait_until, write_config};
use serde_json::{Value, json};

const ODD: &str = "  security_contexts:\n    - name: mine\n      capabilities:\n        \
                   - {tool_pattern: \"*\", command_allowlist: [ls]}\n        - tool_pattern: fs.reed\n      \
                   deny_list: [fs.wrte, \"*:/worksapce/keys\", \"*:/workspace/keys\"]";

fn told(output: &Output) -> String {
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&text(&output.stdout)).unwrap_or_else(|error| panic!("{error}: {}", told(output)))
}

/// What `doctor` says about one thing.
fn found(node: &TestNode, check: &str) -> (String, String) {
    let report = json_of(&cli(&node.data(), &["doctor", "--json"]));
    let of = |finding: &&Value| finding["check"] == check;
    let finding = report["findings"].as_array().unwrap().iter().find(of).unwrap();
    let member = |name: &str| finding[name].as_str().unwrap().to_owned();
    (member("state"), member("found"))
}

#[test]
fn files_that_the_node_does_not_go_by_are_named() {
    let node = TestNode::with_config("  security_contexts: [{name: first}]");
    assert_eq!(found(&node, "policies").0, "good");
    let policies = node.data().join("policies");
    std::fs::create_dir_all(&policies).unwrap();
    std::fs::write(
        policies.join("a.cedar"),
        "forbid (principal, action == Action::\"fs.wriet\", resource);\n",
    )
    .unwrap();
    wait_until(|| node.log().contains("fs.wriet"));
    let (state, said) = found(&node, "policies");
    assert_eq!(state, "bad");
    assert!(
        said.contains("policies/a.cedar:1:30") && said.contains("goes on with the rules it had"),
        "{said}"
    );
    let listed = node.cli(&["policy", "list"]);
    assert!(listed.status.success());
    let warned = text(&listed.stderr);
    assert!(warned.contains("policies/a.cedar:1:30") && warned.contains("stay in force"), "{warned}");
    let refused = &json_of(&node.cli(&["policy", "list", "--json"]))["refused"];
    assert_eq!((&refused["problems"][0]["line"], &refused["problems"][0]["column"]), (&json!(1), &json!(30)));
    std::fs::remove_file(policies.join("a.cedar")).unwrap();
    wait_until(|| json_of(&node.cli(&["policy", "list", "--json"]))["refused"].is_null());
    assert_eq!(found(&node, "policies").0, "good");

    // A directory that is moved away and comes back as it was.
    std::fs::write(
        policies.join("b.cedar"),
        "forbid (principal, action == Action::\"fs.write\", resource);\n",
    )
    .unwrap();
    let has_rule =
        || node.call("fs.write", json!({"path": "a", "content": "x"})).violation() == "PolicyForbids";
    wait_until(has_rule);
    let away = node.data().join("policies-away");
    std::fs::rename(&policies, &away).unwrap();
    wait_until(|| found(&node, "policies").1.contains("goes on with the rules it had"));
    assert!(has_rule());
    std::fs::rename(&away, &policies).unwrap();
    wait_until(|| found(&node, "policies").0 == "good");

    // The same of the configuration, wherever its file is.
    write_config(node.dir.path(), "  security_contexts: [{name: mine}]");
    wait_until(|| node.cli(&["context", "show", "mine"]).status.success());
    assert_eq!(found(&node, "configuration").0, "good");
    write_config(node.dir.path(), "  security_context: []");
    wait_until(|| node.log().contains("security_context`"));
    let (state, said) = found(&node, "configuration");
    assert_eq!(state, "bad");
    assert!(said.contains("goes on with what it had") && said.contains("config.yaml:5:3"), "{said}");
    write_config(node.dir.path(), "  security_contexts: [{name: mine}]");
    wait_until(|| found(&node, "configuration").0 == "good");
}

#[test]
fn entries_of_contexts_that_are_about_nothing_are_warned_of() {
    let node = TestNode::with_config(ODD);
    let meant = ["did you mean `fs.read`?", "did you mean `fs.write`?", "did you mean `/workspace/keys`?"];
    let hears_all = |said: &str| meant.iter().all(|meant| said.contains(meant));
    wait_until(|| hears_all(&node.log()));
    let file = node.dir.path().join("config.yaml");
    let validated = node.cli(&["config", "validate", file.to_str().unwrap()]);
    let warned = text(&validated.stderr);
    assert!(validated.status.success() && hears_all(&warned), "{warned}");
    assert!(warned.contains("config.yaml:9:25") && warned.contains("so this grants nothing"), "{warned}");
    let report = text(&node.cli(&["doctor"]).stdout);
    assert!(hears_all(&report) && report.contains("security_contexts[mine].deny_list[0]"), "{report}");
    let rules = node.dir.path().join("rules.cedar");
    std::fs::write(&rules, "forbid (principal, action == Action::\"fs.delete\", resource);\n").unwrap();
    let config = ["--config", file.to_str().unwrap()];
    let check = [&["policy", "check", rules.to_str().unwrap()][..], &config].concat();
    let checked = node.cli(&check);
    assert!(checked.status.success() && hears_all(&told(&checked)), "{}", told(&checked));
    let checked = json_of(&node.cli(&[&check[..], &["--json"]].concat()));
    assert_eq!(checked["context_warnings"][1]["pointer"], "/deny_list/0", "{checked}");
    // Tools of a server that is to come are nobody's slip.
    write_config(
        node.dir.path(),
        "  mcp_servers: [{name: notes, executable: /bin/false, enabled: false}]\n  \
         security_contexts: [{name: mine, capabilities: [{tool_pattern: notes.find}, {tool_pattern: mcp.prompts.get}]}]",
    );
    let validated = node.cli(&["config", "validate", file.to_str().unwrap()]);
    assert!(!told(&validated).contains("warning"), "{}", told(&validated));
    // Every bad entry is told of, not only the first.
    write_config(
        node.dir.path(),
        "  security_contexts: [{name: mine, deny_list: [\"fs*\", fs.read, \"fs.read:keys\"]}]",
    );
    let validated = node.cli(&["config", "validate", file.to_str().unwrap()]);
    assert!(text(&validated.stderr).contains("2 mistakes"), "{}", told(&validated));
}

#[test]
fn what_is_closed_is_told_where_no_argument_names_it() {
    let node = TestNode::with_config(ODD);
    let token = node.make_token("mine");
    assert_eq!(node.call("fs.write", json!({"path": "real", "content": "x"})).status, 200);
    std::os::unix::fs::symlink("real", node.workspace().join("link")).unwrap();
    let read = node.call_as(&token, "fs.read", json!({"path": "link"}));
    let said = read.result()["error"].as_str().unwrap().to_owned();
    assert_eq!(read.result()["error_kind"], "PERMISSION_DENIED", "{}", read.body);
    assert!(said.contains("security_contexts[mine].deny_list closes `/workspace/keys`"), "{said}");
    let explained = node.cli(&["policy", "explain", "cmd.run", r#"{"command": "ls"}"#, "--context", "mine"]);
    let said = text(&explained.stdout);
    assert!(explained.status.success(), "{}", told(&explained));
    assert!(said.contains("its sandbox shows nothing at") && said.contains("`/workspace/keys`"), "{said}");
    assert!(said.contains("rule: security_contexts[mine].deny_list"), "{said}");
}

#[test]
fn a_command_ends_as_it_failed() {
    let node = TestNode::start();
    for (arguments, code, words) in [
        (&["policy", "explain", "fs.reed"][..], 2, "did you mean `fs.read`?"),
        (&["policy", "explain", "fs.read", r#"{"pth": "a"}"#], 2, "`pth`"),
        (&["audit", "verify", "nope.jsonl"], 2, "there is no file nope.jsonl"),
        (&["audit", "verify", "--file", "nope.jsonl"], 2, "there is no file nope.jsonl"),
        (&["audit", "verify", "--head", "nope.json"], 2, "there is no file nope.json"),
        (&["audit", "verify", "--key", "nope.pub"], 2, "there is no file nope.pub"),
        (&["volume", "export", "--context", "workspace"], 1, "spec.storage.nfs.enabled"),
        (&["token", "create", "--context", "workspace", "--ttl", "0"], 2, "a second at least"),
        (&["approvals", "list", "--state", "pendng"], 2, "(they are pending, approved,"),
        (&["approvals", "always", "--tool", "fs.wrte", "--user", "ann", "--any-arguments"], 2, "`fs.write`?"),
        (&["call", "fs.list", "--token", ""], 2, "the token is empty"),
        (&["approvals", "show", "0190"], 2, "`approval:0190`"),
        (&["approvals", "revoke", "0190"], 2, "`standing:0190`"),
        (&["call", "fs.read", r#"{"path": "nowhere"}"#], 1, "fs.list shows"),
    ] {
        let output = node.cli(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", told(&output));
        assert!(told(&output).contains(words), "{arguments:?}: {}", told(&output));
    }
    let log = node.dir.path().join("log.jsonl");
    assert!(node.cli(&["audit", "export", log.to_str().unwrap()]).status.success());
    let verified = node.cli(&["audit", "verify", log.to_str().unwrap()]);
    assert!(verified.status.success() && told(&verified).contains("sound: "), "{}", told(&verified));
    let endless = json!({"context": "workspace", "ttl_seconds": 0});
    let refused = node.request("POST", "/v1/tokens", Some(&node.token), Some(&endless));
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[test]
fn what_stands_in_the_way_comes_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.yaml");
    std::fs::write(&broken, "kind: NodeConfig\n").unwrap();
    let data = dir.path().join("data");
    for (arguments, next) in [
        (&["approvals", "list"][..], "aegis up --data "),
        (&["token", "list"], "aegis up --data "),
        (&["up", "--config", broken.to_str().unwrap()], "aegis config validate "),
    ] {
        let output = cli(&data, &[arguments, &["--json"]].concat());
        let error = &json_of(&output)["error"];
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", told(&output));
        assert!(error["data"]["hint"].as_str().unwrap().contains(next), "{error}");
    }
}

#[test]
fn a_secret_that_can_not_be_hidden_is_warned_of() {
    let node = TestNode::start();
    let set = |name: &str, value: &str| node.feed(&["secret", "set", name], value);
    let short = set("short", "abc");
    assert!(short.status.success() && text(&short.stderr).contains("too few"), "{}", told(&short));
    let long = set("long", "abcdef");
    assert!(long.status.success() && text(&long.stderr).is_empty(), "{}", told(&long));
}

#[test]
fn tokens_say_what_has_become_of_them() {
    let node = TestNode::start();
    let make = |ttl: &str| {
        let made = node.cli(&["token", "create", "--context", "workspace", "--ttl", ttl, "--json"]);
        serde_json::from_slice::<Value>(&made.stdout).unwrap()["id"].as_str().unwrap().to_owned()
    };
    let (short, long, gone) = (make("1s"), make("1h"), make("1h"));
    assert!(node.cli(&["token", "revoke", &gone]).status.success());
    let state = |id: &str| {
        let listed: Value = serde_json::from_slice(&node.cli(&["token", "list", "--json"]).stdout).unwrap();
        let tokens = listed["tokens"].as_array().unwrap();
        tokens.iter().find(|token| token["id"] == id).unwrap()["state"].as_str().unwrap().to_owned()
    };
    wait_until(|| state(&short) == "expired");
    assert_eq!((state(&long).as_str(), state(&gone).as_str()), ("active", "revoked"));
    let listed = text(&node.cli(&["token", "list"]).stdout);
    for (id, word) in [(&short, "  expired 2"), (&long, "  until 2"), (&gone, "  revoked 2")] {
        let row = listed.lines().find(|line| line.contains(id.as_str())).unwrap();
        assert!(row.contains(word), "{row}");
    }
}
