//! `aegis audit`.

use std::path::PathBuf;

use aegis_core::{Timestamp, config::ToolPattern};
use clap::{Subcommand, ValueEnum};

use super::past;

#[derive(Debug, Subcommand)]
pub enum Audit {
    /// The latest records, newest last
    #[command(
        after_help = "Examples:\n  aegis audit tail --limit 5\n  aegis audit tail --follow --verdict refused\n  \
                            aegis audit tail --tool 'fs.*' --caller ann --since 2h --json"
    )]
    Tail {
        /// Go on printing as records come
        #[arg(long, short)]
        follow: bool,
        /// How many records to begin with
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        limit: usize,
        /// Only this user's calls
        #[arg(long, value_name = "USER")]
        caller: Option<String>,
        /// Only calls of this tool, or of those that a pattern such as `fs.*` names
        #[arg(long, value_name = "PATTERN", value_parser = ToolPattern::parse)]
        tool: Option<ToolPattern>,
        /// Only calls that ended like this: they ran, could not do their work, were refused, or the node died first
        #[arg(long)]
        verdict: Option<Verdict>,
        /// Only what is younger than this, e.g. 2h, or after a time such as 2026-01-31T12:00:00Z
        #[arg(long, value_name = "D", value_parser = past)]
        since: Option<Timestamp>,
    },
    /// Check chain, heads and signatures
    #[command(after_help = "Examples:\n  aegis audit verify\n  \
                            aegis audit verify --head head.json   # does the log still hold what it held then\n  \
                            aegis audit verify log.jsonl --key audit.pub   # anywhere, without a node")]
    Verify {
        /// An exported file instead of the node's own log
        #[arg(value_name = "FILE", conflicts_with = "file")]
        exported: Option<PathBuf>,
        /// The same, said with its name
        #[arg(long)]
        file: Option<PathBuf>,
        /// The public key [default: DATA/audit.pub]
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// A head saved earlier (from `audit head`): the log must still contain it
        #[arg(long, value_name = "FILE")]
        head: Option<PathBuf>,
    },
    /// Write the whole log as JSON lines
    #[command(
        after_help = "Examples:\n  aegis audit export log.jsonl\n  aegis audit export - | gzip > log.jsonl.gz"
    )]
    Export {
        /// Where to; an existing file is not replaced; `-` for standard output
        file: PathBuf,
    },
    /// The newest signed head; keep it elsewhere to prove later that nothing was rewritten
    #[command(after_help = "Example:\n  aegis audit head > head.json")]
    Head,
}

/// How a call ended. Words that people use for the same are taken too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verdict {
    #[value(aliases = ["ok", "allowed", "success", "succeeded"])]
    Done,
    #[value(aliases = ["error", "failure"])]
    Failed,
    #[value(aliases = ["denied", "deny", "rejected", "forbidden"])]
    Refused,
    Unknown,
}
