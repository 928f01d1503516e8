//! `aegis token`.

use std::time::Duration;

use aegis_core::Tier;
use clap::Subcommand;

use super::lasting;

#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token; it is shown once
    #[command(after_help = "Examples:\n  aegis token create --context workspace --ttl 8h\n  \
                            aegis token create --context read-only --user ann --note \"ann's editor\"")]
    Create {
        /// The security context it is bound to
        #[arg(long, value_name = "NAME")]
        context: String,
        /// user, system or operator: which class of tools it can reach at all
        #[arg(long, default_value = "user", value_parser = |text: &str| text.parse::<Tier>())]
        tier: Tier,
        /// How long it is good for, e.g. 8h or 30d
        #[arg(long, value_name = "D", default_value = "30d", value_parser = lasting)]
        ttl: Duration,
        /// The tenant it belongs to [default: the operator's]
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
    #[command(after_help = "Example:\n  aegis token list --limit 20")]
    List {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Take a token back
    #[command(after_help = "Example:\n  aegis token revoke tok_0123456789abcdef")]
    Revoke {
        /// The token's id, as `aegis token list` shows it
        id: String,
    },
}
