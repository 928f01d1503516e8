//! Child processes, and what the kernel knows of them.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// Clock ticks per second in /proc; Linux has had this value on every architecture for decades.
const TICKS: f64 = 100.0;

/// A server in a process of its own. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// From the start of the process to its first line.
    pub(crate) started_in: Duration,
    /// What it said on that line.
    pub(crate) greeting: String,
    /// Open for as long as the server runs: it may write more.
    _output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts a server and waits for the first line on its standard output.
    pub(crate) fn start(command: &mut Command, log: &Path) -> anyhow::Result<Self> {
        let errors = File::create(log).with_context(|| format!("can't write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let begun = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("can't start {}", command.get_program().display()))?;
        let mut output = BufReader::new(child.stdout.take().context("no standard output")?);
        let mut greeting = String::new();
        output.read_line(&mut greeting)?;
        let started_in = begun.elapsed();
        if greeting.is_empty() {
            child.wait()?;
            let said = fs::read_to_string(log).unwrap_or_default();
            bail!("{} did not start: {said}", command.get_program().display());
        }
        Ok(Self { child, started_in, greeting, _output: output })
    }

    /// Processor time used so far, of all its threads.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds(self.child.id())
    }

    pub(crate) fn resident_mebibytes(&self) -> anyhow::Result<f64> {
        resident_mebibytes(self.child.id())
    }

    /// Asks it to stop, as a service manager would, and waits.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn resident_mebibytes(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes / 1024.0)
}

fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name, which may hold anything.
    let (_, fields) = stat.rsplit_once(')').context("no fields")?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || -> anyhow::Result<f64> { Ok(fields.next().context("too few fields")?.parse()?) };
    Ok((ticks()? + ticks()?) / TICKS)
}

/// Runs a command to its end; its standard output.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let name = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("can't run {name}"))?;
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
