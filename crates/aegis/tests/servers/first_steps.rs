//! What somebody meets who has just put servers behind a node.

use serde_json::{Value, json};

use super::{common, config, server, status};
use crate::common::{Answer, TestNode, text};

/// The words after `--` that start the fixture.
fn program() -> Vec<String> {
    let program = std::env::current_exe().unwrap().display().to_string();
    let arguments = ["fixture_server", "--exact", "--ignored", "--nocapture", "--quiet"];
    [program].into_iter().chain(arguments.map(ToOwned::to_owned)).collect()
}

/// `aegis upstream add` of the fixture: code, standard output and standard error.
fn add(node: &TestNode, options: &[&str]) -> (i32, String, String) {
    let program = program();
    let all: Vec<&str> = ["upstream", "add"]
        .iter()
        .chain(options)
        .copied()
        .chain(program.iter().map(String::as_str))
        .collect();
    run(node, &all)
}

fn run(node: &TestNode, arguments: &[&str]) -> (i32, String, String) {
    let output = node.cli(arguments);
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn message(answer: &Answer) -> String {
    answer.json()["error"].to_string()
}

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
    told_to_the_clerk_only("ToolQuarantined", &["waits for an operator", "aegis upstream diff fix"]);
    assert_eq!(run(&node, &["upstream", "disable", "fix"]).0, 0);
    let enable = "aegis upstream enable fix";
    told_to_the_clerk_only("UpstreamUnavailable", &["the MCP server `fix` is switched off", enable]);
    let (_, told, _) = run(&node, &["policy", "explain", "fix.echo", r#"{"text": "x"}"#]);
    assert!(told.contains("is switched off"), "{told}");
    assert_eq!(run(&node, &["upstream", "remove", "fix"]).0, 0);
    assert_eq!(node.call_as(&clerk, "fix.echo", json!({})).violation(), "ToolNotFound");
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
fn what_can_never_start_is_refused_and_what_may_come_is_a_warning() {
    let node = TestNode::start();
    let data = node.data().canonicalize().unwrap().display().to_string();
    let own = format!("{data}/volumes");
    for (options, told) in [
        (
            &["x", "--sandbox", "--volume", "/nowhere", "--"][..],
            "there is no volume at /nowhere; there are /workspace",
        ),
        (&["x", "--sandbox", "--mount", &own, "--"], "the node's own directory"),
    ] {
        let (code, _, said) = add(&node, options);
        assert!(code == 2 && said.contains(told) && said.contains("next:"), "{options:?}: {code} {said}");
    }
    assert_eq!(status(&node, "x"), Value::Null, "nothing was added");
    let link = node.dir.path().join("link");
    std::os::unix::fs::symlink("/etc", &link).unwrap();
    let link = link.display().to_string();
    for (options, what, next) in [
        (
            &["a", "--credential", "K=secret:no/such", "--"][..],
            "`no/such` is not stored",
            "aegis secret set no/such",
        ),
        (
            &["b", "--credential", "K=env:NO_SUCH_VARIABLE_HERE", "--"],
            "NO_SUCH_VARIABLE_HERE",
            "start the node with it",
        ),
        (&["c", "--credential", "K=file:/no/such", "--"], "/no/such", "aegis upstream restart c"),
        (
            &["d", "--sandbox", "--mount", "/no/such/place", "--"],
            "there is nothing at /no/such/place",
            "make it",
        ),
        (&["e", "--sandbox", "--mount", &link, "--"], "symbolic link", "name the real place"),
    ] {
        let (code, said, told) = add(&node, options);
        assert_eq!(code, 1, "it is there and does not run: {options:?}: {said}{told}");
        let warned = format!("warning: {}: ", options[0]);
        assert!(told.contains(&warned) && told.contains(what) && told.contains(next), "{options:?}: {told}");
    }
    let (_, said, _) = run(&node, &["upstream", "add", "lost", "--json", "--", "no-such-program-anywhere"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(told["status"]["state"], "stopped", "{told}");
    let missing = told["missing"][0].to_string();
    assert!(missing.contains("on the node's PATH") && missing.contains("install it"), "{missing}");
}

#[test]
fn what_was_typed_wrong_ends_with_2() {
    let node = TestNode::start();
    add(&node, &["notes", "--"]);
    for (arguments, told) in [
        (&["add", "x", "--url", "notaurl"][..], "https://"),
        (&["add", "x", "--url", "http://"], "empty host"),
        (&["add", "x", "--sandbox", "--egress", "http://a.example/x", "--", "true"], "--egress"),
        (&["add", "x", "--credential", "TOKEN=plain", "--", "true"], "aegis secret set x/token"),
        (&["add", "x", "--credential", "TOKEN", "--", "true"], "--credential NAME="),
        (&["add", "x", "--capability", "a b", "--", "true"], "--capability"),
        (&["add", "x", "--sandbox", "--volume", "workspace", "--", "true"], "--volume /workspace"),
        (&["add", "x", "--grant", "no good/name", "--", "true"], "can't be called"),
        (&["accept", "notes", "ekho"], "did you mean `echo`"),
        (&["reject", "notes", "ekho"], "did you mean `echo`"),
        (&["accept", "nots"], "did you mean `notes`"),
    ] {
        let arguments: Vec<&str> = ["upstream"].iter().chain(arguments).copied().collect();
        let (code, said, stderr) = run(&node, &arguments);
        assert!(code == 2 && stderr.contains(told), "{arguments:?}: {code} {said}{stderr}");
        assert!(stderr.contains("next:"), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("--mount") || stderr.contains("--mount /srv"), "{stderr}");
    }
    assert_eq!(status(&node, "x"), Value::Null);
    // Nothing is wrong with these words; there is only nothing to decide.
    assert_eq!(run(&node, &["upstream", "accept", "notes", "echo"]).0, 1);
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
    assert!(refused.body.contains("accept fix TOOL"), "{}", refused.body);
    assert_eq!(run(&node, &["upstream", "accept", "fix", "structured"]).0, 0);
    common::wait_until(|| node.call("fix.structured", json!({})).status == 200);

    let (_, said, _) = add(&node, &["all", "--approve-definitions", "--"]);
    assert!(said.contains("all is quarantined"), "{said}");
    assert_eq!(run(&node, &["upstream", "reject", "all"]).0, 0);
    common::wait_until(|| status(&node, "all")["reason"].to_string().contains("were rejected"));
}

#[test]
fn doctor_tells_of_each_server_once() {
    let node = TestNode::start();
    run(&node, &["upstream", "add", "lost", "--", "no-such-program-anywhere"]);
    add(&node, &["poor", "--credential", "K=secret:no/such", "--"]);
    add(&node, &["bare", "--credential", "K=env:NO_SUCH_VARIABLE_HERE", "--"]);
    add(&node, &["dies", "--env", "FIXTURE_ARGUMENTS=--at-start die", "--"]);
    let (code, told, _) = run(&node, &["doctor"]);
    assert_eq!(code, 1, "{told}");
    for name in ["lost", "poor", "bare", "dies"] {
        assert_eq!(told.matches(&format!("`{name}` ")).count(), 1, "{name}: {told}");
    }
    assert!(told.contains("aegis secret set no/such") && told.contains("aegis upstream logs dies"), "{told}");
}

/// Answers every request with a page for people.
fn web_site() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 16 << 10]);
            let page = "<!doctype html><title>Welcome</title>";
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{page}", page.len());
            let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
        }
    });
    format!("http://{address}/")
}

