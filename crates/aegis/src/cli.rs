//! The command line. Texts here are the manual: each command has examples.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use aegis_core::{Tier, quantity::Span};
use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Debug, Parser)]
#[command(
    name = "aegis",
    version,
    about = "Stands between AI agents and everything they can touch",
    after_help = "Start with `aegis up`, then in another terminal:\n  \
                  aegis call fs.write '{\"path\": \"hello.txt\", \"content\": \"hi\"}'\n  \
                  aegis call --context read-only fs.delete '{\"path\": \"hello.txt\"}'\n  \
                  aegis audit tail",
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
                            aegis call --context read-only fs.write '{\"path\": \"a\", \"content\": \"\"}'   # denied, exit code 3")]
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
    /// Read and verify the audit log
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis audit tail --limit 5\n  aegis audit tail --follow --verdict refused\n  \
                                        aegis audit verify\n  aegis audit export log.jsonl && aegis audit verify --file log.jsonl --key audit.pub"
    )]
    Audit(Audit),
    /// Explain an error by its name
    #[command(after_help = "Examples:\n  aegis explain ToolNotAllowed\n  aegis explain   # lists them all")]
    Explain(Explain),
    /// Find out what is wrong, and how to mend it
    Doctor,
    /// Show, describe and check the node configuration
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis config show\n  aegis config validate aegis.yaml\n  aegis config schema > schema.json"
    )]
    Config(Config),
    /// Print a shell's completion script
    #[command(after_help = "Example:\n  aegis completions bash > /etc/bash_completion.d/aegis")]
    Completions { shell: clap_complete::Shell },
}

#[derive(Debug, Args)]
pub struct Up {
    /// Address and port [default: 127.0.0.1:8088]
    #[arg(long, value_name = "ADDR")]
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
    #[command(flatten)]
    pub acting: Acting,
}

#[derive(Debug, Args)]
pub struct Mcp {
    #[command(flatten)]
    pub acting: Acting,
}

#[derive(Debug, Subcommand)]
pub enum Tools {
    /// The tools you may call
    List {
        #[arg(long, default_value_t = 200)]
        limit: usize,
        #[command(flatten)]
        acting: Acting,
    },
    /// Everything about one tool
    Show {
        name: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Tools by a word in their name or description
    Search {
        query: String,
        #[arg(long, default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        acting: Acting,
    },
}

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token; it is shown once
    Create {
        /// The security context it is bound to
        #[arg(long)]
        context: String,
        #[arg(long, default_value = "user", value_parser = |text: &str| text.parse::<Tier>())]
        tier: Tier,
        /// How long it is good for, e.g. 8h or 30d
        #[arg(long, default_value = "30d", value_parser = duration)]
        ttl: Duration,
        #[arg(long)]
        tenant: Option<String>,
        /// The user it stands for; rate limits count per user
        #[arg(long)]
        user: Option<String>,
        /// A word on what it is for
        #[arg(long)]
        note: Option<String>,
    },
    /// The tokens there are, without their secrets
    List {
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Take a token back
    Revoke { id: String },
}

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// The latest records, newest last
    Tail {
        /// Go on printing as records come
        #[arg(long, short)]
        follow: bool,
        #[arg(long, short = 'n', default_value_t = 20)]
        limit: usize,
        /// Only this user's calls
        #[arg(long)]
        caller: Option<String>,
        #[arg(long)]
        tool: Option<String>,
        #[arg(long)]
        verdict: Option<Verdict>,
        /// Only what is younger than this, e.g. 2h, or after a time such as 2026-01-31T12:00:00Z
        #[arg(long)]
        since: Option<String>,
    },
    /// Check chain, heads and signatures
    Verify {
        /// An exported file instead of the node's own log
        #[arg(long)]
        file: Option<PathBuf>,
        /// The public key [default: DATA/audit.pub]
        #[arg(long)]
        key: Option<PathBuf>,
        /// A head saved earlier (from `audit head`): the log must still contain it
        #[arg(long)]
        head: Option<PathBuf>,
    },
    /// Write the whole log as JSON lines
    Export {
        /// `-` for standard output
        file: PathBuf,
    },
    /// The newest signed head; keep it elsewhere to prove later that nothing was rewritten
    Head,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verdict {
    Done,
    Failed,
    Refused,
    Unknown,
}

#[derive(Debug, Args)]
pub struct Explain {
    /// A violation or failure, as it stands in an error
    pub name: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// The configuration in force, defaults included, secrets masked
    Show,
    /// The JSON Schema of the configuration
    Schema,
    /// Check a file without using it
    Validate {
        /// The file [default: the one `aegis up` would read]
        file: Option<PathBuf>,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    Span::parse(text).map(|span| span.0)
}
