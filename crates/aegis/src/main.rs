//! `aegis`: safe tool use for AI agents, in one binary.
#![allow(clippy::print_stderr, reason = "the command line talks to people")]

use std::process::ExitCode;

use aegis::{cli::Cli, commands, output::Ending};
use clap::Parser;

fn main() -> ExitCode {
    // This binary is also the stage on which sandboxes stand: then it is nothing else, and has no threads yet.
    if aegis_sandbox::is_stage() {
        aegis_sandbox::stage_main();
    }
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
