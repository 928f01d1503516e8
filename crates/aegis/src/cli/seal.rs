//! `aegis seal`.

use std::time::Duration;

use aegis_core::Tier;
use clap::Subcommand;

use super::lasting;

#[derive(Debug, Subcommand)]
pub enum Seal {
    /// Let a workload attest; prints the id that it shows, once
    #[command(
        after_help = "The workload sends the id as `workload_id`, with a key of its own, to /v1/seal/attest.\n\n\
                            Examples:\n  aegis seal enroll --context workspace\n  \
                            aegis seal enroll --context workspace --context read-only --ttl 1h --uses 1\n  \
                            AEGIS_WORKLOAD=$(aegis seal enroll --context workspace) aegis call --seal --context workspace fs.list '{\"path\": \"/workspace\"}'"
    )]
    Enroll {
        /// A security context that its sessions may have; repeat it for several
        #[arg(long = "context", required = true, value_name = "NAME")]
        contexts: Vec<String>,
        /// user, system or operator
        #[arg(long, default_value = "user", value_parser = |text: &str| text.parse::<Tier>())]
        tier: Tier,
        /// The tenant it belongs to [default: the operator's]
        #[arg(long)]
        tenant: Option<String>,
        /// The user it stands for; rate limits count per user
        #[arg(long)]
        user: Option<String>,
        /// How long it may attest, e.g. 8h or 30d
        #[arg(long, value_name = "D", default_value = "30d", value_parser = lasting)]
        ttl: Duration,
        /// How many sessions it may open [default: any number]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        uses: Option<u32>,
        /// The only Ed25519 public key that may attest, in base64 [default: any key]
        #[arg(long, value_name = "PUB")]
        key: Option<String>,
        /// A word on what it is for
        #[arg(long)]
        note: Option<String>,
    },
    /// The enrolled workloads, without their ids
    #[command(after_help = "Example:\n  aegis seal enrolments")]
    Enrolments {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
    /// Take an enrolment back, and end its sessions
    #[command(after_help = "Example:\n  aegis seal revoke enr_0123456789abcdef")]
    Revoke {
        /// The enrolment's id, as `aegis seal enrolments` shows it
        id: String,
    },
    /// The sessions there are, newest first
    #[command(
        after_help = "Examples:\n  aegis seal sessions\n  aegis seal sessions --tenant acme --limit 20"
    )]
    Sessions {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Only this tenant's
        #[arg(long)]
        tenant: Option<String>,
    },
    /// End a session
    #[command(after_help = "Example:\n  aegis seal end 0199… --reason \"the agent was replaced\"")]
    End {
        /// The session's id, as `aegis seal sessions` shows it
        id: String,
        /// Why; it goes into the audit log
        #[arg(long)]
        reason: Option<String>,
    },
    /// Sign tokens with a new key; those that are out stay good until they expire
    #[command(after_help = "Example:\n  aegis seal rotate-keys")]
    RotateKeys,
}
