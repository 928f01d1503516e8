//! What is told of servers that can't be as they were asked for, or do not work.

use serde_json::{Value, json};

use super::{add, message, program, run, status};
use crate::common::TestNode;

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

/// Where a script lies on this machine is nothing to a program that does not see it.
#[test]
fn a_file_that_a_sandbox_does_not_show_is_told_with_the_mount_that_would() {
    let node = TestNode::start();
    let place = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/upstream");
    let script = format!("{place}/leaky.py");
    let words = ["upstream", "add", "boxed", "--sandbox", "--", "/usr/bin/python3", &script];
    let (_, _, told) = run(&node, &words);
    assert!(told.contains(&format!("warning: boxed: `{script}` is on this machine")), "{told}");
    assert!(
        told.contains(&format!("--mount {place} does")) && !told.contains("`/usr/bin/python3`"),
        "{told}"
    );
    // What was put into a sandbox here stays there when a client's file is taken over.
    let client = node.dir.path().join("client.json");
    let entry = json!({"mcpServers": {"boxed": {"command": "/usr/bin/python3", "args": [script, "-v"]}}});
    std::fs::write(&client, entry.to_string()).unwrap();
    let (_, _, told) = run(&node, &["upstream", "import", client.to_str().unwrap(), "--write"]);
    assert!(told.contains(&format!("--mount {place} does")), "{told}");
}

#[test]
fn a_look_at_a_server_that_fails_tells_its_last_words_and_what_to_do() {
    let node = TestNode::start();
    let script = "echo one >&2; w=word; echo no key, pass$w=hunter2hunter2 >&2; exit 3";
    run(&node, &["upstream", "add", "dies", "--", "sh", "-c", script]);
    let (code, _, told) = run(&node, &["upstream", "test", "dies"]);
    assert!(code == 1 && told.contains("(exit status: 3); the last it wrote: no key"), "{told}");
    assert!(told.contains("next: ") && told.contains("aegis upstream logs dies"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
    run(&node, &["upstream", "add", "lacks", "--", "no-such-program-anywhere"]);
    let (code, _, told) = run(&node, &["upstream", "test", "lacks"]);
    assert!(code == 1 && told.contains("next: install it, or write its whole path"), "{told}");
}
