//! The command line. Texts here are the manual: each command has examples.

mod seal;
mod upstream;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use aegis_core::{ApprovalState, Tier, Timestamp, quantity::Span};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub use seal::Seal;
pub use upstream::{Add, Import, Secret, Upstream, Value};

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
    /// Hand volumes to agents elsewhere, over NFS
    #[command(
        subcommand,
        after_help = "Examples:\n  aegis volume export --context workspace --ttl 8h\n  aegis volume list\n  \
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
pub enum Volume {
    /// Export a volume for a while, and say how to mount it
    Export {
        /// The security context that decides what may be done there
        #[arg(long)]
        context: String,
        /// The volume; the tenant's workspace when left out
        #[arg(long)]
        volume: Option<String>,
        #[arg(long)]
        tenant: Option<String>,
        /// The user it stands for; rate limits count per user
        #[arg(long)]
        user: Option<String>,
        /// How long it lasts, e.g. 8h or 30d
        #[arg(long, default_value = "1h", value_parser = duration)]
        ttl: Duration,
    },
    /// The exports there are, without their mount paths
    List {
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// End an export: what was mounted is of no use from then on
    Unexport { id: String },
}

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Read policies, check them against the catalog and run their examples
    #[command(after_help = "Needs no running node. Exit code 1 when anything is wrong.\n\nExamples:\n  \
                            aegis policy check policies/\n  aegis policy check no-deletes.cedar")]
    Check {
        /// A `*.cedar` file, or a directory of them [default: the node's own]
        path: Option<PathBuf>,
    },
    /// Print the Cedar schema that policies are checked against
    #[command(after_help = "Example:\n  aegis policy schema > aegis.cedarschema   # for editors")]
    Schema,
    /// Run the examples of the policies in force, and cases from files
    #[command(
        after_help = "Cases are YAML: contexts, policies, calls and what must come of each (see corpus/policy).\n\n\
                            Examples:\n  aegis policy test\n  aegis policy test corpus/policy"
    )]
    Test {
        /// Files of cases, or directories of them
        paths: Vec<PathBuf>,
        /// Show the ones that hold, too
        #[arg(long)]
        all: bool,
    },
    /// The rules in force
    List {
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
    /// What would come of a call, and by which rule; the call is not made
    #[command(
        after_help = "Exit code 0 when it would run, 3 when it would be refused, 4 when a person would be asked.\n\n\
                            Examples:\n  aegis policy explain fs.write '{\"path\": \"a\", \"content\": \"\"}' --context workspace\n  \
                            aegis policy explain web.fetch '{\"url\": \"https://example.org/\"}' --context workspace --having EXTERNAL_UNTRUSTED"
    )]
    Explain {
        /// The tool's name
        tool: String,
        /// Its arguments as a JSON object; `-` reads them from standard input
        #[arg(default_value = "{}", value_name = "JSON")]
        arguments: String,
        /// The caller's security context [default: the operator's]
        #[arg(long, value_name = "NAME")]
        context: Option<String>,
        /// The caller's tier [default: user; operator without --context]
        #[arg(long, value_parser = |text: &str| text.parse::<Tier>())]
        tier: Option<Tier>,
        /// The caller's tenant [default: the operator's]
        #[arg(long)]
        tenant: Option<String>,
        /// The caller [default: the operator]
        #[arg(long)]
        user: Option<String>,
        /// What the caller's session has read, e.g. EXTERNAL_UNTRUSTED, or EXTERNAL_UNTRUSTED:remote-http
        #[arg(long, value_name = "LABEL", value_delimiter = ',')]
        having: Vec<String>,
    },
    /// Decide recorded calls again under other rules; nothing is called
    #[command(
        after_help = "Reads the audit log only. Exit code 0 when every call would go as it did, 1 when not.\n\
                            A rule that needs an argument which the record does not hold in full is counted as undecidable.\n\n\
                            Examples:\n  aegis policy replay --policies stricter/ --since 7d\n  \
                            aegis policy replay --config new.yaml --json   # other contexts, the same policies"
    )]
    Replay {
        /// A directory of policies [default: the node's own]
        #[arg(long, value_name = "DIR")]
        policies: Option<PathBuf>,
        /// Only what is younger than this, e.g. 7d, or after a time such as 2026-01-31T12:00:00Z
        #[arg(long)]
        since: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Context {
    /// The contexts in force and where each comes from
    List {
        #[arg(long, default_value_t = 200)]
        limit: usize,
    },
    /// One context as YAML
    #[command(after_help = "Examples:\n  aegis context show workspace\n  \
                            aegis context show workspace --version workspace@3f9c1a2b77d0")]
    Show {
        name: String,
        /// An earlier version; `aegis context diff NAME` names them
        #[arg(long, value_name = "V")]
        version: Option<String>,
    },
    /// What changed between two versions
    #[command(
        after_help = "Without versions: what is in force against the one before it. With one: that one against what is in \
                            force.\n\nExamples:\n  aegis context diff workspace\n  \
                            aegis context diff workspace workspace@3f9c1a2b77d0"
    )]
    Diff { name: String, from: Option<String>, to: Option<String> },
    /// Put the contexts of a file in force, at once
    #[command(
        after_help = "The file holds one context as it stands under spec.security_contexts, or a list of them. A context \
                            that the configuration file defines is changed there.\n\nExamples:\n  \
                            aegis context apply editors.yaml\n  aegis context apply editors.yaml --drop"
    )]
    Apply {
        /// `-` reads it from standard input
        file: PathBuf,
        /// Sessions that were opened under an older version must attest again
        #[arg(long)]
        drop: bool,
    },
    /// Take an applied context out of force
    Delete { name: String },
    /// Make sessions that were opened under an older version attest again
    DropSessions { name: String },
}

