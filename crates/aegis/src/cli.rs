//! The command line. Texts here are the manual: each command has examples.

mod approvals;
mod audit;
mod config;
mod context;
mod policy;
mod seal;
#[cfg(test)]
mod tests;
mod token;
mod tools;
mod upstream;
mod volume;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use aegis_core::{Timestamp, quantity::Span};
use clap::{Args, Parser, Subcommand};

pub use approvals::{Always, Approvals};
pub use audit::{Audit, Verdict};
pub use config::Config;
pub use context::Context;
pub use policy::Policy;
pub use seal::Seal;
pub use token::Token;
pub use tools::Tools;
pub use upstream::{Add, Import, Secret, SignIn, Upstream, Value};
pub use volume::Volume;

use crate::ending;

#[derive(Debug, Parser)]
#[command(
    name = "aegis",
    version,
    about = "Stands between AI agents and everything they can touch",
    after_help = format!(
        "Start with `aegis up`, then in another terminal:\n  \
         aegis call fs.write '{{\"path\": \"hello.txt\", \"content\": \"hi\"}}'\n  \
         aegis call --context read-only fs.delete '{{\"path\": \"hello.txt\"}}'\n  \
         aegis audit tail\n\n{}",
        ending::table()
    ),
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The data directory [default: ~/.aegis]
    #[arg(long, global = true, env = "AEGIS_DATA", hide_env_values = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Answer in JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// The configuration file [default: DATA/config.yaml, then /etc/aegis/config.yaml]
    #[arg(long, global = true, env = "AEGIS_CONFIG_PATH", hide_env_values = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a node
    #[command(after_help = "Examples:\n  aegis up\n  aegis up --data /srv/aegis --listen 127.0.0.1:9000\n  \
                            aegis up --json   # one JSON object when ready")]
    Up(Up),
    /// Call a tool
    #[command(after_help = "Examples:\n  aegis call fs.list '{\"path\": \"/workspace\"}'\n  \
                            echo '{\"path\": \"a.txt\"}' | aegis call fs.read -\n  \
                            aegis call --context read-only fs.write '{\"path\": \"a\", \"content\": \"\"}'   # denied, exit code 3\n  \
                            aegis call --wait fs.delete '{\"path\": \"old\"}'   # until an approver has decided; without --wait exit code 4\n  \
                            aegis call --seal --workload wl_… --context workspace fs.list '{\"path\": \"/workspace\"}'")]
    Call(Call),
    /// Speak MCP on standard input and output, for clients that spawn their server
    #[command(after_help = "Uses the running node, or one of its own when none runs.\n\nExamples:\n  \
                            aegis mcp\n  aegis mcp --context workspace   # what an agent should get\n\n\
                            In a client's configuration:\n  \
                            {\"mcpServers\": {\"aegis\": {\"command\": \"aegis\", \"args\": [\"mcp\", \"--context\", \"workspace\"]}}}")]
    Mcp(Mcp),
    /// Look at the tools
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis tools list\n  aegis tools show fs.edit\n  aegis tools search glob"
    )]
    Tools(Tools),
    /// Make, list and revoke tokens
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis token create --context workspace --ttl 8h\n  \
                                        aegis token list\n  aegis token revoke tok_0123"
    )]
    Token(Token),
    /// Enrol workloads that sign their calls, and look after their sessions
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis seal enroll --context workspace --ttl 8h\n  \
                      aegis seal sessions\n  aegis seal revoke enr_0123   # and all its sessions with it"
    )]
    Seal(Seal),
    /// Check, try out and explain policies
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis policy check policies/\n  aegis policy explain fs.delete '{\"path\": \"a.txt\"}' --context workspace\n  \
                      aegis policy replay --policies stricter/ --since 7d   # exit code 1 when a call would go otherwise"
    )]
    Policy(Policy),
    /// Look at security contexts, and change them while the node runs
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis context list\n  aegis context show workspace\n  \
                      aegis context diff workspace\n  aegis context apply editors.yaml"
    )]
    Context(Context),
    /// Look at volumes, and hand them to agents elsewhere, over NFS
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis volume list\n  aegis volume export --context workspace --ttl 8h\n  \
                      aegis volume unexport export:0123456789abcdef0123456789abcdef\n\n\
                      The node speaks NFS when spec.storage.nfs.enabled says so."
    )]
    Volume(Volume),
    /// Put MCP servers behind the node, and look after them
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis upstream import ~/.cursor/mcp.json --write\n  \
                      aegis upstream add files -- npx -y @modelcontextprotocol/server-filesystem /srv/docs\n  \
                      aegis upstream list\n  aegis upstream diff github && aegis upstream accept github"
    )]
    Upstream(Upstream),
    /// Store secrets that MCP servers get and agents don't
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis secret set github/token\n  aegis secret list\n  aegis secret rotate github/token"
    )]
    Secret(Secret),
    /// See and decide what waits for a person
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis approvals list\n  aegis approvals show approval:0190…\n  \
                      aegis approvals approve approval:0190…\n  aegis approvals reject approval:0190… --reason \"use the staging directory\"\n  \
                      aegis approvals always approval:0190… --until 8h\n  aegis approvals standing"
    )]
    Approvals(Approvals),
    /// Read and verify the audit log
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis audit tail --limit 5\n  aegis audit tail --follow --verdict refused\n  \
                                        aegis audit verify\n  aegis audit export log.jsonl && aegis audit verify log.jsonl --key audit.pub"
    )]
    Audit(Audit),
    /// Explain an error by its name
    #[command(after_help = "Examples:\n  aegis explain ToolNotAllowed\n  aegis explain   # lists them all")]
    Explain(Explain),
    /// Find out what is wrong, and how to mend it
    #[command(after_help = "Exit code 1 when anything is bad.\n\nExamples:\n  aegis doctor\n  \
                            aegis doctor --config new.yaml   # before the node is started with it")]
    Doctor,
    /// Show, describe and check the node configuration
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis config show\n  aegis config validate aegis.yaml\n  aegis config schema > schema.json"
    )]
    Config(Config),
    /// Print a shell's completion script
    #[command(after_help = "Example:\n  aegis completions bash > /etc/bash_completion.d/aegis")]
    Completions {
        /// The shell that is to complete
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether it may come to start a program: an MCP server, a container's engine, the stage of sandboxes.
    pub fn starts_programs(&self) -> bool {
        let reads_only = matches!(
            self,
            Self::Approvals(_)
                | Self::Audit(_)
                | Self::Explain(_)
                | Self::Config(_)
                | Self::Completions { .. }
        );
        !reads_only
    }
}

