//! `aegis context`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Context {
    /// The contexts in force and where each comes from
    #[command(after_help = "Example:\n  aegis context list")]
    List {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 200)]
        limit: usize,
    },
    /// One context as YAML
    #[command(after_help = "Examples:\n  aegis context show workspace\n  \
                            aegis context show workspace --version workspace@3f9c1a2b77d0")]
    Show {
        /// The context's name, as `aegis context list` shows it
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
    Diff {
        /// The context's name, as `aegis context list` shows it
        name: String,
        /// The older version [default: the one before]
        from: Option<String>,
        /// The newer version [default: the one in force]
        to: Option<String>,
    },
    /// Put the contexts of a file in force, at once
    #[command(
        after_help = "The file holds one context as it stands under spec.security_contexts, or a list of them. A context \
                            that the configuration file defines is changed there.\n\nExamples:\n  \
                            aegis context apply editors.yaml\n  aegis context apply editors.yaml --drop"
    )]
    Apply {
        /// One context in YAML, or a list of them; `-` reads it from standard input
        file: PathBuf,
        /// Sessions that were opened under an older version must attest again
        #[arg(long)]
        drop: bool,
    },
    /// Take an applied context out of force
    #[command(
        after_help = "Example:\n  aegis context delete editors   # one that `aegis context apply` made"
    )]
    Delete {
        /// The context's name, as `aegis context list` shows it
        name: String,
    },
    /// Make sessions that were opened under an older version attest again
    #[command(after_help = "Example:\n  aegis context drop-sessions editors")]
    DropSessions {
        /// The context's name, as `aegis context list` shows it
        name: String,
    },
}
