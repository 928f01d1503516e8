//! `aegis approvals`.

use std::time::Duration;

use aegis_core::{ApprovalState, Timestamp};
use clap::{Args, Subcommand};

use super::{Acting, duration, future};

#[derive(Debug, Subcommand)]
pub enum Approvals {
    /// The requests that wait, newest first
    #[command(after_help = "Examples:\n  aegis approvals list\n  aegis approvals list --all --limit 20\n  \
                            aegis approvals list --state rejected")]
    List {
        /// Only those in this state
        #[arg(long, default_value = "pending", value_parser = |text: &str| text.parse::<ApprovalState>())]
        state: Option<ApprovalState>,
        /// Those that have ended, too
        #[arg(long)]
        all: bool,
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        /// Go on after this request, the last of the page before
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        #[command(flatten)]
        acting: Acting,
    },
    /// Everything that bears on a decision
    #[command(after_help = "Example:\n  aegis approvals show approval:0190…")]
    Show {
        /// The request's id, as `aegis approvals list` shows it
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Agree: exactly this call runs, once, at once
    #[command(after_help = "Example:\n  aegis approvals approve approval:0190…")]
    Approve {
        /// The request's id, as `aegis approvals list` shows it
        id: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Refuse; whoever asked receives the reason
    #[command(
        after_help = "Example:\n  aegis approvals reject approval:0190… --reason \"write to /workspace/drafts instead\""
    )]
    Reject {
        /// The request's id, as `aegis approvals list` shows it
        id: String,
        /// What the agent should do instead
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        acting: Acting,
    },
    /// Take a request of your own back
    #[command(after_help = "Example:\n  aegis approvals cancel approval:0190…")]
    Cancel {
        /// The request's id, as `aegis approvals list` shows it
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
        /// The request's id, as `aegis approvals list` shows it
        id: String,
        /// How long, e.g. 90s or 5m [default: until it ends]
        #[arg(long, value_name = "D", value_parser = duration)]
        timeout: Option<Duration>,
        #[command(flatten)]
        acting: Acting,
    },
    /// Agree for a while: such calls run without asking
    #[command(
        after_help = "With a request, exactly its tool, arguments and caller are meant, and it is approved as well; without one, say \
                            which arguments with --arguments or --any-arguments. A pattern names arguments: a value means itself, or \
                            {\"equals\": …}, {\"prefix\": \"text\"}, {\"glob\": \"text\"}; those that are not named may be \
                            anything.\n\nExamples:\n  aegis approvals always approval:0190… --until 8h\n  \
                            aegis approvals always --tool fs.write --user ann --arguments '{\"path\": {\"glob\": \"/workspace/docs/**\"}}' --until 30d"
    )]
    Always(Always),
    /// What has been agreed to for a while
    #[command(after_help = "Examples:\n  aegis approvals standing\n  aegis approvals standing --all")]
    Standing {
        /// Those that are over or revoked, too
        #[arg(long)]
        all: bool,
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        acting: Acting,
    },
    /// Take a standing approval back: such calls ask again
    #[command(after_help = "Example:\n  aegis approvals revoke standing:0190…")]
    Revoke {
        /// The standing approval's id, as `aegis approvals standing` shows it
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
    /// Which arguments, as a JSON object [default: exactly the request's]
    #[arg(long, value_name = "PATTERN", conflicts_with = "any_arguments")]
    pub arguments: Option<String>,
    /// Every call of the tool, whatever its arguments are
    #[arg(long)]
    pub any_arguments: bool,
    /// Whose calls
    #[arg(long)]
    pub user: Option<String>,
    /// The tenant of that user [default: the request's; without one, yours]
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