#[derive(Debug, Args)]
pub struct Up {
    /// Address and port, or a port of 127.0.0.1 alone [default: 127.0.0.1:8088]
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub listen: Option<SocketAddr>,
}

/// Who the command acts as.
#[derive(Debug, Clone, Default, Args)]
pub struct Acting {
    /// Act as a user of this security context instead of as the operator
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Act with this token instead of the operator's (needs a running node)
    #[arg(long, env = "AEGIS_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    pub token: Option<String>,
}

#[derive(Debug, Args)]
pub struct Call {
    /// The tool's name
    pub tool: String,
    /// Its arguments as a JSON object; `-` reads them from standard input
    #[arg(default_value = "{}", value_name = "JSON")]
    pub arguments: String,
    /// Wait where the call needs an approver, and show the result
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub acting: Acting,
    /// Call as an enrolled workload, in a signed envelope; --context names one of its contexts
    #[arg(long, requires = "workload")]
    pub seal: bool,
    /// The workload's id, from `aegis seal enroll`
    #[arg(long, env = "AEGIS_WORKLOAD", hide_env_values = true, value_name = "ID")]
    pub workload: Option<String>,
}

#[derive(Debug, Args)]
pub struct Mcp {
    #[command(flatten)]
    pub acting: Acting,
}

#[derive(Debug, Args)]
pub struct Explain {
    /// A violation or failure, as it stands in an error
    pub name: Option<String>,
}

/// A time, or how long from now.
fn future(text: &str) -> Result<Timestamp, String> {
    moment(text, |span| Timestamp::now().plus(span))
}

/// A time, or how long ago.
fn past(text: &str) -> Result<Timestamp, String> {
    moment(text, |span| Timestamp::now().minus(span))
}

fn moment(text: &str, away: impl Fn(Duration) -> Timestamp) -> Result<Timestamp, String> {
    Timestamp::parse(text).or_else(|| Span::parse(text).ok().map(|span| away(span.0))).ok_or_else(|| {
        format!("`{text}` is neither a length such as 8h nor a time such as 2026-01-31T12:00:00Z")
    })
}

/// Where to listen. A port alone is one of this machine, which nobody else reaches.
fn address(text: &str) -> Result<SocketAddr, String> {
    let here = |port: &str| port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    text.parse().ok().or_else(|| here(port)).ok_or_else(|| {
        format!(
            "`{text}` is no address: write a port such as 8392, or an address with one such as 127.0.0.1:8392"
        )
    })
}

fn duration(text: &str) -> Result<Duration, String> {
    Span::parse(text).map(|span| span.0)
}

/// How long something that is made is good for: what has ended before it begins is nobody's wish.
fn lasting(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_secs(1) => {
            Err(format!("`{text}` is over at once: it must last for a second at least, e.g. 8h or 30d"))
        }
        long => Ok(long),
    }
}
