//! MCP servers driven over their standard input and output: npm `@modelcontextprotocol/server-filesystem`, and ours.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::process;

pub(crate) const PACKAGE: &str = "@modelcontextprotocol/server-filesystem";
const VERSION: &str = "2026.8.31";

/// A server at the other end of a pipe.
#[derive(Debug)]
pub(crate) struct PipedServer {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    sent: u64,
}

/// Where npm put it, fetching it the first time. The only step of a run that leaves this machine.
fn install() -> anyhow::Result<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache =
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).context("HOME is not set")?;
    let directory = cache.join(format!("aegis-bench/server-filesystem-{VERSION}"));
    let program = directory.join("node_modules").join(PACKAGE).join("dist/index.js");
    if !program.exists() {
        fs::create_dir_all(&directory)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&directory);
        process::output(npm.arg(format!("{PACKAGE}@{VERSION}")))?;
    }
    Ok(program)
}

/// The yardstick, with leave to read `root`.
pub(crate) fn filesystem_server(root: &Path) -> anyhow::Result<PipedServer> {
    PipedServer::start(PACKAGE, Command::new("node").arg(install()?).arg(root))
}

impl PipedServer {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("can't run {name}"))?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut server = Self { name, child, input, output, sent: 0 };
        server.send(
            "initialize",
            &json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "aegis-bench", "version": "0.1.0"},
            }),
        )?;
        let mut line = String::new();
        server.receive(&mut line)?;
        let answer: Value = serde_json::from_str(&line)?;
        if answer.get("result").is_none() {
            bail!("{name} did not initialize: {line}");
        }
        server.write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    /// Reads a file again and again, `in_flight` at once. Calls per second.
    pub(crate) fn read_for(
        &mut self,
        time: Duration,
        in_flight: usize,
        (tool, file): (&str, &Path),
        expected: &str,
    ) -> anyhow::Result<f64> {
        let arguments = json!({"name": tool, "arguments": {"path": file}});
        let begun = Instant::now();
        for _ in 0..in_flight {
            self.send("tools/call", &arguments)?;
        }
        let mut line = String::new();
        let (mut calls, mut open) = (0_u32, in_flight);
        while open > 0 {
            self.receive(&mut line)?;
            if memchr::memmem::find(line.as_bytes(), expected.as_bytes()).is_none() {
                bail!("{} did not give the file: {line}", self.name);
            }
            calls += 1;
            if begun.elapsed() < time {
                self.send("tools/call", &arguments)?;
            } else {
                open -= 1;
            }
        }
        Ok(f64::from(calls) / begun.elapsed().as_secs_f64())
    }

    pub(crate) fn write_file(&mut self, path: &str, content: &str) -> anyhow::Result<()> {
        self.send(
            "tools/call",
            &json!({"name": "fs.write", "arguments": {"path": path, "content": content}}),
        )?;
        let mut line = String::new();
        self.receive(&mut line)?;
        if line.contains("\"isError\":false") {
            Ok(())
        } else {
            bail!("{} did not write the file: {line}", self.name)
        }
    }

    /// One call, whose answer holds `expected`.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value, expected: &str) -> anyhow::Result<()> {
        self.send("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        let mut line = String::new();
        self.receive(&mut line)?;
        if line.contains(expected) {
            Ok(())
        } else {
            bail!("{} did not answer as expected: {line}", self.name)
        }
    }

    fn send(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        self.sent += 1;
        self.write(&json!({"jsonrpc": "2.0", "id": self.sent, "method": method, "params": params}))
    }

    fn write(&mut self, message: &Value) -> anyhow::Result<()> {
        let mut line = message.to_string();
        line.push('\n');
        self.input.write_all(line.as_bytes()).context("the server is gone")
    }

    /// The next answer; notifications are passed over.
    fn receive(&mut self, line: &mut String) -> anyhow::Result<()> {
        loop {
            line.clear();
            if self.output.read_line(line)? == 0 {
                bail!("{} ended", self.name);
            }
            if line.contains("\"id\"") {
                return Ok(());
            }
        }
    }
}

impl Drop for PipedServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
