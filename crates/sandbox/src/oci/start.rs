//! One container, from its directory on the host to the moment its program runs.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixListener,
    },
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    net::{Shutdown, sockopt},
    process::{Pid, PidfdFlags},
};

use super::{
    Ground,
    engine::{Asked, Engine},
    home::Home,
    inside::Orders,
    profile::{self, Container, Groups, Manner},
    volumes::{Owner, Volumes},
};
use crate::{
    SandboxError,
    launch::{Launch, Network},
    native::{Hold, Remains, Started, Streams, failure, volumes::refused},
    wire::{self, Plan, Program, Report},
};

/// How long a container may take until its first process calls; many may be starting at once.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long it may take once the engine says that it runs, and for every answer after.
const ANSWER: Duration = Duration::from_secs(20);

/// A container whose program runs.
pub(super) struct Fresh {
    pub(super) started: Started,
    /// The engine's own process, which ends by itself a moment later.
    pub(super) asked: Asked,
    /// Number, user and group of the container's first process on the host.
    pub(super) peer: (Pid, u32, u32),
}

impl Ground {
    /// Starts a container in that manner and gives it its plan.
    pub(super) fn start(
        &self,
        manner: &Manner,
        owner: &Owner,
        what: &Launch,
        program: Program,
    ) -> Result<Fresh, SandboxError> {
        let image = what.image.as_deref().unwrap_or(&self.image);
        profile::check_image(image)?;
        let failed = |error: io::Error| SandboxError::setup("directory of the container", error);
        let id = uuid::Uuid::now_v7().simple().to_string();
        let name = format!("aegis-{id}");
        let mut stand = self.home.stand(&id).map_err(failed)?;
        let volumes = Volumes::stage(&what.mounts, owner, &mut stand)?;
        let (listener, socket) = stand.listen().map_err(failed)?;
        let container =
            Container { name: &name, image, socket: &socket, binds: &volumes.binds, limits: &what.limits };
        let line = profile::arguments(&self.engine, manner, &self.carrier, &self.home, &container);
        let mut asked = self.engine.start(line).map_err(|error| SandboxError::setup("start", error))?;
        let control = match self.called(&listener, &mut asked, image) {
            Ok(control) => control,
            Err(error) => {
                let _ = self.engine.remove(&[name]);
                return Err(error);
            }
        };
        // From here on nobody else is answered, and the host need not show the volumes any more.
        drop(listener);
        stand.clear();
        let fresh = self.order(manner, what, program, volumes, control, &name);
        let (started, peer) = fresh.inspect_err(|_| asked.wait(ANSWER))?;
        Ok(Fresh { started, asked, peer })
    }

    /// Waits until the container's first process calls.
    fn called(
        &self,
        listener: &UnixListener,
        asked: &mut Asked,
        image: &str,
    ) -> Result<OwnedFd, SandboxError> {
        let mut deadline = Instant::now() + PATIENCE;
        let mut running = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                asked.give_up();
                let text = "the container's first process did not call; is the engine's host this one?";
                return Err(SandboxError::setup("start", text));
            }
            let left = Timespec::try_from(left).ok();
            let mut ready = vec![PollFd::new(listener, PollFlags::IN)];
            if !running {
                ready.push(PollFd::new(asked.process(), PollFlags::IN));
            }
            match rustix::event::poll(&mut ready, left.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(SandboxError::Stage(error.into())),
            }
            if !ready[0].revents().is_empty() {
                let (stream, _) = listener.accept().map_err(SandboxError::Stage)?;
                stream.set_nonblocking(false).map_err(SandboxError::Stage)?;
                stream.set_read_timeout(Some(ANSWER)).map_err(SandboxError::Stage)?;
                return Ok(stream.into());
            }
            match asked.ended() {
                Some(status) if status.success() && !running => {
                    running = true;
                    deadline = deadline.min(Instant::now() + ANSWER);
                }
                Some(status) if !status.success() => return Err(self.refused(image, asked)),
                _ => {}
            }
        }
    }

    /// Why the engine made no container.
    fn refused(&self, image: &str, asked: &mut Asked) -> SandboxError {
        if self.engine.has_image(image) {
            SandboxError::setup("start", self.engine.refused(&asked.complaint()))
        } else {
            SandboxError::NoSuchImage { engine: self.engine.name(), image: image.to_owned() }
        }
    }

    /// Sends the plan and waits until the program runs.
    fn order(
        &self,
        manner: &Manner,
        what: &Launch,
        program: Program,
        volumes: Volumes,
        control: OwnedFd,
        name: &str,
    ) -> Result<(Started, (Pid, u32, u32)), SandboxError> {
        let peer = sockopt::socket_peercred(&control).map_err(|error| SandboxError::Stage(error.into()))?;
        // The answer below proves that this was its number: it lives, and is the one that holds the socket.
        let process = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty())
            .map_err(|error| SandboxError::Stage(error.into()))?;
        let (control, process) = (Arc::new(control), Arc::new(process));
        let memory = if manner.groups == Groups::Limited { oom_counter(peer.pid) } else { None };
        let hold = Hold {
            control: Arc::clone(&control),
            process: Arc::clone(&process),
            remains: Some(Box::new(Remainder {
                control: Arc::clone(&control),
                process,
                memory: memory.map(Mutex::new),
                engine: self.engine.clone(),
                name: name.to_owned(),
                _home: Arc::clone(&self.home),
            })),
        };
        let root = rustix::process::geteuid().is_root();
        let streams =
            Streams::new(&what.stdin, root.then_some(peer.uid.as_raw())).map_err(SandboxError::Stage)?;
        let plan = Plan {
            program,
            cwd: what.cwd.clone(),
            volumes: volumes.planned,
            network: what.network,
            limits: what.limits,
            memory_held: manner.memory_held,
        };
        let descriptors =
            [&streams.inner_stdin, &streams.inner_stdout, &streams.inner_stderr].map(AsFd::as_fd);
        let orders = Orders { plan, identities: volumes.identities };
        wire::send(&control, &orders, &descriptors).map_err(SandboxError::Stage)?;
        let mut received = Vec::new();
        match wire::receive::<Report>(&control, &mut received).map_err(SandboxError::Stage)? {
            Some(Report::Started) => {}
            Some(other) => return Err(explained(&other, what)),
            // Killed before the program ran: the limits leave no room for it.
            None => {
                return Err(SandboxError::setup("start", "it was killed; its memory limit may be too small"));
            }
        }
        let proxy = match what.network {
            Network::None => None,
            Network::Proxy => received.pop().map(std::net::TcpListener::from),
        };
        let peer = (peer.pid, peer.uid.as_raw(), peer.gid.as_raw());
        let Streams { stdin, stdout, stderr, .. } = streams;
        Ok((Started { hold, stdin, stdout, stderr, proxy, gaps: Vec::new() }, peer))
    }
}

