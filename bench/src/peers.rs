//! Other people's proxies between HTTP and MCP servers on standard input and output.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::json;

use crate::{load::pause, process, wire};

const VERSION: &str = "2025-06-18";
/// Until a proxy that was just started answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy that runs, and how to call through it.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    /// A `tools/call` for each connection, ready to be sent. They share a session, so each has an id of its own.
    pub(crate) requests: Vec<Vec<u8>>,
    child: Child,
}

/// How each is had and started.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Supergateway,
    NpmProxy,
    PypiProxy,
    RustProxy,
}

impl Kind {
    pub(crate) const EACH: [Self; 4] = [Self::Supergateway, Self::NpmProxy, Self::PypiProxy, Self::RustProxy];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Supergateway => "supergateway 4.0.0 (npm)",
            Self::NpmProxy => "mcp-proxy 6.7.19 (npm)",
            Self::PypiProxy => "mcp-proxy 0.13.0 (PyPI)",
            Self::RustProxy => "mcp-proxy 0.6.0 (Rust)",
        }
    }

    pub(crate) fn is_script(self) -> bool {
        !matches!(self, Self::RustProxy)
    }

    /// Where its program is, fetched and, if need be, built the first time.
    fn install(self) -> anyhow::Result<PathBuf> {
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache =
            std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).context("HOME is not set")?;
        let root = cache.join("aegis-bench");
        let npm = |package: &str, program: &str| {
            let directory = root.join(package.replace('@', "-"));
            let mut command = Command::new("npm");
            command
                .args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
                .arg(&directory);
            command.arg(package);
            (directory.join("node_modules/.bin").join(program), vec![command])
        };
        let (program, commands) = match self {
            Self::Supergateway => npm("supergateway@4.0.0", "supergateway"),
            Self::NpmProxy => npm("mcp-proxy@6.7.19", "mcp-proxy"),
            Self::PypiProxy => {
                let directory = root.join("pypi-mcp-proxy-0.13.0");
                let mut venv = Command::new("python3");
                venv.args(["-m", "venv"]).arg(&directory);
                let mut pip = Command::new(directory.join("bin/pip"));
                pip.args(["install", "--quiet", "mcp-proxy==0.13.0"]);
                (directory.join("bin/mcp-proxy"), vec![venv, pip])
            }
            Self::RustProxy => {
                let directory = root.join("rust-mcp-proxy-0.6.0");
                let mut cargo = Command::new("cargo");
                cargo.args(["install", "--quiet", "--locked", "--no-default-features", "--version", "0.6.0"]);
                cargo.arg("--root").arg(&directory).arg("mcp-proxy");
                (directory.join("bin/mcp-proxy"), vec![cargo])
            }
        };
        if !program.exists() {
            eprintln!("  installing {} …", self.name());
            fs::create_dir_all(&root)?;
            for mut command in commands {
                process::output(&mut command)?;
            }
        }
        Ok(program)
    }

    /// Starts it in front of `server`, a program with its arguments, for calls over this many connections.
    pub(crate) fn start(
        self,
        directory: &Path,
        server: &[String],
        text: &str,
        connections: usize,
    ) -> anyhow::Result<Peer> {
        let program = self.install()?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let shown = port.to_string();
        let mut command = Command::new(program);
        let (path, tool) = match self {
            Self::Supergateway => {
                command.args([
                    "--stdio",
                    &server.join(" "),
                    "--outputTransport",
                    "streamableHttp",
                    "--stateful",
                ]);
                command.args(["--logLevel", "none", "--port", &shown]);
                ("/mcp", "echo")
            }
            Self::NpmProxy => {
                command
                    .args(["--port", &shown, "--host", "127.0.0.1", "--server", "stream", "--"])
                    .args(server);
                ("/mcp", "echo")
            }
            Self::PypiProxy => {
                command
                    .args(["--port", &shown, "--host", "127.0.0.1", "--log-level", "ERROR", "--"])
                    .args(server);
                ("/mcp/", "echo")
            }
            Self::RustProxy => {
                let config = directory.join("mcp-proxy.toml");
                let arguments: Vec<String> = server[1..].iter().map(|one| format!("{one:?}")).collect();
                fs::write(
                    &config,
                    format!(
                        "[proxy]\nname = \"bench\"\nseparator = \"/\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\
                         [[backends]]\nname = \"up\"\ntransport = \"stdio\"\ncommand = {:?}\nargs = [{}]\n",
                        server[0],
                        arguments.join(", ")
                    ),
                )?;
                command.arg("--config").arg(config);
                ("/", "up/echo")
            }
        };
        let log = File::create(directory.join(format!("{port}.log")))?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut peer = Peer {
            name: self.name(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            requests: Vec::new(),
            child,
        };
        peer.requests = peer.session(path, tool, text, connections)?;
        Ok(peer)
    }
}

impl Peer {
    /// Opens a session, as clients of that protocol version do; what calls in it look like.
    fn session(
        &self,
        path: &str,
        tool: &str,
        text: &str,
        connections: usize,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let accept = "accept: application/json, text/event-stream\r\n";
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "aegis-bench", "version": "0.1.0"},
        }});
        let begun = Instant::now();
        let head = loop {
            match exchange(self.address, path, accept, &hello.to_string()) {
                Ok(head) => break head,
                Err(error) if begun.elapsed() > PATIENCE => {
                    return Err(error).with_context(|| format!("{} did not start", self.name));
                }
                Err(_) => pause(Duration::from_millis(100))?,
            }
        };
        let session = head
            .lines()
            .find_map(|line| {
                line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"))
            })
            .map(|(_, id)| format!("mcp-session-id: {}\r\n", id.trim()))
            .unwrap_or_default();
        let headers = format!("{accept}{session}mcp-protocol-version: {VERSION}\r\n");
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        exchange(self.address, path, &headers, &ready.to_string())?;
        let call = |id: usize| {
            let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
                "name": tool,
                "arguments": {"text": text},
            }});
            wire::post(self.address, path, None, &headers, &call.to_string())
        };
        Ok((1..=connections).map(call).collect())
    }

    /// Of the proxy itself, without the server behind it.
    pub(crate) fn resident_mebibytes(&self) -> anyhow::Result<f64> {
        process::resident_mebibytes(self.child.id())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The head of the answer to one request on a connection of its own.
fn exchange(address: SocketAddr, path: &str, headers: &str, body: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&wire::post(address, path, None, &format!("{headers}connection: close\r\n"), body))?;
    let mut answer = Vec::new();
    let mut some = [0; 4096];
    let end = loop {
        if let Some(end) = memchr::memmem::find(&answer, b"\r\n\r\n") {
            break end;
        }
        match stream.read(&mut some)? {
            0 => bail!("the connection was closed without an answer"),
            read => answer.extend_from_slice(&some[..read]),
        }
    };
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).unwrap_or_default();
    if !status.starts_with('2') {
        bail!("status {status}");
    }
    Ok(head)
}
