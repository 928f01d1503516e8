//! `aegis`: safe tool use for AI agents, in one binary.
#![allow(clippy::print_stderr, reason = "the command line talks to people")]

use std::process::ExitCode;

use aegis::{cli::Cli, commands, output::Ending};
use clap::Parser;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime did not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ending = runtime.block_on(commands::run(cli));
    // Blocking file work of a dropped call may still run; it must not hold the process.
    runtime.shutdown_background();
    match ending {
        Ok(ending) => ending.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            Ending::Failed.into()
        }
    }
}
