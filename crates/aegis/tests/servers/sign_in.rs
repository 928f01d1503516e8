//! Signing in to a server in a browser, against a real authority and a real MCP server behind it, both on loopback.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    authority::{Authority, State, form},
    common, status,
};
use crate::common::{AEGIS, TestNode, text};

/// `aegis upstream sign-in`, up to where the browser comes in.
fn begin(node: &TestNode, more: &[&str]) -> (Child, BufReader<std::process::ChildStdout>, Value) {
    let mut child = Command::new(AEGIS)
        .args(["upstream", "sign-in", "notes", "--json"])
        .args(more)
        .env("AEGIS_DATA", node.data())
        .env_remove("AEGIS_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let begun: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(begun["event"] == "open" || begun["error"].is_object(), "{begun}");
    (child, said, begun)
}

/// What a browser does with an address: asks for it, and goes where it is sent.
fn browse(url: &str) -> String {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, target) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{target} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let answer = common::read_answer(&mut stream);
    match answer.header("location") {
        Some(next) => browse(next),
        None => answer.body,
    }
}

/// The whole of it; code, and the last that was said.
fn sign_in(node: &TestNode) -> (i32, Value) {
    let (mut child, mut said, begun) = begin(node, &[]);
    browse(begun["url"].as_str().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    (child.wait().unwrap().code().unwrap(), serde_json::from_str(&line).unwrap_or_default())
}

fn whoami(node: &TestNode) -> Value {
    let answer = node.call("notes.whoami", json!({}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.result()
}

#[test]
fn a_person_signs_in_and_the_tokens_stay_with_the_node() {
    let authority = Authority::start();
    let node = TestNode::start();
    authority.add(&node);
    let refused = node.call("notes.whoami", json!({}));
    assert_eq!(refused.violation(), "UpstreamUnavailable", "{}", refused.body);

    let (code, told) = sign_in(&node);
    assert_eq!((code, &told["status"]["state"]), (0, &json!("running")), "{told}");
    assert_eq!(told["event"], "signed_in", "{told}");
    // The server repeats its token, and nobody sees it.
    assert_eq!(whoami(&node), json!("with [redacted]"));
    assert_eq!(authority.state().grants, ["authorization_code"]);
    let shown = text(&node.cli(&["upstream", "show", "notes"]).stdout);
    assert!(shown.contains("authorization_code") && shown.contains("secret:notes/sign-in"), "{shown}");
    assert!(text(&node.cli(&["secret", "list"]).stdout).contains("notes/sign-in"));
    assert!(text(&node.cli(&["doctor"]).stdout).contains("each with what it needs"));

    // They outlive the node, and what was given once is asked for no second time.
    let (_, dir) = node.stop();
    let node = TestNode::on(dir);
    common::wait_until(|| status(&node, "notes")["state"] == "running");
    common::wait_until(|| node.call("notes.whoami", json!({})).status == 200);
    assert_eq!(authority.state().grants, ["authorization_code"]);

    // A token that is no longer taken is renewed, with a refresh token that is good once.
    for turn in 1..=2 {
        authority.state().access = "another".to_owned();
        assert_eq!(whoami(&node), json!("with [redacted]"));
        assert_eq!(authority.state().refreshed, turn);
    }
    // Taking over the client's file once more leaves it signed in.
    let file = node.dir.path().join("client.json");
    let client = json!({"mcpServers": {"notes": {"url": format!("{}/mcp", authority.origin())}}});
    std::fs::write(&file, client.to_string()).unwrap();
    let imported = text(&node.cli(&["upstream", "import", file.to_str().unwrap(), "--write"]).stdout);
    assert!(imported.contains("notes is unchanged"), "{imported}");
    let records = node.records();
    let seen = records.iter().map(Value::to_string).collect::<String>() + &node.log();
    let secrets = {
        let state = authority.state();
        [state.access.clone(), state.refresh.clone()]
    };
    assert!(secrets.iter().all(|secret| !seen.contains(secret.as_str())));
    assert!(!seen.contains("code-1-") && seen.contains("upstream-sign-in"));

    // When even that is refused, a person is asked again, by name.
    {
        let mut state = authority.state();
        (state.access, state.refresh) = ("another".to_owned(), "another".to_owned());
    }
    let over = node.call("notes.whoami", json!({}));
    assert!(over.status != 200 && over.body.contains("aegis upstream sign-in notes"), "{}", over.body);
    let (code, _) = sign_in(&node);
    assert_eq!(code, 0);
    assert_eq!(whoami(&node), json!("with [redacted]"));

    // Nobody else has any use for the tokens.
    let removed = text(&node.cli(&["upstream", "remove", "notes"]).stdout);
    assert!(removed.contains("secret:notes/sign-in is deleted"), "{removed}");
    assert!(!text(&node.cli(&["secret", "list"]).stdout).contains("notes/sign-in"));
    assert!(node.records().iter().any(|record| record["entry"]["action"] == "secret-deleted"));
}

#[test]
fn a_token_that_runs_out_is_renewed_before_it_does() {
    let authority = Authority::start();
    authority.state().lives = 1;
    let node = TestNode::start();
    authority.add(&node);
    assert_eq!(sign_in(&node).0, 0);
    common::wait_until(|| {
        node.call("notes.whoami", json!({}));
        authority.state().refreshed >= 2
    });
    assert_eq!(whoami(&node), json!("with [redacted]"));
}

#[test]
fn what_is_not_trustworthy_is_not_signed_in_to() {
    let authority = Authority::start();
    let node = TestNode::start();
    authority.add(&node);
    let refused = |told: &str| {
        let ended = node.cli(&["upstream", "sign-in", "notes"]);
        let said = text(&ended.stderr);
        assert!(ended.status.code() == Some(1) && said.contains(told), "{told}: {:?} {said}", ended.status);
    };
    type Switch = fn(&mut State) -> &mut bool;
    let switches: [(Switch, &str); 4] = [
        (|state| &mut state.no_pkce, "PKCE"),
        (|state| &mut state.other_issuer, "says that it is"),
        (|state| &mut state.elsewhere, "nothing is asked there"),
        (|state| &mut state.no_registration, "--client-id"),
    ];
    for (switch, told) in switches {
        *switch(&mut authority.state()) = true;
        refused(told);
        *switch(&mut authority.state()) = false;
    }
    assert_eq!(node.cli(&["upstream", "sign-in", "nots"]).status.code(), Some(2));
    node.cli(&["upstream", "add", "program", "--", "true"]);
    let program = node.cli(&["upstream", "sign-in", "program"]);
    assert!(text(&program.stderr).contains("a program has no sign-in"), "{}", text(&program.stderr));

    // A person who says no.
    authority.state().denies = true;
    let (mut child, _, begun) = begin(&node, &[]);
    assert!(browse(begun["url"].as_str().unwrap()).contains("can be closed"));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    authority.state().denies = false;

    // An answer to another sign-in, of another authority, or without its word.
    let (mut child, _, begun) = begin(&node, &[]);
    let mut redirect = form(begun["url"].as_str().unwrap().split_once('?').unwrap().1.as_bytes());
    let back = redirect.remove("redirect_uri").unwrap();
    assert!(browse(&format!("{back}?code=x&state=other")).contains("nothing is here"));
    let state = begun["state"].as_str().unwrap();
    browse(&format!("{back}?code=x&state={state}&iss=http%3A%2F%2Fother"));
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let finish = |body: Value| {
        node.request("POST", "/v1/upstreams/notes/signed-in", Some(&node.token), Some(&body)).status
    };
    let again = format!("{back}?code=x&state={state}&iss={}", authority.origin());
    assert_eq!(finish(json!({ "back": again })), 409, "it is answered once");
    assert_eq!(finish(json!({"back": format!("{back}?code=x&state=never")})), 409);
    let wish = json!({"redirect": "https://example.org/callback"});
    let elsewhere = node.request("POST", "/v1/upstreams/notes/sign-in", Some(&node.token), Some(&wish));
    assert!(elsewhere.status == 409 && elsewhere.body.contains("loopback"), "{}", elsewhere.body);
    let agent = node.make_token("workspace");
    assert_eq!(node.request("POST", "/v1/upstreams/notes/sign-in", Some(&agent), Some(&wish)).status, 403);
    assert!(authority.state().grants.is_empty(), "no token was ever asked for");
}

#[test]
fn a_server_of_the_file_signs_in_as_the_file_says() {
    let authority = Authority::start();
    let origin = authority.origin();
    let spec = |more: &str| format!("  mcp_servers:\n    - {{name: notes, url: \"{origin}/mcp\"{more}}}\n");
    let node = TestNode::with_config(&spec(""));
    let unsaid = node.cli(&["upstream", "sign-in", "notes"]);
    let told = text(&unsaid.stderr);
    assert!(unsaid.status.code() == Some(1) && told.contains("grant: authorization_code"), "{told}");
    common::write_config(
        node.dir.path(),
        &spec(&format!(
            ", oauth: {{grant: authorization_code, token_url: \"{origin}/token\", client_id: ours, scopes: [notes.read, \
             offline_access], sign_in: \"secret:kept/here\"}}"
        )),
    );
    common::wait_until(|| status(&node, "notes")["reason"].to_string().contains("nobody is signed in"));
    let (mut child, _said, begun) = begin(&node, &[]);
    authority.lets_back("ours", &begun);
    browse(begun["url"].as_str().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(whoami(&node), json!("with [redacted]"));
    assert!(text(&node.cli(&["secret", "list"]).stdout).contains("kept/here"));
}

#[test]
fn what_is_deleted_is_forgotten_at_once() {
    let authority = Authority::start();
    let node = TestNode::start();
    authority.add(&node);
    assert_eq!(sign_in(&node).0, 0);
    assert_eq!(whoami(&node), json!("with [redacted]"));
    assert!(node.cli(&["secret", "delete", "notes/sign-in"]).status.success());
    let over = node.call("notes.whoami", json!({}));
    assert!(over.status != 200 && over.body.contains("aegis upstream sign-in notes"), "{}", over.body);
    assert_eq!(authority.state().refreshed, 0);
    assert_eq!(sign_in(&node).0, 0);
    assert_eq!(whoami(&node), json!("with [redacted]"));

    // Also while it is being renewed.
    let release = authority.hold();
    authority.state().access = "another".to_owned();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| node.call("notes.whoami", json!({})));
        common::wait_until(|| authority.state().holding == 1);
        assert!(node.cli(&["secret", "delete", "notes/sign-in"]).status.success());
        drop(release);
        assert_ne!(call.join().unwrap().status, 200);
    });
    assert_eq!(authority.state().refreshed, 1);
    assert!(!text(&node.cli(&["secret", "list"]).stdout).contains("notes/sign-in"));
}

#[test]
fn tokens_stay_away_from_an_address_that_took_the_name() {
    let (authority, other) = (Authority::start(), Authority::start());
    let node = TestNode::start();
    authority.add(&node);
    let (mut child, _said, begun) = begin(&node, &[]);
    let release = authority.hold();
    browse(begun["url"].as_str().unwrap());
    common::wait_until(|| authority.state().holding == 1);
    assert!(node.cli(&["upstream", "remove", "notes"]).status.success());
    other.add(&node);
    drop(release);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(authority.state().grants, ["authorization_code"], "they were given: {said}");
    let shown = text(&node.cli(&["upstream", "show", "notes"]).stdout);
    assert!(!shown.contains("authorization_code"), "{shown}");
    node.call("notes.whoami", json!({}));
    let access = authority.state().access.clone();
    assert!(!access.is_empty() && !other.state().shown.iter().any(|header| header.contains(&access)));
}

#[test]
fn a_client_that_was_named_is_the_client_next_time() {
    let authority = Authority::start();
    authority.state().no_registration = true;
    let node = TestNode::start();
    authority.add(&node);
    for arguments in [&["--client-id", "ours", "--scope", "notes.read", "--scope", "offline_access"][..], &[]]
    {
        let (mut child, _said, begun) = begin(&node, arguments);
        authority.lets_back("ours", &begun);
        browse(begun["url"].as_str().unwrap());
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(whoami(&node), json!("with [redacted]"));
    }

    // A request that names another server does no harm to the sign-in.
    node.cli(&["upstream", "add", "others", "--url", &format!("{}/mcp", authority.origin())]);
    let (mut child, _said, begun) = begin(&node, &[]);
    authority.lets_back("ours", &begun);
    let back = json!({"back": format!("http://127.0.0.1:1/callback?code=c&state={}", begun["state"].as_str().unwrap())});
    let wrong = node.request("POST", "/v1/upstreams/others/signed-in", Some(&node.token), Some(&back));
    assert_eq!(wrong.status, 409, "{}", wrong.body);
    browse(begun["url"].as_str().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
