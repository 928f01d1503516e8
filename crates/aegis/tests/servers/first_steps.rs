//! What somebody meets who has just put servers behind a node.

use serde_json::{Value, json};

use super::{add, common, config, message, program, run, server, status};
use crate::common::{TestNode, text};

#[test]
fn a_tool_of_a_server_that_is_not_there_yet_is_refused_with_the_reason() {
    let silent = server("slow", "--at-start silent", &["limits: {start_timeout: 600s}"]);
    let claimed = server("search", "--at-start silent", &["capabilities: [web.search, look.*]"]);
    let context = "  security_contexts:\n    - {name: desk, capabilities: [{tool_pattern: fs.read}]}\n    \
                   - {name: clerk, capabilities: [{tool_pattern: \"slow.*\"}], deny_list: [slow.hidden]}\n";
    let node = TestNode::with_config(&format!("{}{context}", config(&[silent, claimed])));
    for tool in ["slow.echo", "web.search", "look.up"] {
        let refused = node.call(tool, json!({}));
        assert_eq!((refused.status, refused.violation().as_str()), (503, "UpstreamUnavailable"), "{tool}");
        assert!(message(&refused).contains("is starting"), "{}", refused.body);
        assert!(message(&refused).contains("aegis upstream logs"), "{}", refused.body);
    }
    assert_eq!(node.call("nobody.echo", json!({})).violation(), "ToolNotFound");
    let (code, _, told) = run(&node, &["call", "slow.echo", "{}"]);
    assert!(code == 1 && told.contains("UpstreamUnavailable") && told.contains("next:"), "{code} {told}");
    // Who may not call it learns nothing of the server.
    let (clerk, other) = (node.make_token("clerk"), node.make_token("desk"));
    assert_eq!(node.call_as(&clerk, "slow.echo", json!({})).violation(), "UpstreamUnavailable");
    for (token, tool) in [(&other, "slow.echo"), (&clerk, "slow.hidden"), (&clerk, "look.up")] {
        let refused = node.call_as(token, tool, json!({}));
        assert_eq!(refused.violation(), "ToolNotFound", "{tool}: {}", refused.body);
        assert!(!refused.body.contains("starting"), "{}", refused.body);
    }
    let refused = |record: &Value| record.to_string().contains("UpstreamUnavailable");
    assert!(node.records().iter().any(refused), "a refusal is recorded");
}

