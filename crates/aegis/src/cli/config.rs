//! `aegis config`.

use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Config {
    /// The configuration in force, defaults included, secrets masked
    #[command(
        after_help = "Of a running node, it is what the node goes by; what its file says otherwise is listed on top, for \
                            it waits for a restart.\n\nExamples:\n  aegis config show\n  aegis config show --json"
    )]
    Show,
    /// The JSON Schema of the configuration
    #[command(after_help = "Example:\n  aegis config schema > schema.json   # for editors")]
    Schema,
    /// Check a file without using it: its words, and the directories that it names
    #[command(after_help = "Exit code 1 when anything is wrong.\n\nExamples:\n  aegis config validate\n  \
                            aegis config validate aegis.yaml\n  \
                            aegis config validate aegis.yaml --elsewhere   # its directories are on another machine")]
    Validate {
        /// The file [default: the one `aegis up` would read]
        file: Option<PathBuf>,
        /// The file is for another machine: don't look for its directories here
        #[arg(long)]
        elsewhere: bool,
    },
}
