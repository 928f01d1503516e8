//! What to run, and with what: the request every backend understands.

use std::{
    path::{Component, Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::error::SandboxError;

/// The kernel's own limit for one argument or variable (`MAX_ARG_STRLEN`).
const LONGEST_ARGUMENT: usize = 128 * 1024;
/// Arguments and environment together. The kernel takes up to a quarter of the stack limit; this fits below it.
const LONGEST_COMMAND: usize = 1024 * 1024;
/// Volumes in one sandbox: as many as fit one message of descriptors beside the others.
pub const MOST_MOUNTS: usize = 64;
/// Where the proxy listens inside.
pub const PROXY_PORT: u16 = 3128;
/// Where programs are looked for when the environment does not say.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// One program in one sandbox.
#[derive(Debug, Clone)]
pub struct Launch {
    /// A name that is looked up in the sandbox's PATH, or a path inside. Never given to a shell.
    pub program: String,
    /// Its arguments, without the program itself.
    pub args: Vec<String>,
    /// Its whole environment. PATH, HOME, TMPDIR and LANG are filled in when absent; nothing of the node's gets in.
    pub env: Vec<(String, String)>,
    /// Where it starts, as seen inside.
    pub cwd: PathBuf,
    /// What it reads from its standard input.
    pub stdin: Input,
    /// What of the host it sees besides the system directories.
    pub mounts: Vec<Mount>,
    /// What it reaches.
    pub network: Network,
    /// What it may use up.
    pub limits: Limits,
    /// An OCI image, for backends that have images.
    pub image: Option<String>,
}

/// What a program reads from its standard input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Input {
    /// `/dev/null`.
    #[default]
    Nothing,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// What is written to [`Running::stdin`](crate::Running::stdin), until that is dropped.
    Pipe,
}

impl From<Option<Vec<u8>>> for Input {
    fn from(bytes: Option<Vec<u8>>) -> Self {
        bytes.map_or(Self::Nothing, Self::Bytes)
    }
}

/// A directory or file of the host at a place inside.
#[derive(Debug, Clone)]
pub struct Mount {
    /// An absolute path without symbolic links: one that turns up in it is refused, as it may have been put there by
    /// an agent a moment ago.
    pub host: PathBuf,
    /// An absolute path below none of the system directories. Where it lies in another volume and is missing there, an
    /// empty directory is made in that volume, and stays.
    pub inside: PathBuf,
    /// Whether it may be written.
    pub access: Access,
}

/// What may be done with a mounted volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Nothing in it changes.
    ReadOnly,
    /// Files come, change and go, with the rights of the sandbox's user.
    ReadWrite,
}

/// What a sandbox reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing but a loopback interface of its own.
    None,
    /// A listener at 127.0.0.1:[`PROXY_PORT`] of its own loopback, whose connections the node accepts and judges.
    Proxy,
}

/// What a sandbox may use up. Everything has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory: of the whole tree where a memory cgroup can be made, of each process otherwise.
    pub memory: u64,
    /// Processes and threads at one time.
    pub processes: u32,
    /// Cores, in fractions; needs a cpu cgroup.
    pub cpu: f64,
    /// Wall-clock time until everything is killed; `Duration::MAX` is without end.
    pub wall: Duration,
    /// Bytes of the largest file a program may write.
    pub file_size: u64,
    /// Bytes of the private /tmp.
    pub scratch: u64,
    /// Open files of one process.
    pub open_files: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            processes: 256,
            cpu: 2.0,
            wall: Duration::from_secs(60),
            file_size: 1 << 30,
            scratch: 256 << 20,
            open_files: 1024,
        }
    }
}

