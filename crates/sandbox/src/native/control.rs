//! A native sandbox in the node's hands.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    net::SendFlags,
};
use tokio::{io::unix::AsyncFd, time::Instant};

use super::processes;
use crate::{
    running::{Census, Control, Exit, Signal, Target},
    sys,
    wire::{self, Report},
};

/// How much later than the sandbox's own clock the node's strikes, should the first have been kept from running.
const GRACE: Duration = Duration::from_secs(2);
/// How long killed processes may take to go before their group is left for the next start to remove.
const FAREWELL: Duration = Duration::from_secs(10);

/// What a sandbox has on the host besides its processes.
pub(crate) trait Remains: Send + Sync + std::fmt::Debug {
    /// Whether the kernel ended something inside for lack of memory.
    fn ran_out_of_memory(&self) -> bool;
    /// Has the first process leave by itself, where a signal may not reach it.
    fn dismiss(&self) {}
    /// Clears it away once the last process is gone. Blocks.
    fn remove(self: Box<Self>);
}

/// The sandbox's first process and what hangs on it. Dropping it kills and cleans up.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) control: Arc<OwnedFd>,
    pub(crate) process: Arc<OwnedFd>,
    pub(crate) remains: Option<Box<dyn Remains>>,
}

impl Hold {
    pub(super) fn kill(&self) {
        // Gone already is as good.
        let _ = rustix::process::pidfd_send_signal(&self.process, rustix::process::Signal::KILL);
        self.remains.iter().for_each(|remains| remains.dismiss());
    }

    /// The first process's number on the host.
    pub(super) fn pid(&self) -> u32 {
        let path = format!("/proc/self/fdinfo/{}", self.process.as_raw_fd());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok()).unwrap_or(0)
    }

    /// How it ended, once its last word is there or its socket closed.
    fn verdict(&self) -> Exit {
        let out_of_memory = || self.remains.as_ref().is_some_and(|remains| remains.ran_out_of_memory());
        match wire::receive::<Report>(&self.control, &mut Vec::new()) {
            Ok(Some(Report::Returned(code))) => Exit::Code(code),
            Ok(Some(Report::TimedOut)) => Exit::TimedOut,
            Ok(Some(Report::Signalled(signal))) if signal != libc::SIGKILL => Exit::Signal(signal),
            _ if out_of_memory() => Exit::OutOfMemory,
            _ => Exit::Signal(libc::SIGKILL),
        }
    }
}

impl Hold {
    /// Clears everything away once the last process is gone.
    fn clean_up(&mut self) {
        let Some(remains) = self.remains.take() else { return };
        remains.dismiss();
        let process = Arc::clone(&self.process);
        let remove = move || {
            wait_blocking(&process, FAREWELL);
            remains.remove();
        };
        off_the_reactor(remove);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.kill();
        self.clean_up();
    }
}

/// Does what blocks where nobody waits for it; right here when there is no runtime.
pub(super) fn off_the_reactor(work: impl FnOnce() + Send + 'static) {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Waits for a process to be gone, at most that long.
pub(super) fn wait_blocking(process: &OwnedFd, most: Duration) {
    let most = Timespec::try_from(most).ok();
    let _ = rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], most.as_ref());
}

fn is_gone(process: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&now)), Ok(0))
}

/// What [`Running`](crate::Running) holds of a native sandbox.
#[derive(Debug)]
pub(super) struct NativeControl {
    hold: Hold,
    control: AsyncFd<Arc<OwnedFd>>,
    process: AsyncFd<Arc<OwnedFd>>,
    pid: u32,
    deadline: Option<Instant>,
    exit: Option<Exit>,
}

impl NativeControl {
    /// Takes a started sandbox over; needs the runtime's reactor.
    pub(super) fn new(hold: Hold, wall: Duration) -> io::Result<Self> {
        let process = sys::watch(Arc::clone(&hold.process))?;
        let control = sys::watch(Arc::clone(&hold.control))?;
        let deadline = Instant::now().checked_add(wall.saturating_add(GRACE));
        let pid = hold.pid();
        Ok(Self { hold, control, process, pid, deadline, exit: None })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    async fn ended(&mut self) -> Exit {
        if let Some(exit) = self.exit {
            return exit;
        }
        let ended = self.control.readable();
        let in_time = match self.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, ended).await.is_ok(),
            None => ended.await.is_ok(),
        };
        let exit = if in_time { self.hold.verdict() } else { Exit::TimedOut };
        if exit == Exit::Signal(libc::SIGKILL) || !in_time {
            // Without a last word, the end is when the kernel has taken down everything inside.
            self.hold.kill();
            let _ = tokio::time::timeout(FAREWELL, self.process.readable()).await;
        }
        self.exit = Some(exit);
        self.hold.clean_up();
        exit
    }
}

impl Control for NativeControl {
    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(self.ended())
    }

    fn signal(&self, signal: Signal, target: Target) -> io::Result<()> {
        let process = match target {
            Target::Program => 0,
            Target::Process(0 | 1) => return Err(io::ErrorKind::InvalidInput.into()),
            Target::Process(pid) => i32::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?,
        };
        if self.exit.is_some() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        let mut order = [0; 8];
        order[..4].copy_from_slice(&signal.number().to_le_bytes());
        order[4..].copy_from_slice(&process.to_le_bytes());
        rustix::net::send(&self.hold.control, &order, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    fn kill(&self) {
        self.hold.kill();
    }

    fn census(&self) -> Census {
        if self.exit.is_some() {
            return Box::new(Vec::new);
        }
        let (pid, process) = (self.pid, Arc::clone(&self.hold.process));
        Box::new(move || {
            let found = processes::below(pid);
            // Once it is gone, its number may be another's, whose processes are nobody's business here.
            if is_gone(&process) { Vec::new() } else { found }
        })
    }
}
