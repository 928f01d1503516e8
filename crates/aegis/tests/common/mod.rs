//! A real node on a free port, and plain ways to talk to it.
#![allow(dead_code, reason = "each test file uses its own part of this")]
#![allow(clippy::disallowed_methods, reason = "tests wait in threads of their own")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const AEGIS: &str = env!("CARGO_BIN_EXE_aegis");

/// A node in a process of its own. Killed when dropped.
pub(crate) struct TestNode {
    pub(crate) dir: Arc<TempDir>,
    pub(crate) address: String,
    pub(crate) token: String,
    child: Child,
    log: Arc<Mutex<String>>,
}

impl TestNode {
    pub(crate) fn start() -> Self {
        Self::with_config("")
    }

    /// `spec` is what goes under `spec:` in the configuration, indented by two.
    pub(crate) fn with_config(spec: &str) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        if !spec.is_empty() {
            write_config(dir.path(), spec);
        }
        Self::on(dir)
    }

    /// A node on a data directory that may have a past.
    pub(crate) fn on(dir: Arc<TempDir>) -> Self {
        Self::try_on(dir).unwrap_or_else(|log| panic!("the node did not start: {log}"))
    }

    /// A command on this node that is given a value on standard input.
    pub(crate) fn feed(&self, arguments: &[&str], value: &str) -> Output {
        let mut child = Command::new(AEGIS)
            .args(arguments)
            .env("AEGIS_DATA", self.data())
            .env_remove("AEGIS_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    pub(crate) fn try_on(dir: Arc<TempDir>) -> Result<Self, String> {
        let mut command = Command::new(AEGIS);
        command.args(["up", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data(dir.path()));
        let config = dir.path().join("config.yaml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        let mut child = command
            .env_remove("AEGIS_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let mut errors = child.stderr.take().unwrap();
        let sink = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(count @ 1..) = errors.read(&mut chunk) {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&chunk[..count]));
            }
        });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str::<Value>(&line).ok().filter(|ready| ready["ready"] == true);
        let Some(ready) = ready else {
            child.wait().unwrap();
            reader.join().unwrap();
            return Err(format!("{line}{}", log.lock().unwrap()));
        };
        let token = std::fs::read_to_string(data(dir.path()).join("operator.token")).unwrap();
        let address = ready["url"].as_str().unwrap().trim_start_matches("http://").to_owned();
        Ok(Self { dir, address, token: token.trim().to_owned(), child, log })
    }

    pub(crate) fn data(&self) -> PathBuf {
        data(self.dir.path())
    }

    /// The default tenant's workspace on this machine.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.data().join("volumes/local/workspace")
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        Arc::clone(&self.dir)
    }

    /// SIGTERM, and the exit code.
    pub(crate) fn stop(self) -> (Option<i32>, Arc<TempDir>) {
        signal(self.child.id(), "TERM");
        self.ended()
    }

    /// Waits for a node that has been told to stop.
    pub(crate) fn ended(mut self) -> (Option<i32>, Arc<TempDir>) {
        let status = self.child.wait().unwrap();
        (status.code(), Arc::clone(&self.dir))
    }

    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: Option<&Value>,
    ) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.raw(method, path, token, &[("content-type", "application/json")], body.as_bytes())
    }

    pub(crate) fn raw(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        if let Some(token) = token {
            head += &format!("authorization: Bearer {token}\r\n");
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        let mut stream = self.connect();
        stream.write_all(head.as_bytes()).unwrap();
        // The node may answer, and close, before it has read a body that it refuses.
        let _ = stream.write_all(body);
        read_answer(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// The node's events from now on, in lines: the headers come before anything is told, so whoever has them is subscribed.
    pub(crate) fn subscribe(&self) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        write!(
            stream,
            "GET /v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
            self.address, self.token
        )
        .unwrap();
        let mut events = BufReader::new(stream);
        let head = read_head(&mut events);
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        events
    }

    /// The operator's call on a connection of its own, whose answer nobody has read yet. `sent` says how much of the
    /// body is sent; all of it is announced.
    pub(crate) fn begin(&self, tool: &str, arguments: &Value, sent: impl FnOnce(&str) -> &str) -> TcpStream {
        let body = arguments.to_string();
        let mut stream = self.connect();
        write!(
            stream,
            "POST /v1/tools/{tool} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{}",
            self.address,
            self.token,
            body.len(),
            sent(&body)
        )
        .unwrap();
        stream
    }

    /// A tool call as the operator.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Answer {
        self.call_as(&self.token, tool, arguments)
    }

    #[allow(clippy::needless_pass_by_value, reason = "reads better at the call")]
    pub(crate) fn call_as(&self, token: &str, tool: &str, arguments: Value) -> Answer {
        self.request("POST", &format!("/v1/tools/{tool}"), Some(token), Some(&arguments))
    }

    pub(crate) fn make_token(&self, context: &str) -> String {
        let made = self.request("POST", "/v1/tokens", Some(&self.token), Some(&json!({"context": context})));
        assert_eq!(made.status, 201, "{}", made.body);
        made.json()["token"].as_str().unwrap().to_owned()
    }

    /// The command line on this node's data directory.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        cli(&self.data(), arguments)
    }

    /// Every audit record, oldest first.
    pub(crate) fn records(&self) -> Vec<Value> {
        records(&self.data())
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn data(dir: &Path) -> PathBuf {
    dir.join("data")
}

pub(crate) fn write_config(dir: &Path, spec: &str) {
    let text =
        format!("apiVersion: 100monkeys.ai/v1\nkind: NodeConfig\nmetadata: {{name: test}}\nspec:\n{spec}\n");
    // As an editor would: a new file in the place of the old.
    let temporary = dir.join("config.yaml.new");
    std::fs::write(&temporary, text).unwrap();
    std::fs::rename(temporary, dir.join("config.yaml")).unwrap();
}

pub(crate) fn cli(data: &Path, arguments: &[&str]) -> Output {
    Command::new(AEGIS)
        .args(arguments)
        .env("AEGIS_DATA", data)
        .env_remove("AEGIS_TOKEN")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(crate) fn records(data: &Path) -> Vec<Value> {
    let output = cli(data, &["audit", "tail", "--json", "--limit", "1000000"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn wait_until(mut happened: impl FnMut() -> bool) {
    for _ in 0..400 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it did not happen within twenty seconds");
}

pub(crate) fn signal(pid: u32, name: &str) {
    Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap();
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The violation's name, for a refusal.
    pub(crate) fn violation(&self) -> String {
        self.json()["error"]["data"]["violation"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn result(&self) -> Value {
        self.json()["result"].clone()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

pub(crate) fn read_answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // A reset after the answer is as good as an end.
    let mut chunk = [0; 16384];
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..count]);
    }
    let whole = String::from_utf8_lossy(&bytes);
    let (head, body) = whole.split_once("\r\n\r\n").unwrap_or((&whole, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { dechunk(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn dechunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let Ok(size @ 1..) = usize::from_str_radix(size, 16) else { break };
        whole.push_str(&rest[..size.min(rest.len())]);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    whole
}

/// A web server on loopback that answers by path.
pub(crate) fn web_server(
    answer: impl Fn(&str) -> (u16, &'static str, String) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut head = String::new();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while reader.read_line(&mut head).is_ok_and(|count| count > 2) {}
                let path = head.split(' ').nth(1).unwrap_or("/").to_owned();
                let (status, kind, body) = answer(&path);
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
            });
        }
    });
    address
}

/// The head of the next message on a connection; empty when there is none.
fn read_head(reader: &mut impl BufRead) -> String {
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|count| count > 2) {}
    head
}

/// The next request on a connection, as a server reads it: head and body.
pub(crate) fn read_request(reader: &mut impl BufRead) -> Option<(String, Vec<u8>)> {
    let head = Some(read_head(reader)).filter(|head| !head.is_empty())?;
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Some((head, body))
}

pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (known, value) = line.split_once(':')?;
        known.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