/// As for every sandbox, but for volumes that the engine found elsewhere than the node.
fn explained(report: &Report, what: &Launch) -> SandboxError {
    if let Report::Failed(fault) = report
        && fault.errno == libc::ESTALE
        && let Some(inside) = fault.step.strip_prefix("volume ")
        && let Some(mount) = what.mounts.iter().find(|mount| mount.inside.as_os_str() == inside)
    {
        let text = "the engine mounted something else than the node looked at: it was exchanged meanwhile, or the engine \
                    has other files than this host";
        return refused(mount, text.to_owned());
    }
    failure(report, what)
}

/// What is to be cleared away with a container.
#[derive(Debug)]
struct Remainder {
    control: Arc<OwnedFd>,
    process: Arc<OwnedFd>,
    memory: Option<Mutex<File>>,
    engine: Engine,
    name: String,
    /// Whose owner is gone is swept away by other backends, so the owner's mark stays while the container does.
    _home: Arc<Home>,
}

impl Remains for Remainder {
    fn ran_out_of_memory(&self) -> bool {
        let Some(counter) = &self.memory else { return false };
        let mut counter = counter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let read = counter.rewind().and_then(|()| counter.read_to_string(&mut text));
        let killed =
            text.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
        read.is_ok() && killed.sum::<u64>() > 0
    }

    /// The first process leaves when nobody is at the other end, whoever may signal it.
    fn dismiss(&self) {
        let _ = rustix::net::shutdown(&self.control, Shutdown::Both);
    }

    /// The engine removes a container that ended; one that won't end is removed by force.
    fn remove(self: Box<Self>) {
        let mut ended = [PollFd::new(&self.process, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if rustix::event::poll(&mut ended, Some(&now)).is_ok_and(|count| count == 0)
            && let Err(error) = self.engine.remove(std::slice::from_ref(&self.name))
        {
            tracing::warn!(container = self.name, %error, "a container does not end");
        }
    }
}

/// The control group of a controller that a process stands in, in either version's tree.
pub(super) fn group_file(process: Pid, controller: &str, first: &str, second: &str) -> Option<File> {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero())).ok()?;
    let lines =
        || groups.lines().filter_map(|line| line.splitn(3, ':').skip(1).collect::<Vec<_>>().try_into().ok());
    let of_first = lines().find(|[names, _]: &[&str; 2]| names.split(',').any(|name| name == controller));
    let path = match of_first {
        Some([_, path]) => format!("/sys/fs/cgroup/{controller}{path}/{first}"),
        None => {
            let [_, path] = lines().find(|[names, _]: &[&str; 2]| names.is_empty())?;
            format!("/sys/fs/cgroup{path}/{second}")
        }
    };
    File::open(path).ok()
}

fn oom_counter(process: Pid) -> Option<File> {
    group_file(process, "memory", "memory.oom_control", "memory.events")
}
