//! A program in its sandbox, as seen from the node.

use std::{fmt, io, time::Duration};

use futures::future::BoxFuture;
use serde::Serialize;
use tokio::net::{TcpListener, unix::pipe};

/// One sandbox, for as long as the node runs and in its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SandboxId(uuid::Uuid);

impl SandboxId {
    /// A new one, later than all before.
    pub fn new() -> Self {
        Self(uuid::Uuid::now_v7())
    }
}

impl Default for SandboxId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It returned this code.
    Code(i32),
    /// This signal ended it; 9 also when the node killed the sandbox.
    Signal(i32),
    /// Its wall-clock time was up, and everything in the sandbox was killed.
    TimedOut,
    /// The sandbox used more memory than its limit.
    OutOfMemory,
}

/// The signals a caller may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGHUP
    Hangup,
    /// SIGINT
    Interrupt,
    /// SIGQUIT
    Quit,
    /// SIGKILL
    Kill,
    /// SIGUSR1
    User1,
    /// SIGUSR2
    User2,
    /// SIGTERM
    Terminate,
    /// SIGCONT
    Continue,
    /// SIGSTOP
    Stop,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Hangup,
        Self::Interrupt,
        Self::Quit,
        Self::Kill,
        Self::User1,
        Self::User2,
        Self::Terminate,
        Self::Continue,
        Self::Stop,
    ];

    /// Its number on this system.
    pub fn number(self) -> i32 {
        match self {
            Self::Hangup => libc::SIGHUP,
            Self::Interrupt => libc::SIGINT,
            Self::Quit => libc::SIGQUIT,
            Self::Kill => libc::SIGKILL,
            Self::User1 => libc::SIGUSR1,
            Self::User2 => libc::SIGUSR2,
            Self::Terminate => libc::SIGTERM,
            Self::Continue => libc::SIGCONT,
            Self::Stop => libc::SIGSTOP,
        }
    }

    /// Its name, as in `SIGTERM`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Kill => "SIGKILL",
            Self::User1 => "SIGUSR1",
            Self::User2 => "SIGUSR2",
            Self::Terminate => "SIGTERM",
            Self::Continue => "SIGCONT",
            Self::Stop => "SIGSTOP",
        }
    }

    /// The signal of that name, with or without `SIG`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.name() == name || &signal.name()[3..] == name)
    }
}

/// To whom a signal goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The program and the processes of its group.
    Program,
    /// One process, by its number inside.
    Process(u32),
}

/// A process inside a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessInfo {
    /// Its number inside.
    pub pid: u32,
    /// Its number on the host.
    pub host_pid: u32,
    /// Its parent's number inside; 0 when the parent is not listed.
    pub parent: u32,
    /// The name of its program.
    pub name: String,
    /// Its command line, at most 4 KiB of it.
    pub command: Vec<String>,
    /// Its state, as in `/proc`: R, S, D, T, Z …
    pub state: char,
    /// Bytes in memory.
    pub memory: u64,
    /// Processor time so far.
    pub cpu: Duration,
}

/// How a backend holds a running sandbox. Dropping it kills everything inside.
pub trait Control: Send + Sync + fmt::Debug {
    /// Waits until nothing of the sandbox runs any more.
    fn wait(&mut self) -> BoxFuture<'_, Exit>;
    /// Sends a signal inside.
    ///
    /// # Errors
    /// When there is no such process, or the sandbox has ended.
    fn signal(&self, signal: Signal, target: Target) -> io::Result<()>;
    /// Kills everything inside.
    fn kill(&self);
    /// Looks for what runs inside.
    fn census(&self) -> Census;
}

/// Looks for what runs in a sandbox, once it is called. Blocks.
pub type Census = Box<dyn FnOnce() -> Vec<ProcessInfo> + Send>;

/// A running sandbox. Dropping it kills everything inside; nothing survives it.
#[derive(Debug)]
pub struct Running {
    /// Which one.
    pub id: SandboxId,
    /// With [`Input::Pipe`](crate::Input::Pipe): what the program reads; dropping it is the end of its input.
    pub stdin: Option<pipe::Sender>,
    /// What the program writes; take it to read it elsewhere. Ends when every process inside is gone or has closed it.
    pub stdout: Option<pipe::Receiver>,
    /// What it complains.
    pub stderr: Option<pipe::Receiver>,
    /// With [`Network::Proxy`](crate::Network::Proxy): accepts what programs inside connect to 127.0.0.1:3128.
    pub proxy: Option<TcpListener>,
    pid: u32,
    control: Box<dyn Control>,
}

impl Running {
    /// Puts a running sandbox together; for backends.
    pub fn new(
        pid: u32,
        stdin: Option<pipe::Sender>,
        stdout: pipe::Receiver,
        stderr: pipe::Receiver,
        proxy: Option<TcpListener>,
        control: Box<dyn Control>,
    ) -> Self {
        Self { id: SandboxId::new(), stdin, stdout: Some(stdout), stderr: Some(stderr), proxy, pid, control }
    }

    /// The host's number of the sandbox's first process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until nothing of the sandbox runs any more, and says how the program ended. May be dropped and called
    /// again; once done it gives the same answer again.
    pub async fn wait(&mut self) -> Exit {
        self.control.wait().await
    }

    /// Sends a signal to the program and its process group.
    ///
    /// # Errors
    /// When the sandbox has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.control.signal(signal, Target::Program)
    }

    /// Sends a signal to one process, by its number inside. Numbers of the host mean nothing here.
    ///
    /// # Errors
    /// When the sandbox has ended.
    pub fn signal_process(&self, pid: u32, signal: Signal) -> io::Result<()> {
        self.control.signal(signal, Target::Process(pid))
    }

    /// Kills everything inside.
    pub fn kill(&self) {
        self.control.kill();
    }

    /// What runs inside right now, without the sandbox's own first process; at most 4,096 of them. Blocks.
    pub fn processes(&self) -> Vec<ProcessInfo> {
        self.census()()
    }

    /// The same, to be asked elsewhere.
    pub fn census(&self) -> Census {
        self.control.census()
    }
}
