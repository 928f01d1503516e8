//! `aegis policy`.

use std::path::PathBuf;

use aegis_core::{Tier, Timestamp};
use clap::Subcommand;

use super::past;

#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Read policies, check them against the catalog and run their examples
    #[command(
        after_help = "Needs no running node. Tools of MCP servers are those whose definitions were accepted; rules about \
                            others of a server wait for them. Exit code 1 when anything is wrong.\n\nExamples:\n  \
                            aegis policy check policies/\n  aegis policy check no-deletes.cedar"
    )]
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
    #[command(after_help = "Example:\n  aegis policy list")]
    List {
        /// The most rows to show
        #[arg(long, value_name = "N", default_value_t = 200)]
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
        #[arg(long, value_name = "D", value_parser = past)]
        since: Option<Timestamp>,
    },
}
