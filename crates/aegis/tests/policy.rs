//! What operators do with policies, on real nodes.
#![allow(clippy::unwrap_used, reason = "a test that can't go on panics")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use common::{TestNode, cli, data, text};
use serde_json::{Value, json};

/// Long enough for any machine; a test that holds returns at once.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn token_of(node: &TestNode, user: &str, context: &str) -> String {
    let wanted = json!({"context": context, "user": user});
    let made = node.request("POST", "/v1/tokens", Some(&node.token), Some(&wanted));
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["token"].as_str().unwrap().to_owned()
}

/// A directory of policies beside the node's data.
fn policies(node: &TestNode, name: &str, files: &[(&str, &str)]) -> PathBuf {
    let directory = node.dir.path().join(name);
    put(&directory, files);
    directory
}

fn put(directory: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(directory).unwrap();
    for (file, policy) in files {
        let temporary = directory.join(format!(".{file}.new"));
        std::fs::write(&temporary, policy).unwrap();
        std::fs::rename(temporary, directory.join(file)).unwrap();
    }
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", text(&output.stdout), text(&output.stderr)))
}

fn call_id(answer: &common::Answer) -> String {
    answer.json()["call"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned()
}

const STRICTER: &str = r#"
// Only ann may delete.
@id("no-deletes")
forbid (principal, action == Action::"fs.delete", resource)
unless { principal.user == "ann" };

@id("no-secrets")
forbid (principal, action in [Action::"fs.read", Action::"fs.write"], resource)
when { context.arguments.path like "/workspace/secrets/*" };
"#;

#[test]
fn a_replayed_day_names_the_calls_that_a_stricter_policy_would_have_stopped() {
    let node = TestNode::start();
    let users = ["ann", "bob", "eve"];
    let tokens: BTreeMap<&str, String> =
        users.iter().map(|user| (*user, token_of(&node, user, "workspace"))).collect();
    let mut stopped: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
    let mut calls = 0;
    let mut call = |user: &'static str, tool: &str, arguments: Value, rule: Option<&'static str>| {
        let answer = node.call_as(&tokens[user], tool, arguments);
        assert_eq!(answer.status, 200, "{}", answer.body);
        calls += 1;
        if let Some(rule) = rule {
            stopped.entry((rule, user)).or_default().insert(call_id(&answer));
        }
    };
    for round in 0..25 {
        for user in users {
            let path = format!("{user}/{round}.txt");
            call(user, "fs.write", json!({"path": path, "content": "x"}), None);
            call(user, "fs.read", json!({"path": path}), None);
            if round % 5 == 0 {
                let rule = (user != "ann").then_some("no-deletes");
                call(user, "fs.delete", json!({"path": path}), rule);
            }
            if round % 8 == 0 {
                // However the path is spelled.
                let secret = format!("./secrets//{user}-{round}");
                call(user, "fs.write", json!({"path": secret, "content": "s"}), Some("no-secrets"));
                call(user, "fs.read", json!({"path": secret}), Some("no-secrets"));
            }
        }
    }
    // Refused then, and no rule can bring them back.
    assert_eq!(node.call_as(&tokens["eve"], "fs.read", json!({})).status, 422);
    assert_eq!(node.call_as(&tokens["eve"], "fs.nothing", json!({})).status, 403);

    let stricter = policies(&node, "stricter", &[("day.cedar", STRICTER)]);
    let output = node.cli(&["policy", "replay", "--json", "--policies", stricter.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let report = json_of(&output);
    let expected: usize = stopped.values().map(BTreeSet::len).sum();
    assert_eq!(report["calls"], calls, "{report}");
    assert_eq!(report["newly_denied"]["calls"], expected, "{report}");
    assert_eq!(report["unchanged"], calls - expected, "{report}");
    assert_eq!(report["not_by_rules"], 2, "{report}");
    for member in ["newly_allowed", "newly_asking", "undecidable"] {
        assert_eq!(report[member]["calls"], 0, "{member}: {report}");
    }
    let rules = report["newly_denied"]["rules"].as_object().unwrap();
    for ((rule, user), ids) in &stopped {
        let (_, found) = rules.iter().find(|(place, _)| place.contains(rule)).unwrap();
        assert_eq!(
            found["callers"][format!("{user} of local (workspace)")],
            ids.len(),
            "{rule} {user}: {found}"
        );
    }
    let all: BTreeSet<&String> = stopped.values().flatten().collect();
    for example in rules.values().flat_map(|rule| rule["examples"].as_array().unwrap()) {
        let id = example["call"].as_str().unwrap().to_owned();
        assert!(all.contains(&id), "{example}");
        assert_eq!(example["was"], "allowed");
    }

    // For people: the same, in words; and what is as it was says so with its exit code.
    let told = node.cli(&["policy", "replay", "--policies", stricter.to_str().unwrap(), "--since", "1h"]);
    assert!(text(&told.stdout).contains("newly denied, by rule"), "{}", text(&told.stdout));
    assert!(text(&told.stdout).contains("no-deletes"), "{}", text(&told.stdout));
    let nothing = policies(&node, "nothing", &[]);
    let same = node.cli(&["policy", "replay", "--json", "--policies", nothing.to_str().unwrap()]);
    assert_eq!(same.status.code(), Some(0), "{}{}", text(&same.stdout), text(&same.stderr));
    assert_eq!(json_of(&same)["unchanged"], calls);
    let future = node.cli(&["policy", "replay", "--json", "--since", "2099-01-01T00:00:00Z"]);
    assert_eq!((future.status.code(), json_of(&future)["calls"].as_u64()), (Some(0), Some(0)));
    assert_eq!(node.cli(&["policy", "replay", "--since", "yesterday"]).status.code(), Some(2));
    assert_eq!(node.cli(&["policy", "replay", "--policies", "/no/such/place"]).status.code(), Some(2));
    // Nothing was called: no record came of all this.
    let records = node.records();
    assert_eq!(records.iter().filter(|record| record["entry"]["entry"] == "call").count(), calls + 2);
}

#[test]
fn what_a_session_had_read_is_rebuilt_from_the_record() {
    let node = TestNode::with_config("  policy: {label_rules: \"off\"}");
    let (ann, bob) = (token_of(&node, "ann", "workspace"), token_of(&node, "bob", "workspace"));
    let write = |token: &str, path: &str| {
        let answer = node.call_as(token, "fs.write", json!({"path": path, "content": "x"}));
        assert_eq!(answer.status, 200, "{}", answer.body);
        call_id(&answer)
    };
    write(&ann, "a");
    write(&bob, "b");
    assert_eq!(node.call_as(&ann, "fs.read", json!({"path": "a"})).status, 200);
    let tainted = [write(&ann, "a2"), write(&ann, "a3")];
    write(&bob, "b2");

    let config = node.dir.path().join("enforce.yaml");
    std::fs::write(
        &config,
        "apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {name: x}\nspec: {policy: {label_rules: enforce}}\n",
    )
    .unwrap();
    let output = node.cli(&["policy", "replay", "--json", "--config", config.to_str().unwrap()]);
    let report = json_of(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert_eq!((&report["newly_asking"]["calls"], &report["unchanged"]), (&json!(2), &json!(4)), "{report}");
    let asked: Vec<&str> = report["newly_asking"]["rules"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|rule| rule["examples"].as_array().unwrap())
        .map(|example| example["call"].as_str().unwrap())
        .collect();
    assert_eq!(asked, tainted);
    let shadow = std::fs::read_to_string(&config).unwrap().replace("enforce", "shadow");
    std::fs::write(&config, shadow).unwrap();
    let output = node.cli(&["policy", "replay", "--json", "--config", config.to_str().unwrap()]);
    let report = json_of(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!((&report["would_have"]["calls"], &report["unchanged"]), (&json!(2), &json!(6)), "{report}");
}

#[test]
fn what_the_record_does_not_hold_is_undecidable_not_guessed() {
    let node = TestNode::start();
    let long = "x".repeat(2000);
    for (path, content) in [("short", "hello"), ("long", long.as_str()), ("secrets/long", long.as_str())] {
        let answer = node.call("fs.write", json!({"path": path, "content": content}));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let directory = policies(
        &node,
        "content",
        &[(
            "content.cedar",
            "@id(\"no-hello\") forbid (principal, action == Action::\"fs.write\", resource)\n\
             when { context.arguments.content like \"*hello*\" };\n\
             @id(\"no-secrets\") forbid (principal, action == Action::\"fs.write\", resource)\n\
             when { context.arguments.path like \"/workspace/secrets/*\" };\n",
        )],
    );
    let output = node.cli(&["policy", "replay", "--json", "--policies", directory.to_str().unwrap()]);
    let report = json_of(&output);
    assert_eq!(report["newly_denied"]["calls"], 2, "{report}");
    assert_eq!(report["undecidable"]["calls"], 1, "{report}");
    let rules: Vec<&String> = report["undecidable"]["rules"].as_object().unwrap().keys().collect();
    assert!(rules.len() == 1 && rules[0].contains("no-hello"), "{report}");
}

#[test]
fn a_corrupted_record_is_told_and_passed_over() {
    let node = TestNode::start();
    for number in 0..6 {
        node.call("fs.write", json!({"path": format!("{number}"), "content": "x"}));
    }
    node.call("fs.delete", json!({"path": "3"}));
    let (_, dir) = node.stop();
    let touched = Command::new("python3")
        .arg("-c")
        .arg(
            "import sqlite3, sys\n\
             c = sqlite3.connect(sys.argv[1])\n\
             c.execute(\"UPDATE entries SET body = x'00ff7b' WHERE seq = 3\")\n\
             c.execute(\"UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'tenant', 'tenor') AS BLOB) WHERE seq = 5\")\n\
             c.execute(\"UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), '\\\"verdicts\\\":[{', '\\\"verdicts\\\":[{{') AS BLOB) WHERE seq = 7\")\n\
             c.commit()",
        )
        .arg(data(dir.path()).join("audit.db"))
        .output()
        .unwrap();
    assert!(touched.status.success(), "{}", text(&touched.stderr));
    let stricter = dir.path().join("stricter");
    put(&stricter, &[("a.cedar", "forbid (principal, action == Action::\"fs.delete\", resource);")]);
    // Without a running node.
    let replay = |more: &[&str]| {
        let mut arguments = vec!["policy", "replay", "--policies", stricter.to_str().unwrap()];
        arguments.extend(more);
        cli(&data(dir.path()), &arguments)
    };
    let output = replay(&["--json"]);
    let report = json_of(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert_eq!(report["newly_denied"]["calls"], 1, "{report}");
    assert!(report["unreadable"]["records"].as_u64().unwrap() >= 2, "{report}");
    assert!(report["unreadable"]["first"].as_array().unwrap().contains(&json!(3)), "{report}");
    let told = text(&replay(&[]).stdout);
    assert!(told.contains("unreadable and skipped (record 3") && told.contains("audit verify"), "{told}");
}

#[test]
fn a_policy_file_with_a_mistake_keeps_the_old_set_and_is_shown() {
    let node = TestNode::start();
    let directory = node.data().join("policies");
    let deny = "@id(\"frozen\") forbid (principal, action == Action::\"fs.write\", resource);\n";
    put(&directory, &[("a.cedar", deny)]);
    let write = || node.call("fs.write", json!({"path": "a", "content": "x"}));
    until("the policy comes in force", || write().violation() == "PolicyForbids");

    put(&directory, &[("a.cedar", "permit (principal, action == Action::\"fs.wriet\", resource);\n")]);
    until("the mistake is noticed", || node.log().contains("fs.wriet"));
    assert_eq!(write().violation(), "PolicyForbids", "the old set stays");
    let checked = node.cli(&["policy", "check", directory.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    let shown = text(&checked.stderr);
    assert!(shown.contains("a.cedar:1:") && shown.contains("fs.wriet") && shown.contains('^'), "{shown}");
    let replayed = node.cli(&["policy", "replay", "--policies", directory.to_str().unwrap()]);
    assert_eq!(replayed.status.code(), Some(1));

    // An example that does not hold is a mistake as well.
    put(
        &directory,
        &[("a.cedar", &format!("// allow: fs.write {{\"path\": \"a\", \"content\": \"\"}}\n{deny}"))],
    );
    let checked = node.cli(&["policy", "check"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stderr).contains("the example does not hold"), "{}", text(&checked.stderr));

    put(
        &directory,
        &[("a.cedar", &format!("// deny: fs.write {{\"path\": \"a\", \"content\": \"\"}}\n{deny}"))],
    );
    let checked = node.cli(&["policy", "check", directory.join("a.cedar").to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("1 rule, true to 1 example"), "{}", text(&checked.stdout));
}

#[test]
fn tools_of_servers_are_known_by_what_was_accepted_of_them() {
    const LEAKY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/upstream/leaky.py");
    let node = TestNode::start();
    assert!(node.cli(&["upstream", "add", "mine", "--", "python3", LEAKY]).status.success());
    until("the server runs", || node.call("mine.length", json!({"text": "long"})).status == 200);
    let rule = |argument: &str| {
        format!(
            "// deny: mine.length {{\"text\": \"long\"}}\n// allow: mine.length {{\"text\": \"short\"}}\n\
             @id(\"no-long\") forbid (principal, action == Action::\"mine.length\", resource)\n\
             when {{ context.arguments has {argument} && context.arguments.{argument} == \"long\" }};\n\
             @id(\"no-resources\") forbid (principal, action == Action::\"mcp.resources.read\", resource);\n"
        )
    };
    let directory = policies(&node, "of-servers", &[("a.cedar", &rule("text"))]);
    let (_, dir) = node.stop();
    let data = data(dir.path());
    let checked = cli(&data, &["policy", "check", directory.to_str().unwrap()]);
    let told = format!("{}{}", text(&checked.stdout), text(&checked.stderr));
    assert_eq!(checked.status.code(), Some(0), "{told}");
    assert!(told.contains("2 rules, true to 2 examples") && !told.contains("warning"), "{told}");
    let replayed = cli(&data, &["policy", "replay", "--json", "--policies", directory.to_str().unwrap()]);
    let report = json_of(&replayed);
    assert!(report["newly_denied"]["calls"].as_u64().unwrap() >= 1, "{report}");
    let known = cli(&data, &["policy", "schema"]);
    assert!(text(&known.stdout).contains("mine.tell"), "{}", text(&known.stdout));

    // Held against the schema of the tool, as the node would.
    put(&directory, &[("a.cedar", &rule("txet"))]);
    let checked = cli(&data, &["policy", "check", directory.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1), "{}", text(&checked.stdout));

    // Rules about a server that is gone wait, as in the node.
    let node = TestNode::on(dir);
    assert!(node.cli(&["upstream", "remove", "mine"]).status.success());
    put(&directory, &[("a.cedar", "forbid (principal, action == Action::\"mine.length\", resource);\n")]);
    let checked = node.cli(&["policy", "check", directory.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert!(text(&checked.stderr).contains("waits for tools"), "{}", text(&checked.stderr));
    let report = json_of(&node.cli(&["policy", "replay", "--json"]));
    assert!(report["unknown_tools"].as_u64().unwrap() >= 1, "{report}");
}

#[test]
fn a_policy_that_denies_everything_can_be_taken_back() {
    let node = TestNode::start();
    let directory = node.data().join("policies");
    put(&directory, &[("all.cedar", "@id(\"nothing\") forbid (principal, action, resource);\n")]);
    let list = || node.call("fs.list", json!({"path": "."}));
    until("the policy comes in force", || list().status == 403);
    let listed = json_of(&node.cli(&["policy", "list", "--json"]));
    let rule = listed["rules"].as_array().unwrap().iter().find(|rule| rule["id"] == "nothing").unwrap();
    assert_eq!((&rule["all_tools"], &rule["effect"]), (&json!(true), &json!("forbid")), "{rule}");
    let explained = node.cli(&["policy", "explain", "fs.list", r#"{"path": "."}"#]);
    assert_eq!(explained.status.code(), Some(3), "{}", text(&explained.stdout));
    assert!(text(&explained.stdout).contains("nothing"), "{}", text(&explained.stdout));
    std::fs::remove_file(directory.join("all.cedar")).unwrap();
    until("the policy is taken back", || list().status == 200);
}

#[test]
fn label_rules_are_tried_out_in_shadow_and_ask_when_enforced() {
    let read_then_write = |node: &TestNode, token: &str| {
        assert_eq!(node.call_as(token, "fs.write", json!({"path": "a", "content": "x"})).status, 200);
        assert_eq!(node.call_as(token, "fs.read", json!({"path": "a"})).status, 200);
        node.call_as(token, "fs.write", json!({"path": "b", "content": "x"}))
    };
    let shadows = |node: &TestNode| -> Vec<Value> {
        let records = node.records();
        let verdicts = records.iter().filter_map(|record| record["entry"]["verdicts"].as_array()).flatten();
        verdicts.filter_map(|verdict| verdict["would_have"].as_array()).flatten().cloned().collect()
    };
    let node = TestNode::start();
    let token = token_of(&node, "ann", "workspace");
    let written = read_then_write(&node, &token);
    assert_eq!(written.status, 200, "{}", written.body);
    assert!(written.json()["approval"].is_null(), "{}", written.body);
    let recorded = shadows(&node);
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_eq!(recorded[0]["effect"], "ask-approval");
    let tried =
        ["policy", "explain", "fs.write", r#"{"path": "b", "content": ""}"#, "--context", "workspace"];
    let explain = |node: &TestNode, having: &[&str]| node.cli(&[&tried, having].concat()).status.code();
    assert_eq!(explain(&node, &[]), Some(0));
    assert_eq!(explain(&node, &["--having", "EXTERNAL_UNTRUSTED"]), Some(0));
    drop(node);

    let node = TestNode::with_config("  policy: {label_rules: enforce}");
    let token = token_of(&node, "ann", "workspace");
    let waiting = read_then_write(&node, &token);
    assert_eq!(waiting.json()["approval"]["state"], "pending", "{}", waiting.body);
    assert!(!node.workspace().join("b").exists());
    assert!(shadows(&node).is_empty());
    assert_eq!(explain(&node, &[]), Some(0));
    assert_eq!(explain(&node, &["--having", "EXTERNAL_UNTRUSTED"]), Some(4));
    assert_eq!(explain(&node, &["--having", "UNTRUSTED"]), Some(2));
}

#[test]
fn an_example_whose_context_says_otherwise_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let directory = dir.path().join("policies");
    let policy = "// allow: fs.write {\"path\": \"a\", \"content\": \"\"} as read-only\n\
                  // allow: fs.read {\"path\": \"a\"} as read-only\n\
                  // deny: fs.delete {\"path\": \"a\"} as read-only\n\
                  // allow: fs.read {\"path\": \"a\"} as reed-only\n\
                  @id(\"no-deletes\") forbid (principal, action == Action::\"fs.delete\", resource);\n";
    put(&directory, &[("a.cedar", policy)]);
    let check = |more: &[&str]| {
        let mut arguments = vec!["policy", "check", directory.to_str().unwrap()];
        arguments.extend(more);
        cli(&data(dir.path()), &arguments)
    };
    let output = check(&[]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let warnings: Vec<&str> = errors.lines().filter(|line| line.contains("a.cedar:")).collect();
    assert_eq!(warnings.len(), 2, "{errors}");
    assert!(
        warnings[0].contains("a.cedar:1: the policies say allow, and the context `read-only` refuses"),
        "{errors}"
    );
    assert!(warnings[1].contains("a.cedar:4: there is no security context `reed-only`"), "{errors}");
    assert_eq!(json_of(&check(&["--json"]))["example_warnings"].as_array().unwrap().len(), 2);
}