#[test]
fn what_speaks_no_mcp_is_told_with_what_it_does_instead() {
    let node = TestNode::start();
    let file = node.dir.path().join("silent.yaml");
    // It reads, so that it ends with the node, and never answers.
    let silent = "{name: silent, executable: sh, args: [-c, 'cat > /dev/null'], limits: {start_timeout: 1s}}";
    std::fs::write(&file, silent).unwrap();
    let (site, file) = (web_site(), file.display().to_string());
    let password = "w=word; echo hello there, pass$w=hunter2hunter2";
    for (name, words, reason) in [
        ("mirror", &["mirror", "--", "cat"][..], "it sends back what it is sent, so it speaks no MCP"),
        ("brief", &["brief", "--", "true"], "the process ended (exit status: 0)"),
        ("chatty", &["chatty", "--", "sh", "-c", password], "it wrote what is no MCP: hello there"),
        ("silent", &["--file", &file], "it did not answer `initialize` within 1 s"),
        ("page", &["page", "--url", &site], "a web page"),
    ] {
        let arguments = [&["upstream", "add"], words].concat();
        let (code, said, told) = run(&node, &arguments);
        assert!(code == 1 && said.contains(reason), "{name}: {code} {said}{told}");
        assert!(told.contains(&format!("{name} stays added")), "{told}");
        let kept = status(&node, name)["reason"].to_string();
        assert!(kept.contains(reason), "in whatever state it is by now: {kept}");
        let (code, told, _) = run(&node, &["doctor"]);
        assert!(code == 1 && told.contains(reason), "{name}: {told}");
        let mend = if name == "page" { "that of an MCP server" } else { "standard input and output" };
        assert!(told.contains(&format!("aegis upstream logs {name}")) && told.contains(mend), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
        run(&node, &["upstream", "remove", name]);
    }
}

#[test]
fn a_file_that_is_named_from_here_is_told_with_its_whole_path() {
    let node = TestNode::start();
    let (here, whole) = (
        "tests/fixtures/upstream/leaky.py",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/upstream/leaky.py"),
    );
    let (code, said, told) = run(&node, &["upstream", "add", "lost", "--", "python3", here]);
    assert!(code == 1 && told.contains(&format!("warning: lost: `{here}` is here")), "{code} {told}");
    assert!(told.contains(&format!("write {whole}")), "{told}");
    assert!(said.contains(&format!("`{here}` is not in ")) && said.contains("where it starts"), "{said}");
    // Where things lie is nothing for those who call.
    assert!(!message(&node.call("lost.tell", json!({}))).contains("where it starts"));
    let (code, _, told) = run(&node, &["upstream", "add", "found", "--", "python3", whole]);
    assert!(code == 0 && !told.contains("warning"), "{told}");
    let client = node.dir.path().join("client.json");
    std::fs::write(
        &client,
        json!({"mcpServers": {"one": {"command": "python3", "args": [here]}}}).to_string(),
    )
    .unwrap();
    let (_, _, told) = run(&node, &["upstream", "import", client.to_str().unwrap()]);
    assert!(told.contains(&format!("one: `{here}` is here")) && told.contains(whole), "{told}");
}

#[test]
fn doctor_does_not_hold_this_shell_against_a_server_that_runs() {
    let node = TestNode::start();
    let place = tempfile::tempdir().unwrap();
    let words = program();
    std::os::unix::fs::symlink(&words[0], place.path().join("only-there")).unwrap();
    let path = format!("PATH={}", place.path().display());
    let rest: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let all = [&["upstream", "add", "far", "--env", &path, "--", "only-there"], &rest[..]].concat();
    let (code, said, told) = run(&node, &all);
    assert!(code == 0 && said.contains("far is running"), "{said}{told}");
    let (_, told, _) = run(&node, &["doctor"]);
    assert!(told.contains("1 configured, each with what it needs") && !told.contains("`far`"), "{told}");
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
fn a_context_that_can_not_be_granted_stops_everything() {
    let node = TestNode::with_config("  security_contexts: [{name: fixed}]");
    let client =
        json!({"mcpServers": {"one": {"command": "true", "env": {"API_KEY": "sk-0123456789abcdef"}}}});
    let file = node.dir.path().join("client.json");
    std::fs::write(&file, client.to_string()).unwrap();
    let file = file.to_str().unwrap();
    for context in ["fixed", "aegis-system-operator", "no good/name"] {
        let (code, said, told) = run(&node, &["upstream", "import", file, "--write", "--grant", context]);
        assert!(code != 0 && said.is_empty(), "{context}: {said}");
        assert!(told.contains(context) && !told.contains("in the client"), "{told}");
        assert_eq!(add(&node, &["two", "--grant", context, "--"]).0, code);
    }
    let (_, secrets, _) = run(&node, &["secret", "list"]);
    assert!(!secrets.contains("one/api-key"), "{secrets}");
    assert_eq!((status(&node, "one"), status(&node, "two")), (Value::Null, Value::Null));

    // It can be done, and makes of the context something else.
    let (code, _, told) = add(&node, &["three", "--grant", "read-only", "--"]);
    assert!(
        code == 0 && told.contains("warning: the context read-only let nothing through but looking"),
        "{told}"
    );
    let (_, said, _) = add(&node, &["four", "--grant", "workspace", "--json", "--"]);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&told["granted"]["changed"], &told["warning"]), (&json!(true), &Value::Null), "{told}");
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

#[test]
fn a_credential_that_is_none_is_told_before_mcp_begins() {
    let node = TestNode::start();
    for (arguments, told) in
        [(["mcp", "--token", "bad"], "Unauthenticated"), (["mcp", "--context", "wrkspace"], "wrkspace")]
    {
        let (code, said, stderr) = run(&node, &arguments);
        assert!(
            code != 0 && said.is_empty() && stderr.contains(told),
            "{arguments:?}: {code} {said}{stderr}"
        );
    }
    assert_eq!(run(&node, &["mcp"]).0, 0);
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