impl Launch {
    /// A program with no arguments, an empty environment, no volumes, no network and the default limits.
    pub fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: PathBuf::from("/"),
            stdin: Input::Nothing,
            mounts: Vec::new(),
            network: Network::None,
            limits: Limits::default(),
            image: None,
        }
    }

    /// What no backend could run, refused before anything is set up.
    pub(crate) fn check(&self) -> Result<(), SandboxError> {
        let wrong = |text: String| Err(SandboxError::Argument(text));
        if self.program.is_empty() {
            return wrong("the program's name is empty; name a program".into());
        }
        let mut total = 0;
        let variables = self.env.iter().flat_map(|(name, value)| [name, value]);
        for text in std::iter::once(&self.program).chain(&self.args).chain(variables) {
            if text.contains('\0') {
                return wrong(
                    "a NUL byte can't be part of a program, an argument or a variable; remove it".into(),
                );
            }
            // Two bytes for `=` and the closing NUL of a variable.
            if text.len() + 2 > LONGEST_ARGUMENT {
                return wrong(format!(
                    "one argument is {} bytes, the kernel takes {LONGEST_ARGUMENT}; put it into a file or the standard input",
                    text.len()
                ));
            }
            total += text.len() + 2 + size_of::<usize>();
        }
        if total > LONGEST_COMMAND {
            return wrong(format!(
                "arguments and environment are {total} bytes, {LONGEST_COMMAND} are taken; put them into a file or the standard input"
            ));
        }
        if let Some((name, _)) = self.env.iter().find(|(name, _)| name.is_empty() || name.contains('=')) {
            return wrong(format!("`{name}` can't name an environment variable"));
        }
        if !plain(&self.cwd) {
            return wrong(format!("the working directory {} is no absolute, plain path", self.cwd.display()));
        }
        if self.mounts.len() > MOST_MOUNTS {
            return wrong(format!("{} volumes, {MOST_MOUNTS} are taken", self.mounts.len()));
        }
        if !(self.limits.cpu > 0.0 && self.limits.cpu.is_finite()) {
            return wrong("the limit of cores must be above zero".into());
        }
        self.mounts.iter().try_for_each(Mount::check)
    }

    /// The environment as the program gets it.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let mut env = self.env.clone();
        for (name, value) in
            [("PATH", DEFAULT_PATH), ("HOME", "/tmp"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")]
        {
            if !env.iter().any(|(known, _)| known == name) {
                env.push((name.to_owned(), value.to_owned()));
            }
        }
        env
    }
}

/// Places inside that belong to the sandbox itself.
const RESERVED: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/dev", "/proc"];

impl Mount {
    fn check(&self) -> Result<(), SandboxError> {
        let wrong = |reason: &str| {
            Err(SandboxError::Mount {
                host: self.host.clone(),
                inside: self.inside.clone(),
                reason: reason.to_owned(),
            })
        };
        if !plain(&self.host) {
            return wrong("the directory of the host must be an absolute path without `.` and `..`");
        }
        if !plain(&self.inside) || self.inside == Path::new("/") {
            return wrong(
                "the place inside must be an absolute path without `.` and `..`, and not `/` itself",
            );
        }
        if RESERVED.iter().any(|reserved| self.inside.starts_with(reserved)) {
            return wrong(
                "the system directories, /etc, /dev and /proc are the sandbox's own; choose another place",
            );
        }
        Ok(())
    }
}

/// Absolute, UTF-8, without NUL, `.` and `..`.
fn plain(path: &Path) -> bool {
    path.is_absolute()
        && path.to_str().is_some_and(|text| !text.contains('\0'))
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_program_can_get_is_refused_with_the_reason() {
        let refused = |change: fn(&mut Launch)| {
            let mut launch = Launch::new("true");
            change(&mut launch);
            launch.check().expect_err("must be refused").to_string()
        };
        assert!(refused(|launch| launch.program.clear()).contains("empty"));
        assert!(refused(|launch| launch.args.push("a\0b".into())).contains("NUL"));
        assert!(refused(|launch| launch.args.push("x".repeat(2 << 20))).contains("the kernel takes"));
        assert!(refused(|launch| launch.args = vec!["x".repeat(100_000); 21]).contains("bytes"));
        assert!(refused(|launch| launch.env.push(("A=B".into(), String::new()))).contains("variable"));
        assert!(refused(|launch| launch.cwd = "work".into()).contains("working directory"));
        assert!(refused(|launch| launch.limits.cpu = f64::NAN).contains("cores"));
        for inside in ["/", "/usr/x", "/proc", "relative", "/a/../b"] {
            let mut launch = Launch::new("true");
            launch.mounts.push(Mount {
                host: "/srv".into(),
                inside: inside.into(),
                access: Access::ReadOnly,
            });
            assert!(launch.check().is_err(), "{inside}");
        }
    }

    #[test]
    fn the_environment_is_the_given_one_with_four_defaults() {
        let mut launch = Launch::new("true");
        launch.env.push(("HOME".into(), "/workspace".into()));
        let env = launch.environment();
        assert_eq!(env.len(), 4);
        assert!(env.contains(&("HOME".into(), "/workspace".into())));
    }
}
