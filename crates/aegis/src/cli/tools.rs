//! `aegis tools`.

use clap::Subcommand;

use super::Acting;

#[derive(Debug, Subcommand)]
pub enum Tools {
    /// The tools you may call
    #[command(after_help = "Examples:\n  aegis tools list\n  \
                            aegis tools list --context read-only   # what an agent of this context sees")]
    List {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 200)]
        limit: usize,
        #[command(flatten)]
        acting: Acting,
    },
    /// Everything about one tool
    #[command(
        after_help = "Examples:\n  aegis tools show fs.edit\n  aegis tools show fs.edit --json   # with both schemas"
    )]
    Show {
        /// The tool's name, as `aegis tools list` shows it
        name: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Tools by a word in their name or description
    #[command(after_help = "Example:\n  aegis tools search glob")]
    Search {
        /// What to look for
        query: String,
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        acting: Acting,
    },
}
