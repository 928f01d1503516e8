//! `aegis volume`.

use std::time::Duration;

use clap::Subcommand;

use super::lasting;

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// The volumes there are and where each is mounted, and the exports, without their mount paths
    #[command(after_help = "Examples:\n  aegis volume list\n  aegis volume list --tenant acme")]
    List {
        /// The tenant that sees them [default: the operator's]
        #[arg(long)]
        tenant: Option<String>,
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Export a volume for a while, and say how to mount it
    #[command(after_help = "The node speaks NFS when spec.storage.nfs.enabled says so.\n\nExamples:\n  \
                            aegis volume export --context workspace --ttl 8h\n  \
                            aegis volume export --context read-only --volume shared")]
    Export {
        /// The security context that decides what may be done there
        #[arg(long, value_name = "NAME")]
        context: String,
        /// The volume, as `aegis volume list` shows it [default: the tenant's workspace]
        #[arg(long, value_name = "ID")]
        volume: Option<String>,
        /// The tenant whose volume it is [default: the operator's]
        #[arg(long)]
        tenant: Option<String>,
        /// The user it stands for; rate limits count per user
        #[arg(long)]
        user: Option<String>,
        /// How long it lasts, e.g. 8h or 30d
        #[arg(long, value_name = "D", default_value = "1h", value_parser = lasting)]
        ttl: Duration,
    },
    /// End an export: what was mounted is of no use from then on
    #[command(after_help = "Example:\n  aegis volume unexport export:0123456789abcdef0123456789abcdef")]
    Unexport {
        /// The export's id, as `aegis volume list` shows it
        id: String,
    },
}
