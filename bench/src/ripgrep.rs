//! `rg`, the yardstick of searches.

use std::{
    io::Read,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, bail};

use crate::tree;

/// What to ask of it, with nothing left out, as the node searches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Search {
    Lines,
    Names,
}

/// How long it took, in seconds from start to end of its output, and how many lines it found.
pub(crate) fn run(search: Search, root: &Path) -> anyhow::Result<(f64, usize)> {
    let mut command = Command::new("rg");
    command.current_dir(root).env_remove("RIPGREP_CONFIG_PATH").args(["--no-ignore", "--hidden"]);
    match search {
        Search::Lines => command.args(["-n", "--no-heading", "-e", tree::RARE_PATTERN, "."]),
        Search::Names => command.args(["--files", "-g", tree::GLOB, "."]),
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let begun = Instant::now();
    let mut child = command.spawn().context("can't run rg: install ripgrep")?;
    let mut found = Vec::with_capacity(1 << 20);
    child.stdout.take().context("no standard output")?.read_to_end(&mut found)?;
    let status = child.wait()?;
    let seconds = begun.elapsed().as_secs_f64();
    if !status.success() {
        bail!("rg ended with {status}");
    }
    Ok((seconds, memchr::memchr_iter(b'\n', &found).count()))
}