#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// The requests that wait, newest first
    List {
        /// Only those in this state
        #[arg(long, default_value = "pending", value_parser = |text: &str| text.parse::<ApprovalState>())]
        state: Option<ApprovalState>,
        /// Those that have ended, too
        #[arg(long)]
        all: bool,
        #[arg(long, default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        acting: Acting,
    },
    /// Everything that bears on a decision
    Show {
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Agree: exactly this call runs, once, at once
    Approve {
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Refuse; whoever asked receives the reason
    #[command(
        after_help = "Example:\n  aegis approvals reject approval:0190… --reason \"write to /workspace/drafts instead\""
    )]
    Reject {
        id: String,
        /// What the agent should do instead
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Take a request of your own back
    Cancel {
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Wait for a decision and show what came of it
    #[command(
        after_help = "Exit code 0 when the call ran, 1 when it failed, 3 when it was rejected, expired or taken back, 4 when \
                            it still waits.\n\nExample:\n  aegis approvals wait approval:0190… --timeout 5m"
    )]
    Wait {
        id: String,
        /// How long, e.g. 90s or 5m [default: until it ends]
        #[arg(long, value_name = "D", value_parser = duration)]
        timeout: Option<Duration>,
        #[command(flatten)]
        acting: Acting,
    },
    /// Agree for a while: such calls run without asking
    #[command(
        after_help = "With a request, its tool, arguments and caller are meant, and it is approved as well. A pattern names arguments: \
                            a value means itself, or {\"equals\": …}, {\"prefix\": \"text\"}, {\"glob\": \"text\"}; those that are not named may be \
                            anything.\n\nExamples:\n  aegis approvals always approval:0190… --until 8h\n  \
                            aegis approvals always --tool fs.write --user ann --arguments '{\"path\": {\"glob\": \"/workspace/docs/**\"}}' --until 30d"
    )]
    Always(Always),
    /// What has been agreed to for a while
    Standing {
        #[arg(long, default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        acting: Acting,
    },
    /// Take a standing approval back: such calls ask again
    Revoke {
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
}

#[derive(Debug, Args)]
pub struct Always {
    /// The request whose call is meant
    pub id: Option<String>,
    /// The tool, where no request is named
    #[arg(long)]
    pub tool: Option<String>,
    /// Which arguments, as a JSON object [default: exactly the request's; without one, any]
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// Whose calls
    #[arg(long)]
    pub user: Option<String>,
    #[arg(long)]
    pub tenant: Option<String>,
    /// How long, e.g. 8h or 30d, or until a time such as 2026-01-31T12:00:00Z
    #[arg(long, default_value = "8h", value_name = "D", value_parser = future)]
    pub until: Timestamp,
    /// Also when it is asked because of what the session has read
    #[arg(long)]
    pub covers_labels: bool,
    /// A word on why
    #[arg(long)]
    pub note: Option<String>,
    #[command(flatten)]
    pub acting: Acting,
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

/// A time, or how long from now.
fn future(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text)
        .or_else(|| Span::parse(text).ok().map(|span| Timestamp::now().plus(span.0)))
        .ok_or_else(|| {
            format!("`{text}` is neither a length such as 8h nor a time such as 2026-01-31T12:00:00Z")
        })
}

fn duration(text: &str) -> Result<Duration, String> {
    Span::parse(text).map(|span| span.0)
}
