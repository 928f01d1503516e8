//! Signing in to a server in a browser, against a real authority and a real MCP server behind it, both on loopback.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{common, status};
use crate::common::{AEGIS, TestNode, header, read_request, text};

/// An authority and the server that it protects, under one address.
#[derive(Clone)]
struct Authority {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// By client, where each may be sent back to.
    clients: HashMap<String, String>,
    /// By code: client, redirect, challenge.
    codes: HashMap<String, (String, String, String)>,
    /// The one access token that is good, and the one refresh token.
    access: String,
    refresh: String,
    serial: usize,
    refreshed: usize,
    /// What token requests were, without what is secret in them.
    grants: Vec<String>,
    no_registration: bool,
    no_pkce: bool,
    other_issuer: bool,
    elsewhere: bool,
    denies: bool,
    lives: u64,
}

impl Authority {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = Arc::new(Mutex::new(State { lives: 3600, ..State::default() }));
        let authority = Self { address, state };
        let serving = authority.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.converse(stream));
            }
        });
        authority
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    fn converse(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some((head, body)) = read_request(&mut reader) {
            let (status, more, body) = self.answer(&head, &body);
            let answer = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\n{more}content-length: {}\r\n\r\n{body}",
                body.len()
            );
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }

    fn answer(&self, head: &str, body: &[u8]) -> (u16, String, String) {
        let target = head.split(' ').nth(1).unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let plain = |status: u16, value: Value| (status, String::new(), value.to_string());
        let origin = self.origin();
        match path {
            "/mcp" => self.mcp(head, body),
            "/.well-known/oauth-protected-resource/mcp" => {
                let authority =
                    if self.state().elsewhere { "http://127.0.0.2:1".to_owned() } else { origin.clone() };
                let told = json!({"resource": format!("{origin}/mcp"), "authorization_servers": [authority],
                    "scopes_supported": ["notes.read"]});
                plain(200, told)
            }
            "/.well-known/oauth-authorization-server" => {
                let state = self.state();
                let issuer =
                    if state.other_issuer { "http://127.0.0.1:1".to_owned() } else { origin.clone() };
                let mut told = json!({"issuer": issuer, "authorization_endpoint": format!("{origin}/authorize"),
                    "token_endpoint": format!("{origin}/token"), "scopes_supported": ["notes.read", "offline_access"],
                    "authorization_response_iss_parameter_supported": true});
                if !state.no_registration {
                    told["registration_endpoint"] = json!(format!("{origin}/register"));
                }
                if !state.no_pkce {
                    told["code_challenge_methods_supported"] = json!(["S256"]);
                }
                plain(200, told)
            }
            "/register" => {
                let asked: Value = serde_json::from_slice(body).unwrap();
                let mut state = self.state();
                let id = format!("client-{}", state.clients.len());
                let redirect = asked["redirect_uris"][0].as_str().unwrap().to_owned();
                state.clients.insert(id.clone(), redirect);
                plain(201, json!({"client_id": id, "token_endpoint_auth_method": "none"}))
            }
            "/authorize" => self.authorize(query),
            "/token" => self.token(body),
            _ => plain(404, json!({})),
        }
    }

    /// What the browser gets: no page, the person has agreed, or has not.
    fn authorize(&self, query: &str) -> (u16, String, String) {
        let asked = form(query.as_bytes());
        let mut state = self.state();
        assert_eq!(
            (asked["response_type"].as_str(), asked["code_challenge_method"].as_str()),
            ("code", "S256")
        );
        assert_eq!(asked["resource"], format!("{}/mcp", self.origin()));
        assert!(
            asked["scope"].contains("notes.read") && asked["scope"].contains("offline_access"),
            "{asked:?}"
        );
        assert_eq!(state.clients[&asked["client_id"]], asked["redirect_uri"]);
        let back = if state.denies {
            "error=access_denied&error_description=not+today".to_owned()
        } else {
            state.serial += 1;
            let code = format!("code-{}-{}", state.serial, "c".repeat(20));
            let about =
                (asked["client_id"].clone(), asked["redirect_uri"].clone(), asked["code_challenge"].clone());
            state.codes.insert(code.clone(), about);
            format!("code={code}&iss={}", self.origin().replace(':', "%3A").replace('/', "%2F"))
        };
        let location = format!("location: {}?{back}&state={}\r\n", asked["redirect_uri"], asked["state"]);
        (302, location, String::new())
    }

    fn token(&self, body: &[u8]) -> (u16, String, String) {
        let asked = form(body);
        let mut state = self.state();
        state.grants.push(asked["grant_type"].clone());
        let refused = |error: &str| (400, String::new(), json!({ "error": error }).to_string());
        assert_eq!(asked["resource"], format!("{}/mcp", self.origin()));
        match asked["grant_type"].as_str() {
            "authorization_code" => {
                let Some((client, redirect, challenge)) = state.codes.remove(&asked["code"]) else {
                    return refused("invalid_grant");
                };
                let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(asked["code_verifier"].as_bytes()));
                if (&client, &redirect, &challenge) != (&asked["client_id"], &asked["redirect_uri"], &proof) {
                    return refused("invalid_grant");
                }
            }
            // Each is good once.
            "refresh_token" if !state.refresh.is_empty() && state.refresh == asked["refresh_token"] => {
                state.refreshed += 1;
            }
            _ => return refused("invalid_grant"),
        }
        state.serial += 1;
        state.access = format!("access-{}-{}", state.serial, "a".repeat(20));
        state.refresh = format!("refresh-{}-{}", state.serial, "r".repeat(20));
        let told = json!({"access_token": state.access, "token_type": "Bearer", "expires_in": state.lives,
            "refresh_token": state.refresh});
        (200, String::new(), told.to_string())
    }

    fn mcp(&self, head: &str, body: &[u8]) -> (u16, String, String) {
        let access = self.state().access.clone();
        let shown = header(head, "authorization").unwrap_or_default();
        if access.is_empty() || shown != format!("Bearer {access}") {
            let place = format!("{}/.well-known/oauth-protected-resource/mcp", self.origin());
            let challenge = format!("www-authenticate: Bearer resource_metadata=\"{place}\"\r\n");
            return (401, challenge, String::new());
        }
        let Ok(message) = serde_json::from_slice::<Value>(body) else {
            return (405, String::new(), String::new());
        };
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": "1"}}),
            "tools/list" => json!({"tools": [{"name": "whoami", "description": "says whom it sees",
                "inputSchema": {"type": "object"}}]}),
            "tools/call" => json!({"content": [{"type": "text", "text": format!("with {access}")}]}),
            "ping" => json!({}),
            _ if message.get("id").is_none() => return (202, String::new(), String::new()),
            _ => {
                let error = json!({"jsonrpc": "2.0", "id": message["id"],
                    "error": {"code": -32601, "message": "no such method"}});
                return (200, String::new(), error.to_string());
            }
        };
        (200, String::new(), json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
    }

    fn add(&self, node: &TestNode) {
        let url = format!("{}/mcp", self.origin());
        let added = node.cli(&["upstream", "add", "notes", "--url", &url]);
        assert!(added.status.success(), "{}", text(&added.stderr));
        assert!(text(&added.stdout).contains("aegis upstream sign-in notes"), "{}", text(&added.stdout));
    }
}

fn form(text: &[u8]) -> HashMap<String, String> {
    url::form_urlencoded::parse(text).into_owned().collect()
}

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
    let begun = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
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
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    authority.state().clients.insert("ours".to_owned(), format!("http://127.0.0.1:{port}/callback"));
    let (mut child, _said, begun) = begin(&node, &["--port", &port.to_string()]);
    browse(begun["url"].as_str().unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(whoami(&node), json!("with [redacted]"));
    assert!(text(&node.cli(&["secret", "list"]).stdout).contains("kept/here"));
}
