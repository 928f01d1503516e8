//! One command, one file.

mod approvals;
mod audit;
mod call;
mod completions;
mod config;
mod context;
mod doctor;
mod explain;
mod mcp;
mod policy;
mod seal;
mod secret;
mod token;
mod tools;
mod up;
mod upstream;
mod volume;

use std::io::IsTerminal;

use crate::{
    cli::{Cli, Command},
    output::Ending,
};

pub async fn run(cli: Cli) -> anyhow::Result<Ending> {
    let Cli { global, command } = cli;
    match command {
        Command::Up(up) => up::run(&global, &up).await,
        Command::Call(call) => call::run(&global, &call).await,
        Command::Mcp(mcp) => mcp::run(&global, &mcp).await,
        Command::Tools(tools) => tools::run(&global, &tools).await,
        Command::Token(token) => token::run(&global, &token).await,
        Command::Seal(seal) => seal::run(&global, &seal).await,
        Command::Approvals(approvals) => approvals::run(&global, &approvals).await,
        Command::Policy(policy) => policy::run(&global, &policy).await,
        Command::Upstream(upstream) => upstream::run(&global, &upstream).await,
        Command::Secret(secret) => secret::run(&global, &secret).await,
        Command::Context(context) => context::run(&global, &context).await,
        Command::Volume(volume) => volume::run(&global, &volume).await,
        Command::Audit(audit) => audit::run(&global, &audit).await,
        Command::Explain(explain) => explain::run(&global, &explain),
        Command::Doctor => doctor::run(&global).await,
        Command::Config(config) => config::run(&global, &config).await,
        Command::Completions { shell } => Ok(completions::run(shell)),
    }
}

/// Logs go to standard error, so that answers can be piped. `AEGIS_LOG=debug` shows more.
fn log(default: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("AEGIS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    // A log that goes into a file is read by programs that make nothing of colours.
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colours)
        .with_writer(std::io::stderr)
        .try_init();
}
