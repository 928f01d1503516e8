//! Commands in sandboxes.
//!
//! A permit, the caller's volumes and the operator's limits make a `Launch`; the sandbox keeps what runs in it from
//! everything else. What it puts out is told as it comes and kept up to a limit; where it goes is up to the proxy. The
//! kernel confines, never a comparison of strings: what is decided here is only what to hand over.

mod closed;
pub(crate) mod disk;
pub(crate) mod environment;
mod handles;
pub(crate) mod launch;
mod live;
mod output;
pub(crate) mod proxy;
mod runtimes;
mod sandbox;
mod watch;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use aegis_core::{
    Caller, Event, Failure, FailureKind, Violation, ViolationKind, VolumePath, command::CommandLine,
    config::ExecConfig, event::EventName, redact,
};
use aegis_sandbox::{Exit, SandboxError, Signal};
use tokio::time::Instant;

pub use handles::OwnProcess;
pub use launch::SandboxMode;
pub use output::Output;
pub use runtimes::{Language, Runtimes};
pub use sandbox::Sandbox;

use crate::{egress::Egress, files::Files, tool::Run};
use handles::Handles;
use launch::{Composed, Writable};
use sandbox::Chosen;
use watch::Watched;

/// Runs commands for callers.
#[derive(Debug)]
pub struct Exec {
    config: ExecConfig,
    files: Arc<Files>,
    egress: Egress,
    sandbox: Sandbox,
    handles: Arc<Handles>,
    /// The operator's directories, as they are called and where they are. Looked up once, before anything runs that
    /// could put a link in the way.
    directories: Vec<(PathBuf, PathBuf)>,
}

/// A command as a tool wants it run.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub line: CommandLine,
    /// Variables that the call sets.
    pub environment: BTreeMap<String, String>,
    /// Where it starts; the workspace when left out.
    pub directory: Option<VolumePath>,
    /// How long it may run; the operator's default when left out.
    pub timeout: Option<Duration>,
    pub stdin: Option<Vec<u8>>,
}

impl Wanted {
    pub fn new(line: CommandLine) -> Self {
        Self { line, environment: BTreeMap::new(), directory: None, timeout: None, stdin: None }
    }
}

/// A command that has ended by itself, or at the end of its time.
#[derive(Debug)]
pub struct Finished {
    /// As the program returned it; 128 and the signal's number where one ended it, and -1 at the end of its time.
    pub exit_code: i32,
    pub timed_out: bool,
    pub output: Output,
    pub took: Duration,
    pub mode: SandboxMode,
    /// What a reader would not expect.
    pub notice: Option<String>,
}

