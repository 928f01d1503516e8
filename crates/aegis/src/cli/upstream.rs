//! `aegis upstream` and `aegis secret`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::lasting;

#[derive(Debug, Subcommand)]
pub enum Upstream {
    /// Take over the MCP servers of a desktop client
    #[command(
        after_help = "Reads the `mcpServers` of Claude Code, Claude Desktop, Cursor and others, the `servers` of VS Code, and the \
                            `[mcp_servers.NAME]` of Codex. What is there already stays, or is brought to what the file says. Secrets \
                            in it go to the secret store; what is kept of them is a reference. `${NAME}` that this shell has and that \
                            is no secret is taken as its value. Of any other, a variable or a header that is nothing else keeps the \
                            reference env:NAME, one that has more in it is asked for by `aegis secret set`, and a command, its \
                            arguments and directory, and an address keep it as it stands, with a note.\n\n\
                            Exit code 0 when every server of the file was taken over and none has failed to start; 1 when one is left \
                            out or broken; 2 when --only names none of the file. aegis itself is left out and does not count.\n\n\
                            Examples:\n  aegis upstream import ~/.cursor/mcp.json   # shows what it would do\n  \
                            aegis upstream import .mcp.json --write --grant desktop   # and lets the context `desktop` call their tools"
    )]
    Import(Import),
    /// Add a server and start it
    #[command(after_help = "A server of the configuration file is changed there.\n\nExamples:\n  \
                            aegis upstream add files -- npx -y @modelcontextprotocol/server-filesystem /srv/docs\n  \
                            aegis upstream add github --credential GITHUB_PERSONAL_ACCESS_TOKEN=secret:github/token -- npx -y @modelcontextprotocol/server-github\n  \
                            aegis upstream add search --url https://mcp.example.org/mcp --credential Authorization=secret:search/token\n  \
                            aegis upstream add notes --sandbox --mount /srv/notes --volume /workspace:rw --egress api.example.org -- python3 /srv/notes/server.py\n  \
                            aegis upstream add --file server.yaml")]
    Add(Box<Add>),
    /// The servers there are, and how each is doing
    #[command(after_help = "Example:\n  aegis upstream list")]
    List {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 200)]
        limit: usize,
    },
    /// Everything about one server
    #[command(after_help = "Example:\n  aegis upstream show github")]
    Show {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
    },
    /// Connect to a server for a look: does it start, what does it offer
    #[command(after_help = "Example:\n  aegis upstream test github")]
    Test {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
    },
    /// Sign in to a server in a browser; the node keeps the tokens and renews them
    #[command(
        after_help = "For servers that speak HTTP and ask for OAuth. The node finds out where one signs in, registers itself \
                            there where that is offered, and keeps the tokens in the secret store: whoever may call the server's \
                            tools acts as whoever signed in.\n\n\
                            With --json there are two lines, each an object: {\"event\": \"open\", \"url\": …} with the address to open, \
                            then {\"event\": \"signed_in\", …} with the server, or {\"error\": …}.\n\nExamples:\n  aegis upstream sign-in search\n  \
                            aegis upstream sign-in crm --client-id aegis --client-secret secret:crm/client --scope crm.read"
    )]
    SignIn(SignIn),
    /// End an added server and forget it
    #[command(
        after_help = "A sign-in goes with it, if no other server uses it. Other stored secrets stay, and are named.\n\n\
                            Example:\n  aegis upstream remove github"
    )]
    Remove {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
    },
    /// Switch an added server on and start it
    #[command(
        after_help = "Exit code 1 when it does not come up. A server of the configuration file is changed there.\n\n\
                            Example:\n  aegis upstream enable github"
    )]
    Enable {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
    },
    /// End an added server and keep it, to be switched on again
    #[command(
        after_help = "A server of the configuration file is changed there.\n\nExample:\n  aegis upstream disable github"
    )]
    Disable {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
    },
    /// Start a server anew, with its credentials read again
    #[command(after_help = "Example:\n  aegis upstream restart github")]
    Restart {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
    },
    /// What a server wrote to its standard error
    #[command(after_help = "Example:\n  aegis upstream logs github -n 20")]
    Logs {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
        /// How many lines, the newest
        #[arg(long, short = 'n', value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Definitions of tools that wait for a decision, against those that were accepted
    #[command(after_help = "Example:\n  aegis upstream diff github && aegis upstream accept github")]
    Diff {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
    },
    /// Accept definitions that wait
    #[command(after_help = "Examples:\n  aegis upstream diff github   # look first\n  \
                            aegis upstream accept github\n  aegis upstream accept github create_issue")]
    Accept {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
        /// The server's own names of tools [default: all that wait]
        tools: Vec<String>,
        /// Only a definition of this digest, as `diff` shows it
        #[arg(long, requires = "tools")]
        digest: Option<String>,
    },
    /// Reject definitions that wait; the same ones are not proposed again
    #[command(after_help = "Example:\n  aegis upstream reject github create_issue")]
    Reject {
        /// The server's name, as `aegis upstream list` shows it
        name: String,
        /// The server's own names of tools [default: all that wait]
        tools: Vec<String>,
        /// Only a definition of this digest, as `diff` shows it
        #[arg(long, requires = "tools")]
        digest: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct SignIn {
    /// The server's name, as `aegis upstream list` shows it
    pub name: String,
    /// A client that is registered there already [default: the one given last time, else one that the node registers]
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// Its secret, if it has one: env:NAME, file:/path or secret:name
    #[arg(long, value_name = "REF", requires = "client_id")]
    pub client_secret: Option<String>,
    /// What the tokens are to be good for; repeat it for several [default: as last time, else what the server asks for]
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// The port of this machine's loopback that the browser comes back to [default: any that is free]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub port: u16,
}

#[derive(Debug, Args)]
pub struct Import {
    /// The client's configuration file; `-` reads it from standard input
    pub file: PathBuf,
    /// Add the servers and store their secrets; without it nothing changes
    #[arg(long)]
    pub write: bool,
    /// Only this server; repeat it for several
    #[arg(long = "only", value_name = "NAME")]
    pub only: Vec<String>,
    /// Let users of this security context use the servers: their tools, resources and prompts. It is made when there
    /// is none
    #[arg(long, value_name = "CONTEXT")]
    pub grant: Option<String>,
}

#[derive(Debug, Args)]
pub struct Add {
    /// How people and rules call it
    #[arg(required_unless_present = "file")]
    pub name: Option<String>,
    /// A server as it stands under spec.mcp_servers, in YAML or JSON; `-` reads it from standard input
    #[arg(long, conflicts_with_all = ["name", "url", "command"])]
    pub file: Option<PathBuf>,
    /// The address of a server that speaks HTTP
    #[arg(long, conflicts_with = "command")]
    pub url: Option<String>,
    /// A variable that is no secret, as NAME=VALUE; repeat it for several
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub environment: Vec<String>,
    /// A variable or header whose value is a secret, as NAME=REFERENCE: env:NAME, file:/path or secret:name
    #[arg(long = "credential", value_name = "NAME=REF")]
    pub credentials: Vec<String>,
    /// Put before the names of its tools [default: its name]
    #[arg(long)]
    pub namespace: Option<String>,
    /// A tool that it serves, by the name that agents use: web.search, or web.*
    #[arg(long = "capability", value_name = "NAME")]
    pub capabilities: Vec<String>,
    /// New definitions of tools wait for an operator
    #[arg(long)]
    pub approve_definitions: bool,
    /// Run the program in a sandbox: it sees the system's programs and what --mount and --volume show, and reaches
    /// what --egress names
    #[arg(long, requires = "command")]
    pub sandbox: bool,
    /// A place of this machine that the sandbox shows, as `HOST[:INSIDE][:rw]`; repeat it for several
    #[arg(long = "mount", value_name = "HOST", requires = "sandbox")]
    pub mounts: Vec<String>,
    /// A volume that the sandbox shows, by the place where agents see it, as `VOLUME[:INSIDE][:rw]`
    #[arg(long = "volume", value_name = "VOLUME", requires = "sandbox")]
    pub volumes: Vec<String>,
    /// A domain that the sandbox reaches, through the node's proxy; repeat it for several
    #[arg(long, value_name = "DOMAIN", requires = "sandbox")]
    pub egress: Vec<String>,
    /// Run it in a container of this image instead; it must be there already
    #[arg(long, requires = "sandbox")]
    pub image: Option<String>,
    /// How much memory the sandbox has, in megabytes [default: 512]
    #[arg(long, value_name = "MB", requires = "sandbox")]
    pub memory_mb: Option<u32>,
    /// Let users of this security context use it: its tools, resources and prompts. It is made when there is none
    #[arg(long, value_name = "CONTEXT")]
    pub grant: Option<String>,
    /// A program without `--` before it; taken only to say so.
    #[arg(hide = true)]
    pub stray: Vec<String>,
    /// The program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub enum Secret {
    /// Store a secret; its value is read from the terminal, standard input or a file, and never shown
    #[command(
        after_help = "A value is no argument: everybody on this machine could read it there.\n\nExamples:\n  \
                            aegis secret set github/token   # asks for it\n  pass show github | aegis secret set github/token\n  \
                            aegis secret set tls/key --from-file key.pem --ttl 90d"
    )]
    Set(Value),
    /// The secrets there are, without their values
    #[command(after_help = "Example:\n  aegis secret list")]
    List {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Only this tenant's
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Give a secret another value; servers that hold it get it, the old one is gone
    #[command(after_help = "Example:\n  aegis secret rotate github/token")]
    Rotate(Value),
    /// Delete a secret
    #[command(after_help = "Example:\n  aegis secret delete github/token")]
    Delete {
        /// The secret's name, as `aegis secret list` shows it
        name: String,
        /// The tenant it belongs to [default: the operator's]
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Seal every secret with a new key
    #[command(after_help = "Example:\n  aegis secret renew-key")]
    RenewKey,
}

#[derive(Debug, Args)]
pub struct Value {
    /// Parts of letters, digits, `.`, `_` and `-`, joined by `/`
    pub name: String,
    /// Read the value from this file instead
    #[arg(long, value_name = "FILE")]
    pub from_file: Option<PathBuf>,
    /// How long it is good for, e.g. 90d [default: until it is changed]
    #[arg(long, value_parser = lasting)]
    pub ttl: Option<Duration>,
    /// The tenant it belongs to [default: the operator's]
    #[arg(long)]
    pub tenant: Option<String>,
}
