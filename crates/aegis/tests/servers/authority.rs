//! An authority on loopback that lets people in, and the MCP server that it protects.

use std::{
    collections::HashMap,
    io::{BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, mpsc},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{TestNode, header, read_request, text};

/// An authority and the server that it protects, under one address.
#[derive(Clone)]
pub(super) struct Authority {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub(super) struct State {
    /// By client, where each may be sent back to.
    pub(super) clients: HashMap<String, String>,
    /// By code: client, redirect, challenge.
    pub(super) codes: HashMap<String, (String, String, String)>,
    /// The one access token that is good, and the one refresh token.
    pub(super) access: String,
    pub(super) refresh: String,
    pub(super) serial: usize,
    pub(super) refreshed: usize,
    /// What token requests were, without what is secret in them.
    pub(super) grants: Vec<String>,
    pub(super) no_registration: bool,
    pub(super) no_pkce: bool,
    pub(super) other_issuer: bool,
    pub(super) elsewhere: bool,
    pub(super) denies: bool,
    pub(super) lives: u64,
    /// What the MCP server was shown.
    pub(super) shown: Vec<String>,
    /// The next token request waits for this.
    pub(super) held: Option<mpsc::Receiver<()>>,
    /// Token requests that have waited, or wait.
    pub(super) holding: usize,
}

impl Authority {
    pub(super) fn start() -> Self {
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

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn origin(&self) -> String {
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
        let held = self.state().held.take();
        if let Some(held) = held {
            self.state().holding += 1;
            let _ = held.recv();
        }
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
        self.state().shown.push(shown.to_owned());
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

    /// Registers a client for where a sign-in that was begun comes back to, as its owner would have done before.
    pub(super) fn lets_back(&self, client: &str, begun: &Value) {
        let mut asked = form(begun["url"].as_str().unwrap().split_once('?').unwrap().1.as_bytes());
        assert_eq!(asked["client_id"], client);
        let redirect = asked.remove("redirect_uri").unwrap();
        self.state().clients.insert(client.to_owned(), redirect);
    }

    /// Has token requests wait until what is returned is dropped, or sent to.
    pub(super) fn hold(&self) -> mpsc::Sender<()> {
        let (release, held) = mpsc::channel();
        self.state().held = Some(held);
        release
    }

    pub(super) fn add(&self, node: &TestNode) {
        let url = format!("{}/mcp", self.origin());
        let added = node.cli(&["upstream", "add", "notes", "--url", &url]);
        // It is there, and does not run before somebody has signed in.
        assert_eq!(added.status.code(), Some(1), "{}", text(&added.stderr));
        assert!(text(&added.stdout).contains("aegis upstream sign-in notes"), "{}", text(&added.stdout));
    }
}

pub(super) fn form(text: &[u8]) -> HashMap<String, String> {
    url::form_urlencoded::parse(text).into_owned().collect()
}