#[test]
fn a_tool_of_a_server_that_is_switched_off_is_refused_with_the_reason() {
    let contexts = "  security_contexts:\n    - {name: desk, capabilities: [{tool_pattern: fs.read}]}\n    \
                    - {name: clerk, capabilities: [{tool_pattern: \"fix.*\"}], deny_list: [fix.slow]}\n";
    let node = TestNode::with_config(contexts);
    let (code, said, _) = add(&node, &["fix", "--approve-definitions", "--"]);
    assert!(code == 0 && said.contains("agents of clerk may call tools of it already"), "{said}");
    let (clerk, other) = (node.make_token("clerk"), node.make_token("desk"));
    let told_to_the_clerk_only = |kind: &str, words: &[&str]| {
        let refused = node.call_as(&clerk, "fix.echo", json!({"text": "x"}));
        assert_eq!(refused.violation(), kind, "{}", refused.body);
        assert!(words.iter().all(|words| message(&refused).contains(words)), "{}", refused.body);
        for (token, tool) in [(&other, "fix.echo"), (&clerk, "fix.slow")] {
            let refused = node.call_as(token, tool, json!({}));
            assert_eq!(refused.violation(), "ToolNotFound", "{tool}: {}", refused.body);
            assert!(!words.iter().any(|words| refused.body.contains(words)), "{}", refused.body);
        }
    };
    // Of what waits, only the tool that was called is named.
    let words = ["waits for an operator", "aegis upstream diff fix", "aegis upstream accept fix echo"];
    told_to_the_clerk_only("ToolQuarantined", &words);
    assert_eq!(run(&node, &["upstream", "disable", "fix"]).0, 0);
    let enable = "aegis upstream enable fix";
    told_to_the_clerk_only("UpstreamUnavailable", &["the MCP server `fix` is switched off", enable]);
    let (_, told, _) = run(&node, &["policy", "explain", "fix.echo", r#"{"text": "x"}"#]);
    assert!(told.contains("is switched off"), "{told}");
    assert_eq!(run(&node, &["upstream", "remove", "fix"]).0, 0);
    assert_eq!(node.call_as(&clerk, "fix.echo", json!({})).violation(), "ToolNotFound");
}

/// Of one that a file switches off its tools are not known either, and the operator is told no other tool's name.
#[test]
fn a_tool_of_a_server_that_a_file_switches_off_is_refused_with_the_reason() {
    let node =
        TestNode::with_config(&config(&[server("calc", "", &["enabled: false"]), server("cal", "", &[])]));
    common::wait_until(|| node.call("cal.echo", json!({"text": "x"})).status == 200);
    let refused = node.call("calc.echo", json!({"text": "x"}));
    assert_eq!(refused.violation(), "UpstreamUnavailable", "{}", refused.body);
    for words in ["the MCP server `calc` is switched off", "`enabled: true` where a file defines it"] {
        assert!(message(&refused).contains(words), "{}", refused.body);
    }
}

#[test]
fn what_was_added_can_be_called_at_once() {
    let node = TestNode::start();
    let (code, said, told) = add(&node, &["fix", "--grant", "desk", "--"]);
    assert_eq!(code, 0, "{said}{told}");
    assert!(said.contains("fix is added") && said.contains("fix is running; tools: "), "{said}{told}");
    let agent = node.make_token("desk");
    let first = node.call_as(&agent, "fix.echo", json!({"text": "first"}));
    assert_eq!((first.status, first.result()), (200, json!("first")), "{}", first.body);
    assert_eq!(node.call("fix.no-such", json!({})).violation(), "ToolNotFound");

    let (code, said, _) = add(&node, &["two", "--json", "--"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (code, &told["status"]["state"], &told["missing"]),
        (0, &json!("running"), &json!([])),
        "{said}"
    );

    // One that fails is told with its reason, and the next step.
    let (code, said, told) = add(&node, &["dies", "--env", "FIXTURE_ARGUMENTS=--at-start die", "--"]);
    assert!(
        code == 1 && said.contains("dies is added") && said.contains("dies is stopped: "),
        "{code} {said}"
    );
    assert!(told.contains("next: aegis upstream logs dies") && told.contains("dies stays added"), "{told}");
    let refused = node.call("dies.echo", json!({"text": "x"}));
    assert_eq!(refused.violation(), "UpstreamUnavailable", "{}", refused.body);
    assert!(message(&refused).contains("the process ended"), "{}", refused.body);

    // What it wrote last is told to whoever looks after it, and to nobody who calls it.
    let words = "import sys; print('no such', chr(27) + '[1mkey', file=sys.stderr); sys.exit(3)";
    assert_eq!(run(&node, &["upstream", "add", "talks", "--", "python3", "-c", words]).0, 1);
    let reason = || status(&node, "talks")["reason"].as_str().unwrap_or_default().to_owned();
    common::wait_until(|| reason().ends_with("; the last it wrote: no such [1mkey"));
    let refused = node.call("talks.x", json!({}));
    assert!(message(&refused).contains("exit status: 3"), "{}", refused.body);
    assert!(!message(&refused).contains("no such"), "{}", refused.body);
}

#[test]
fn how_agents_may_use_what_was_added_is_told() {
    let node = TestNode::start();
    let (code, _, told) = add(&node, &["fix", "--"]);
    assert!(code == 0 && told.contains("no context lets agents use it yet"), "{told}");
    assert!(told.contains("aegis context apply"), "{told}");
    let lines: String =
        told.lines().filter(|line| line.starts_with("  - ")).map(|line| format!("{line}\n")).collect();
    let file = node.dir.path().join("context.yaml");
    std::fs::write(&file, format!("name: desk\ncapabilities:\n{lines}")).unwrap();
    let (code, _, told) = run(&node, &["context", "apply", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{told}");
    let agent = node.make_token("desk");
    assert_eq!(node.call_as(&agent, "fix.echo", json!({"text": "x"})).status, 200);
    let read = node.call_as(&agent, "mcp.resources.read", json!({"server": "fix", "uri": "memo://one"}));
    assert_eq!(read.status, 200, "{}", read.body);
}

#[test]
fn an_import_tells_what_became_of_each() {
    let node = TestNode::start();
    let words = program();
    let client = json!({"mcpServers": {
        "good": {"command": words[0], "args": &words[1..]},
        "lost": {"command": "no-such-program-anywhere"},
        "off": {"command": "true", "disabled": true},
    }});
    let file = node.dir.path().join("client.json");
    std::fs::write(&file, client.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let (_, _, told) = run(&node, &["upstream", "import", file]);
    assert!(told.contains("lost: there is no program `no-such-program-anywhere`"), "{told}");
    let (code, said, told) = run(&node, &["upstream", "import", file, "--write"]);
    assert_eq!(code, 1, "one of them is broken: {told}");
    assert!(said.contains("good is running; tools: ") && said.contains("lost is stopped: "), "{said}");
    assert!(said.contains("off is disabled"), "{said}");
    assert!(told.contains("warning: lost: there is no program") && told.contains("install it"), "{told}");
    assert_eq!(node.call("good.echo", json!({"text": "x"})).status, 200);
    let (_, said, _) = run(&node, &["upstream", "import", file, "--write", "--json"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    let states: Vec<&Value> =
        told["mcp_servers"].as_array().unwrap().iter().map(|one| &one["status"]["state"]).collect();
    assert_eq!(states[..], ["running", "stopped", "disabled"], "{told}");
    assert_eq!(told["mcp_servers"][1]["missing"].as_array().unwrap().len(), 1, "{told}");
}

/// A client's file knows nothing of sandboxes, of trust or of what was switched off here, and takes nothing of it away.
#[test]
fn an_import_leaves_what_was_settled_here() {
    let node = TestNode::start();
    let (_, said, told) = add(&node, &["boxed", "--sandbox", "--approve-definitions", "--"]);
    assert!(said.contains("boxed is added"), "{said}{told}");
    assert_eq!(run(&node, &["upstream", "disable", "boxed"]).0, 0);
    let client = json!({"mcpServers": {"boxed": {"command": "python3", "args": ["-V"]}}});
    let file = node.dir.path().join("client.json");
    std::fs::write(&file, client.to_string()).unwrap();
    let (_, said, told) = run(&node, &["upstream", "import", file.to_str().unwrap(), "--write"]);
    assert!(said.contains("boxed is updated") && said.contains("boxed is disabled"), "{said}{told}");
    let (_, shown, _) = run(&node, &["upstream", "show", "boxed", "--json"]);
    let config = &serde_json::from_str::<Value>(&shown).unwrap()["config"];
    assert_eq!((&config["executable"], &config["enabled"]), (&json!("python3"), &json!(false)), "{config}");
    assert!(config["sandbox"].is_object() && config["trust"] == "approve", "{config}");
}

#[test]
fn a_rejected_definition_waits_for_nobody() {
    let node = TestNode::start();
    let (_, said, _) = add(&node, &["fix", "--approve-definitions", "--"]);
    assert!(said.contains("fix is quarantined: all its definitions wait"), "{said}");
    assert_eq!(run(&node, &["upstream", "accept", "fix", "echo"]).0, 0);
    assert_eq!(run(&node, &["upstream", "reject", "fix"]).0, 0);
    common::wait_until(|| status(&node, "fix")["rejected"].as_u64().unwrap_or(0) > 0);
    assert_eq!(status(&node, "fix")["quarantined"], 0);
    let (_, listed, _) = run(&node, &["upstream", "list"]);
    assert!(listed.contains(" rejected") && !listed.contains("for you"), "{listed}");
    assert!(listed.contains("aegis upstream accept fix TOOL"), "{listed}");
    let (_, told, _) = run(&node, &["doctor"]);
    assert!(told.contains("rejected") && !told.contains("waits for a decision"), "{told}");
    let refused = node.call("fix.structured", json!({}));
    assert!(refused.body.contains("accept fix structured"), "{}", refused.body);
    assert_eq!(run(&node, &["upstream", "accept", "fix", "structured"]).0, 0);
    common::wait_until(|| node.call("fix.structured", json!({})).status == 200);

    let (_, said, _) = add(&node, &["all", "--approve-definitions", "--"]);
    assert!(said.contains("all is quarantined"), "{said}");
    assert_eq!(run(&node, &["upstream", "reject", "all"]).0, 0);
    common::wait_until(|| status(&node, "all")["reason"].to_string().contains("were rejected"));
}

#[test]
fn an_explanation_ends_as_the_call_would() {
    let node = TestNode::start();
    add(&node, &["dies", "--env", "FIXTURE_ARGUMENTS=--at-start die", "--"]);
    add(&node, &["new", "--approve-definitions", "--"]);
    for (tool, kind) in [
        ("dies.echo", "UpstreamUnavailable"),
        ("new.echo", "ToolQuarantined"),
        ("nobody.echo", "ToolNotFound"),
    ] {
        let (called, _, _) = run(&node, &["call", tool, r#"{"text": "x"}"#]);
        let (code, told, _) = run(&node, &["policy", "explain", tool, r#"{"text": "x"}"#]);
        assert!(code == called && told.contains(kind), "{tool}: {called} and {code}: {told}");
    }
}

#[test]
fn resources_that_two_servers_list_are_told() {
    let node = TestNode::start();
    add(&node, &["one", "--"]);
    let (_, listed, _) = run(&node, &["upstream", "list"]);
    assert!(!listed.contains("memo://one"), "{listed}");
    add(&node, &["two", "--"]);
    for arguments in [&["upstream", "list"][..], &["upstream", "show", "two"]] {
        let (_, told, _) = run(&node, arguments);
        assert!(told.contains("memo://one  one, two") && told.contains("mcp.resources.read"), "{told}");
    }
    let (_, told, _) = run(&node, &["doctor"]);
    assert!(told.contains("the resource memo://one is listed by one and two"), "{told}");
    let (_, told, _) = run(&node, &["upstream", "list", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["shared_resources"], json!([{"uri": "memo://one", "servers": ["one", "two"]}]));
}

/// A call that would wait for a person, with nobody there who could ask one.
#[test]
fn a_call_that_is_taken_back_for_want_of_a_node_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    common::write_config(
        dir.path(),
        "  security_contexts:\n    - {name: careful, capabilities: [{tool_pattern: fs.write, approval: required}]}\n",
    );
    let config = dir.path().join("config.yaml").display().to_string();
    let write = r#"{"path": "/workspace/a", "content": "b"}"#;
    let ended = common::cli(
        &common::data(dir.path()),
        &["--config", &config, "call", "--context", "careful", "fs.write", write],
    );
    let told = text(&ended.stderr);
    assert!(ended.status.code() == Some(1) && told.contains("aegis up"), "{:?} {told}", ended.status);
}