impl Exec {
    pub fn new(config: ExecConfig, files: &Arc<Files>, egress: &Egress) -> Self {
        let directories = config.read_only_directories.iter().map(PathBuf::from);
        // One that is not there is told of when a command is to see it.
        let resolved = |place: PathBuf| (place.clone(), place.canonicalize().unwrap_or(place));
        Self {
            directories: directories.map(resolved).collect(),
            sandbox: Sandbox::new(&config),
            handles: Handles::new(&config),
            files: Arc::clone(files),
            egress: egress.clone(),
            config,
        }
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    pub fn egress(&self) -> &Egress {
        &self.egress
    }

    pub fn config(&self) -> &ExecConfig {
        &self.config
    }

    /// Runs a command to its end. Whatever it started is gone when this returns, or is dropped.
    pub async fn run(&self, run: &Run<'_>, wanted: Wanted) -> Result<Finished, Failure> {
        let refuse = |violation: Violation| run.refuse(violation);
        if !self.config.enabled {
            return Err(refuse(
                Violation::new(ViolationKind::SandboxUnavailable, "this node runs no commands")
                    .rule("spec.exec.enabled: false")
                    .hint("an operator can turn it on"),
            ));
        }
        let timeout = self.timeout(wanted.timeout).map_err(refuse)?;
        let mut place = self.handles.enter(run.permit.caller()).map_err(refuse)?;
        let choice = run.permit.limits().sandbox.clone().unwrap_or_default();
        let Chosen { backend, image } = self.sandbox.chosen(choice).await.map_err(refuse)?;
        let Composed { launch, mode, volumes } = self.compose(run, &wanted, timeout, image).await?;
        let line = &wanted.line;
        let started = || Event::new(EventName::CommandExecutionStarted).with("command", shown(&line.program));
        run.announce(
            started()
                .with("args", shown_arguments(line))
                .with("cwd", launch.cwd.to_string_lossy().into_owned())
                .with("timeout_secs", timeout.as_secs())
                .with("sandbox_mode", mode.as_str()),
        );
        let begun = Instant::now();
        let failed = |reason: &str| {
            run.announce(
                Event::new(EventName::CommandExecutionFailed)
                    .with("command", shown(&line.program))
                    .with("reason", reason),
            );
        };
        let mut running = match backend.launch(launch).await {
            Ok(running) => running,
            Err(error) => {
                failed("os_error");
                return Err(not_started(run, &error));
            }
        };
        let questions = place.started(running.id, run.permit.call());
        let limit = usize::try_from(self.config.max_output.0).unwrap_or(usize::MAX);
        let Watched { ended, output } =
            watch::Watch { run, egress: &self.egress, limit, timeout, volumes: &volumes }
                .until_the_end(&mut running, questions)
                .await;
        drop(running);
        drop(place);
        let took = begun.elapsed();
        settle(volumes).await;
        let (exit_code, timed_out, end) = match ended {
            watch::Ended::Exit(Exit::Code(code)) => (code, false, None),
            watch::Ended::Exit(Exit::Signal(signal)) => {
                (128 + signal, false, Some(format!("signal {signal} ended the command")))
            }
            watch::Ended::Exit(Exit::OutOfMemory) => {
                let limit = self.config.limits.memory;
                (
                    137,
                    false,
                    Some(format!(
                        "the command needed more than {limit} of memory, its limit, and was killed"
                    )),
                )
            }
            watch::Ended::Exit(Exit::TimedOut) if timeout >= self.config.max_timeout.0 => {
                failed("timeout");
                return Err(refuse(self.past_ceiling(format!(
                    "`{}` ran past the {} that any command may take, and was killed",
                    shown(&line.program),
                    self.config.max_timeout
                ))));
            }
            watch::Ended::Exit(Exit::TimedOut) => {
                let limit = aegis_core::quantity::Span(timeout);
                (
                    -1,
                    true,
                    Some(format!(
                        "the command did not end within {limit}, and was killed with all it had started"
                    )),
                )
            }
            watch::Ended::Cancelled => {
                failed("cancelled");
                let message = "nobody waits for the command any more; it was killed with all it had started";
                return Err(Failure::new(FailureKind::Timeout, message));
            }
            watch::Ended::DiskFull(overrun) => {
                failed("quota");
                return Err(Failure::new(
                    FailureKind::VolumeQuotaExceeded,
                    format!("the command {overrun} and was killed; delete files, or write less"),
                ));
            }
        };
        if timed_out {
            failed("timeout");
        }
        if output.truncated {
            run.announce(
                Event::new(EventName::CommandPolicyViolation)
                    .with("command", shown(&line.program))
                    .with("violation", ViolationKind::OutputSizeLimitExceeded.as_str())
                    .with("limit", self.config.max_output.0),
            );
        }
        run.emit(
            Event::new(EventName::CommandExecutionCompleted)
                .with("command", shown(&line.program))
                .with("exit_code", exit_code)
                .with("stdout_bytes", output.stdout_bytes)
                .with("stderr_bytes", output.stderr_bytes)
                .with("duration_ms", u64::try_from(took.as_millis()).unwrap_or(u64::MAX))
                .with("truncated", output.truncated),
        );
        let cut = output.truncated.then(|| {
            let size = output.stdout_bytes + output.stderr_bytes;
            format!(
                "the output had {size} bytes; its end is shown, {} of both streams together",
                self.config.max_output
            )
        });
        let odd = output.replaced.then(|| "bytes that are no UTF-8 are shown as \u{fffd}".to_owned());
        let notices: Vec<String> = [end, cut, odd].into_iter().flatten().collect();
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
        Ok(Finished { exit_code, timed_out, output, took, mode, notice })
    }

    /// The processes of the caller's commands.
    pub async fn processes(&self, caller: &Caller) -> Vec<OwnProcess> {
        self.handles.processes(caller).await
    }

    /// Sends a signal to a process of the caller's.
    pub async fn signal(&self, process: &OwnProcess, signal: Signal) -> std::io::Result<()> {
        self.handles.signal(process, signal).await
    }

    fn timeout(&self, asked: Option<Duration>) -> Result<Duration, Violation> {
        let ceiling = self.config.max_timeout.0;
        match asked {
            Some(asked) if asked > ceiling => Err(self.past_ceiling(format!(
                "a time limit of {} was asked for; {} is the most",
                aegis_core::quantity::Span(asked),
                self.config.max_timeout
            ))),
            Some(asked) => Ok(asked),
            None => Ok(self.config.default_timeout.0.min(ceiling)),
        }
    }

    fn past_ceiling(&self, message: String) -> Violation {
        Violation::new(ViolationKind::ExecTimeoutCeilingExceeded, message)
            .rule("spec.exec.max_timeout")
            .hint("do it in smaller steps, or ask an operator to raise the limit")
    }
}

/// Books what the command has added to its volumes, as far as free space tells.
async fn settle(volumes: Vec<Writable>) {
    let settled = tokio::task::spawn_blocking(move || {
        for Writable { volume, left } in volumes {
            volume.grew(disk::Left::of(&volume).unwrap_or_default().gone_since(left));
        }
    });
    // It can only fail by a panic, which has been told of.
    let _ = settled.await;
}

/// What is told of a launch that failed. Nothing ran.
fn not_started(run: &Run<'_>, error: &SandboxError) -> Failure {
    let message = match error {
        SandboxError::NotFound { program, path } => {
            let found = SandboxError::NotFound { program: shown(program), path: path.clone() };
            // What a shell would take for a variable is the name of a program here.
            let way = if program.contains('=') {
                "; no shell reads the line: `env NAME=value …` sets a variable"
            } else {
                ""
            };
            format!("{found}{way}")
        }
        SandboxError::NotExecutable { program, reason } => {
            SandboxError::NotExecutable { program: shown(program), reason: reason.clone() }.to_string()
        }
        other => other.to_string(),
    };
    match error {
        SandboxError::NotFound { .. } | SandboxError::WorkingDirectory { .. } => {
            Failure::new(FailureKind::NotFound, message)
        }
        SandboxError::NotExecutable { .. } => Failure::new(FailureKind::PermissionDenied, message),
        SandboxError::Argument(_) => run.refuse(Violation::new(
            ViolationKind::InvalidArguments,
            format!("Invalid tool arguments: they can't be used for tool '{}': {message}", run.permit.tool()),
        )),
        _ => run.refuse(sandbox::unavailable(message)),
    }
}

/// The arguments of a command, for an event: whoever may listen need not see what a secret of the caller's is.
fn shown_arguments(line: &CommandLine) -> Vec<String> {
    const MOST: usize = 64;
    let kept = &line.arguments[..line.arguments.len().min(MOST)];
    redact::arguments_of(&line.program, kept).iter().map(|word| shown(word)).collect()
}

/// A word of a caller's, for an event: without a secret in it.
fn shown(word: &str) -> String {
    const LONGEST: usize = 256;
    let word = redact::words(&[word]).concat();
    match word.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_see_no_secret_argument() {
        let seen = |program: &str, arguments: &[&str]| {
            let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
            shown_arguments(&CommandLine { program: program.to_owned(), arguments })
        };
        assert_eq!(
            seen("run", &["--token", "s3cr3t-0f-h1s", "--password=hunter2hunter2", "-v", "x.txt"]),
            ["--token", "[redacted]", "--password=[redacted]", "-v", "x.txt"]
        );
        assert_eq!(seen("mysql", &["-phunter2", "-v"]), ["-p[redacted]", "-v"]);
        assert_eq!(seen("run", &["a".repeat(500).as_str(); 70]).len(), 64);
    }
}
