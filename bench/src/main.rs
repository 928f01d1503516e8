//! The benchmark runner. Every figure is a ratio against a yardstick that is measured in the same run, in turns, so that
//! a slow or busy machine slows both. What the rows mean is in docs/performance.md.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a runner talks to people")]

mod bare_seal;
mod cases;
mod echo;
mod filesystem_server;
mod interrupt;
mod load;
mod machine;
mod node;
mod page;
mod peers;
mod process;
mod records;
mod ripgrep;
mod rounds;
mod seal_gate;
mod stdio_echo;
mod table;
mod tokens;
mod tree;
mod wire;
mod words;
mod workplace;

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use clap::{Parser, Subcommand};

use crate::{cases::Case, workplace::Workplace};

#[derive(Debug, Parser)]
#[command(
    name = "aegis-bench",
    about = "Measures aegis against yardsticks, as ratios within one run",
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  cargo run --release -p aegis-bench\n  \
                  cargo run --release -p aegis-bench -- mcp-read start\n  \
                  cargo run --release -p aegis-bench -- all --write docs/performance.md\n\n\
                  Data goes to $TMPDIR and is removed at the end; about 3 GB are needed."
)]
struct Cli {
    #[command(subcommand)]
    role: Option<Role>,
    /// What to measure
    #[arg(value_enum, default_value = "all", value_name = "CASE")]
    cases: Vec<Case>,
    /// Smaller data and shorter rounds: shows that the runner works; the figures mean little
    #[arg(long)]
    quick: bool,
    /// Put the table of a full run between the markers of this page
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Be a yardstick: the runner starts itself like this
    #[command(hide = true, subcommand)]
    Yardstick(Yardstick),
}

#[derive(Debug, Subcommand)]
enum Yardstick {
    /// A bare MCP server whose one tool answers with a fixed text
    Echo,
    /// An MCP server on standard input and output whose one tool gives its text back
    StdioEcho,
    /// A handler that verifies signatures by this key and answers with the text of a file
    Seal { key: String, answer: PathBuf },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match &cli.role {
        Some(Role::Yardstick(Yardstick::Echo)) => echo::serve().map(|()| true),
        Some(Role::Yardstick(Yardstick::StdioEcho)) => stdio_echo::serve().map(|()| true),
        Some(Role::Yardstick(Yardstick::Seal { key, answer })) => {
            bare_seal::serve(key, answer).map(|()| true)
        }
        None => measure(&cli),
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether every goal was met.
fn measure(cli: &Cli) -> anyhow::Result<bool> {
    if cfg!(debug_assertions) {
        bail!("figures of a debug build mean nothing: use `cargo run --release -p aegis-bench`");
    }
    let cases = Case::chosen(&cli.cases);
    if cli.write.is_some() && (cli.quick || cases.len() < Case::EACH.len()) {
        bail!(
            "the page holds the table of one full run: leave --quick and the names of cases out with --write"
        );
    }
    if let Some(page) = &cli.write {
        page::check(page)?;
    }
    interrupt::listen()?;
    let place = Workplace::new(cli.quick)?;
    let facts = machine::facts(place.path());
    println!("{facts}");
    let mut rows = Vec::new();
    for case in cases {
        interrupt::check()?;
        eprintln!("measuring {} …", case.name());
        let measured = case.measure(&place)?;
        measured.iter().for_each(|row| println!("{}", row.line()));
        rows.extend(measured);
    }
    println!("\n{}", table::text(&rows));
    if let Some(page) = &cli.write {
        page::write(page, &facts, &rows)?;
        eprintln!("wrote {}", page.display());
    }
    Ok(rows.iter().all(|row| row.met() != Some(false)))
}
