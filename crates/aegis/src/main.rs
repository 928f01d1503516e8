//! `aegis`: safe tool use for AI agents, in one binary.
#![allow(clippy::print_stderr, reason = "the command line talks to people")]

use std::process::ExitCode;

use aegis::{
    cli::Cli,
    commands,
    ending::{Ending, Mistake},
    output,
};
use clap::Parser;

/// Calls are made of small texts that one thread makes and another drops, which is what it is quick at.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // This binary is also the stage on which sandboxes stand: then it is nothing else, and has no threads yet.
    if aegis_sandbox::is_stage() {
        aegis_sandbox::stage_main();
    }
    // What a shell or a service manager left open is not for MCP servers and container engines.
    let kept_back = aegis_sandbox::pass_nothing_on();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misread(&error).into(),
    };
    if let Err(error) = kept_back
        && cli.command.starts_programs()
    {
        eprintln!("error: descriptors can't be kept from programs: {error}");
        return ExitCode::FAILURE;
    }
    let as_json = cli.global.json;
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
        Err(error) => output::failure(&error, as_json).into(),
    }
}

/// Help, or what is wrong with the words. Who asked for JSON gets it for a mistake, too.
fn misread(error: &clap::Error) -> Ending {
    let asked_for_json =
        std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json");
    if error.use_stderr() && asked_for_json {
        let text = error.to_string();
        let message = text.split("\n\nUsage:").next().unwrap_or_default();
        let message = message.split("\n\nFor more").next().unwrap_or_default();
        return output::failure(&Mistake::misread(message).into(), true);
    }
    // It fails only when nobody reads any more.
    let _ = error.print();
    if error.use_stderr() { Ending::Usage } else { Ending::Done }
}
