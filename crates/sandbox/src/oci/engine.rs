//! `podman` or `docker`, spoken to by arguments only: no shell, a deadline for every answer.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    process::{Pid, PidfdFlags},
};

/// How long an engine may take for a question; it may have to wait for the lock of its storage.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_ANSWER: u64 = 64 << 10;
const LONGEST_COMPLAINT: usize = 600;
/// What of the node's environment an engine needs to find its configuration and its storage.
const ENVIRONMENT: [&str; 15] = [
    "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_CERT_PATH",
    "DOCKER_CONFIG",
    "DOCKER_CONTEXT",
    "DOCKER_HOST",
    "DOCKER_TLS_VERIFY",
    "HOME",
    "TMPDIR",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "PATH",
];

/// Why an engine gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error("neither podman nor docker is installed here")]
    NotInstalled,
    #[error("{program} can't be started: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} did not answer within {} seconds", PATIENCE.as_secs())]
    Silent { program: String },
    #[error("{program} says: {complaint}")]
    Refused { program: String, complaint: String },
}

/// Which of the two command lines it speaks; they differ in what they offer beyond the common part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Podman,
    Docker,
}

/// A working engine.
#[derive(Debug, Clone)]
pub(super) struct Engine {
    pub(super) kind: Kind,
    program: PathBuf,
    options: Vec<String>,
    pub(super) version: String,
    /// It has no right on this host that the node's user has not.
    pub(super) rootless: bool,
}

impl Engine {
    /// The configured engine, or the first of podman and docker that answers.
    pub(super) fn find(configured: Option<&Path>, options: &[String]) -> Result<Self, EngineError> {
        let candidates = match configured {
            Some(program) => vec![program.to_owned()],
            None => ["podman", "docker"].into_iter().filter_map(installed).collect(),
        };
        let mut first_error = EngineError::NotInstalled;
        for (index, program) in candidates.into_iter().enumerate() {
            match Self::ask_who(program, options) {
                Ok(engine) => return Ok(engine),
                Err(error) if index == 0 => first_error = error,
                Err(_) => {}
            }
        }
        Err(first_error)
    }

    fn ask_who(program: PathBuf, options: &[String]) -> Result<Self, EngineError> {
        let docker = program.file_name().is_some_and(|name| name.to_string_lossy().contains("docker"));
        let kind = if docker { Kind::Docker } else { Kind::Podman };
        let mut engine =
            Self { kind, program, options: options.to_vec(), version: String::new(), rootless: false };
        let format = match kind {
            Kind::Podman => "{{.Version.Version}} {{.Host.Security.Rootless}}",
            Kind::Docker => "{{.ServerVersion}} {{.SecurityOptions}}",
        };
        let answer = engine.ask(["info", "--format", format])?;
        let (version, rest) = answer.trim().split_once(' ').unwrap_or((answer.trim(), ""));
        engine.version = version.to_owned();
        engine.rootless = match kind {
            Kind::Podman => rest == "true",
            Kind::Docker => rest.contains("rootless"),
        };
        if version.is_empty() {
            return Err(engine.refused("it does not tell its version; is its daemon running?"));
        }
        Ok(engine)
    }

    /// Its name, as people type it.
    pub(super) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Podman => "podman",
            Kind::Docker => "docker",
        }
    }

    /// At least that version; one that can't be read is taken as old.
    pub(super) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        let mut numbers = self.version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.options).env_clear().current_dir("/").stdin(Stdio::null());
        command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command
    }

    /// Starts a command of the engine, with what it says kept in memory.
    pub(super) fn start<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Asked, EngineError> {
        let spawn = || -> io::Result<Asked> {
            let (answer, complaint) = (memory()?, memory()?);
            let child = self
                .command()
                .args(arguments)
                .stdout(answer.try_clone()?)
                .stderr(complaint.try_clone()?)
                .spawn()?;
            let process = Pid::from_child(&child);
            let process = rustix::process::pidfd_open(process, PidfdFlags::empty())?;
            Ok(Asked { child, process, answer, complaint })
        };
        spawn().map_err(|source| EngineError::Start { program: self.program.display().to_string(), source })
    }

    /// Asks the engine and waits for its answer.
    pub(super) fn ask<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<String, EngineError> {
        let mut asked = self.start(arguments)?;
        asked.wait(PATIENCE);
        match asked.ended() {
            None => {
                asked.give_up();
                Err(EngineError::Silent { program: self.name().to_owned() })
            }
            Some(status) if status.success() => Ok(asked.answer()),
            Some(_) => Err(self.refused(&asked.complaint())),
        }
    }

    pub(super) fn refused(&self, complaint: &str) -> EngineError {
        EngineError::Refused { program: self.name().to_owned(), complaint: complaint.to_owned() }
    }

    /// Whether the engine has an image of that name.
    pub(super) fn has_image(&self, image: &str) -> bool {
        self.ask(["image", "inspect", "--format", "{{.Id}}", image]).is_ok()
    }

    /// Removes containers, running or not. Those that are gone already are as good.
    pub(super) fn remove(&self, containers: &[String]) -> Result<(), EngineError> {
        if containers.is_empty() {
            return Ok(());
        }
        let mut arguments = vec!["rm", "--force", "--volumes"];
        if self.kind == Kind::Podman {
            arguments.extend(["--ignore", "--time=0"]);
        }
        arguments.extend(containers.iter().map(String::as_str));
        self.ask(arguments).map(drop)
    }
}

/// The program of that name in the node's PATH.
pub(super) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(crate::DEFAULT_PATH));
    std::env::split_paths(&path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// A command of the engine under way.
#[derive(Debug)]
pub(super) struct Asked {
    child: Child,
    process: OwnedFd,
    answer: File,
    complaint: File,
}

impl Asked {
    /// Readable once the command has ended.
    pub(super) fn process(&self) -> &OwnedFd {
        &self.process
    }

    pub(super) fn wait(&self, most: Duration) {
        let most = Timespec::try_from(most).ok();
        let _ = rustix::event::poll(&mut [PollFd::new(&self.process, PollFlags::IN)], most.as_ref());
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends the command, and leaves nothing of it to be reaped.
    pub(super) fn give_up(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub(super) fn answer(&mut self) -> String {
        read(&mut self.answer)
    }

    /// What it complained of, without the notes around it.
    pub(super) fn complaint(&mut self) -> String {
        let said = read(&mut self.complaint);
        let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let errors: Vec<_> =
            lines.iter().filter(|line| line.to_lowercase().contains("error")).copied().collect();
        let mut text = if errors.is_empty() { lines.join("; ") } else { errors.join("; ") };
        if text.len() > LONGEST_COMPLAINT {
            let cut = (0..=LONGEST_COMPLAINT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(cut);
            text.push('…');
        }
        if text.is_empty() { "it ended without a word".to_owned() } else { text }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.ended().is_none() {
            self.give_up();
        }
    }
}

fn memory() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("engine", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let _ = file.rewind();
    let _ = file.take(LONGEST_ANSWER).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
