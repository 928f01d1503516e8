//! The native backend: namespaces, Landlock, seccomp and limits, by our own hand.

mod cgroup;
mod control;
mod probe;
mod processes;
mod stage_process;
mod streams;
pub(crate) mod volumes;

use std::{
    fmt, io,
    net::TcpListener,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;

pub use self::probe::probe;
pub(crate) use self::streams::Streams;
use self::{cgroup::Groups, control::NativeControl, stage_process::StageProcess};
pub(crate) use self::{
    control::{Hold, Remains},
    probe::note_namespaces,
    volumes::open_volume,
};
use crate::{
    Backend, Floor, Layer, Layers, SandboxError,
    launch::{Launch, Limits, Network},
    running::Running,
    wire::{self, Program, Report, Volume},
};

/// How often a launch is begun anew when what it began with is gone.
const ATTEMPTS: usize = 4;

/// What the native backend needs to know of its host.
#[derive(Debug, Clone)]
pub struct NativeSettings {
    /// The binary that serves as the stage: it must call [`stage_main`](crate::stage_main) first thing when
    /// [`is_stage`](crate::is_stage).
    pub executable: PathBuf,
    /// User and group that programs run as when the node is root.
    pub user: (u32, u32),
    /// Directories right below the root that every sandbox sees, read-only; missing ones are passed over.
    pub system: Vec<PathBuf>,
    /// Entries of /etc that every sandbox sees, read-only. Accounts, hosts and name service are the sandbox's own.
    pub etc: Vec<String>,
    /// Sandboxes kept ready, so that a launch need not wait for namespaces.
    pub spare: usize,
    /// Whether control groups are used where the host lets them be made.
    pub control_groups: bool,
}

impl Default for NativeSettings {
    fn default() -> Self {
        let system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
        let etc = [
            "alternatives",
            "ca-certificates",
            "debian_version",
            "fonts",
            "java-17-openjdk",
            "java-21-openjdk",
            "ld.so.cache",
            "ld.so.conf",
            "ld.so.conf.d",
            "localtime",
            "mime.types",
            "os-release",
            "perl",
            "pki",
            "protocols",
            "python3",
            "python3.11",
            "python3.12",
            "python3.13",
            "services",
            "ssl",
            "terminfo",
            "timezone",
        ];
        Self {
            executable: PathBuf::from("/proc/self/exe"),
            user: (65534, 65534),
            system: system.map(PathBuf::from).to_vec(),
            etc: etc.map(str::to_owned).to_vec(),
            spare: 2,
            control_groups: true,
        }
    }
}

/// The native backend. Dropping it ends every sandbox it made.
pub struct Native {
    shared: Arc<Shared>,
}

impl fmt::Debug for Native {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Native").field("layers", &self.shared.layers).finish_non_exhaustive()
    }
}

struct Shared {
    settings: NativeSettings,
    floor: Floor,
    layers: Layers,
    groups: Groups,
    stage: Mutex<Option<Arc<StageProcess>>>,
    spares: Mutex<Vec<Spare>>,
    filling: Mutex<()>,
}

/// A sandbox that waits for its plan.
struct Spare {
    stage: Arc<StageProcess>,
    nest: Nest,
}

/// The socket of a sandbox that waits for its plan, and its control group. Dropping it dismisses whoever waits.
struct Nest {
    /// Both are there until a [`Hold`] takes them.
    control: Option<OwnedFd>,
    group: Option<cgroup::Group>,
}

impl Nest {
    fn leave(mut self) -> (Option<OwnedFd>, Option<cgroup::Group>) {
        (self.control.take(), self.group.take())
    }
}

impl Drop for Nest {
    fn drop(&mut self) {
        // The first process sits in the group, which can't be removed before it has left; it leaves when nobody is
        // there any more to send it a plan.
        drop(self.control.take());
        let Some(group) = self.group.take() else { return };
        control::off_the_reactor(move || Box::new(group).remove());
    }
}

/// A started sandbox, before the runtime takes its descriptors over.
pub(crate) struct Started {
    pub(crate) hold: Hold,
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) proxy: Option<TcpListener>,
    /// Layers that the kernel refused while the sandbox was set up, and why.
    pub(crate) gaps: Vec<(Layer, String)>,
}

impl Native {
    /// Starts the stage and tries every layer. Blocks for some milliseconds. A host that holds too little still gives a
    /// backend: one that says so and refuses every launch.
    pub fn new(settings: NativeSettings, floor: Floor) -> Self {
        let groups = if settings.control_groups {
            Groups::find()
        } else {
            Groups::none("control groups are switched off")
        };
        let mut shared = Shared {
            settings,
            floor,
            layers: Layers::default(),
            groups,
            stage: Mutex::new(None),
            spares: Mutex::new(Vec::new()),
            filling: Mutex::new(()),
        };
        shared.layers = probe::look(&shared);
        let shared = Arc::new(shared);
        if shared.floor.check(&shared.layers).is_ok() {
            shared.refill();
        }
        Self { shared }
    }
}

impl Backend for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn layers(&self) -> &Layers {
        &self.shared.layers
    }

    fn launch(&self, what: Launch) -> BoxFuture<'_, Result<Running, SandboxError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let limits = what.limits;
            let started = tokio::task::spawn_blocking({
                let shared = Arc::clone(&shared);
                move || shared.launch(&what)
            })
            .await
            .map_err(|error| SandboxError::Stage(io::Error::other(error)))??;
            if shared.settings.spare > 0 {
                drop(tokio::task::spawn_blocking(move || shared.refill()));
            }
            take_over(started, limits.wall).map_err(SandboxError::Stage)
        })
    }
}

/// Gives a started sandbox's descriptors to the runtime.
pub(crate) fn take_over(started: Started, wall: Duration) -> io::Result<Running> {
    use tokio::net::unix::pipe::{Receiver, Sender};
    let stdin = started.stdin.map(Sender::from_owned_fd).transpose()?;
    let stdout = Receiver::from_owned_fd(started.stdout)?;
    let stderr = Receiver::from_owned_fd(started.stderr)?;
    let proxy = started.proxy.map(|listener| {
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    });
    let control = NativeControl::new(started.hold, wall)?;
    Ok(Running::new(control.pid(), stdin, stdout, stderr, proxy.transpose()?, Box::new(control)))
}

impl Shared {
    /// The running stage; a new one when there is none yet.
    fn stage(&self) -> Result<Arc<StageProcess>, SandboxError> {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stage) = &*stage {
            return Ok(Arc::clone(stage));
        }
        let started = Arc::new(StageProcess::start(&self.settings)?);
        *stage = Some(Arc::clone(&started));
        Ok(started)
    }

    /// Lets go of a stage that does not answer; its sandboxes end with it.
    fn give_up(&self, broken: &Arc<StageProcess>) {
        self.spares
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|spare| !Arc::ptr_eq(&spare.stage, broken));
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if stage.as_ref().is_some_and(|stage| Arc::ptr_eq(stage, broken)) {
            *stage = None;
        }
    }

    /// A sandbox that is being set up, or stands ready.
    fn prepare(&self) -> Result<Spare, SandboxError> {
        let stage = self.stage()?;
        let (group, doors) =
            self.groups.make().map_err(|error| SandboxError::setup("control group", error))?;
        let send = || {
            let (control, inner) = wire::pair()?;
            stage_process::be_patient(&control)?;
            stage.prepare(&inner, &doors)?;
            Ok(control)
        };
        match send() {
            Ok(control) => {
                let group = (!doors.is_empty()).then_some(group);
                Ok(Spare { stage, nest: Nest { control: Some(control), group } })
            }
            Err(error) => {
                self.give_up(&stage);
                Err(SandboxError::Stage(error))
            }
        }
    }

    /// Keeps as many sandboxes ready as the settings say. Whoever comes while another fills up leaves it to that one.
    fn refill(&self) {
        let Ok(_filling) = self.filling.try_lock() else { return };
        loop {
            if self.spares.lock().unwrap_or_else(PoisonError::into_inner).len() >= self.settings.spare {
                return;
            }
            match self.prepare() {
                Ok(spare) => self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(spare),
                Err(error) => {
                    tracing::warn!(%error, "no sandbox could be made ready; the next launch makes its own");
                    return;
                }
            }
        }
    }

    fn launch(&self, what: &Launch) -> Result<Started, SandboxError> {
        what.check()?;
        self.floor.check(&self.layers)?;
        if let Some(image) = &what.image {
            return Err(SandboxError::NoImages { backend: "native", image: image.clone() });
        }
        let argv = std::iter::once(&what.program).chain(&what.args).cloned().collect();
        let env = what.environment();
        let program = Program::Run { argv, env };
        let mut spare = self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut lost = io::Error::from(io::ErrorKind::BrokenPipe);
        // One that stood ready may have died since, and its stage with it; nothing has run in either case.
        for _ in 0..ATTEMPTS {
            let ready = spare.take().map_or_else(|| self.prepare(), Ok);
            match ready.and_then(|ready| self.start(ready, what, &program)) {
                Err(SandboxError::Stage(error)) => lost = error,
                result => return result,
            }
        }
        Err(SandboxError::Stage(lost))
    }

    /// Gives a sandbox its plan and waits until the program runs.
    fn start(&self, spare: Spare, what: &Launch, program: &Program) -> Result<Started, SandboxError> {
        let Spare { stage, nest } = spare;
        let gone = || SandboxError::Stage(io::ErrorKind::BrokenPipe.into());
        let control = nest.control.as_ref().ok_or_else(gone)?;
        if let Some(group) = &nest.group {
            group.limit(&what.limits).map_err(|error| SandboxError::setup("control group", error))?;
        }
        let volumes = self.volumes(&stage, what)?;
        let streams = Streams::new(&what.stdin, stage.user).map_err(SandboxError::Stage)?;
        let plan = PlanRef {
            program,
            cwd: &what.cwd,
            volumes: &volumes.iter().map(|(volume, _)| volume).collect::<Vec<_>>(),
            network: what.network,
            limits: &what.limits,
            memory_held: nest.group.as_ref().is_some_and(cgroup::Group::holds_memory),
        };
        let descriptors: Vec<_> = [&streams.inner_stdin, &streams.inner_stdout, &streams.inner_stderr]
            .into_iter()
            .chain(volumes.iter().map(|(_, mount)| mount))
            .map(AsFd::as_fd)
            .collect();
        // One sandbox that fails is no reason to end the stage, and with it all others.
        let answer = |error: io::Error| {
            if stage.is_gone() {
                self.give_up(&stage);
            }
            SandboxError::Stage(error)
        };
        let mut received = Vec::new();
        let gaps = match wire::receive::<Report>(control, &mut received).map_err(answer)? {
            Some(Report::Prepared(gaps)) => gaps,
            Some(other) => return Err(failure(&other, what)),
            None => return Err(answer(io::ErrorKind::BrokenPipe.into())),
        };
        wire::send(control, &plan, &descriptors).map_err(answer)?;
        let process = received.pop().ok_or_else(|| SandboxError::Stage(io::ErrorKind::InvalidData.into()))?;
        let (control, group) = nest.leave();
        let hold = Hold {
            control: Arc::new(control.ok_or_else(gone)?),
            process: Arc::new(process),
            remains: group.map(|group| Box::new(group) as Box<dyn Remains>),
        };
        // From here on the program may have run: whatever happens now is told, and never tried again.
        let killed = || SandboxError::setup("start", "it was killed; its memory limit may be too small");
        match wire::receive::<Report>(&hold.control, &mut received) {
            Ok(Some(Report::Started)) => {}
            Ok(Some(other)) => return Err(failure(&other, what)),
            Ok(None) => return Err(killed()),
            // Closed with the plan unread: it never began.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(answer(error)),
            Err(error) => return Err(SandboxError::setup("start", error)),
        }
        let proxy = match what.network {
            Network::None => None,
            Network::Proxy => received.pop().map(TcpListener::from),
        };
        let Streams { stdin, stdout, stderr, .. } = streams;
        Ok(Started { hold, stdin, stdout, stderr, proxy, gaps })
    }

    fn volumes(&self, stage: &StageProcess, what: &Launch) -> Result<Vec<(Volume, OwnedFd)>, SandboxError> {
        let open = |mount: &crate::Mount| {
            let tree = match stage.user {
                Some(user) => {
                    volumes::open_as_root(mount, stage.mapping.as_ref().ok().and_then(Option::as_ref), user)?
                }
                None => stage
                    .open_volume(mount)
                    .map_err(|error| volumes::refused(mount, volumes::explain(&error)))?,
            };
            let file = rustix::fs::fstat(&tree).is_ok_and(|found| {
                rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::Directory
            });
            Ok((Volume { inside: mount.inside.clone(), access: mount.access, file }, tree))
        };
        what.mounts.iter().map(open).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.spares.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        *self.stage.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.groups.sweep_own();
    }
}

/// A [`Plan`](wire::Plan) that borrows what the launch already has.
#[derive(serde::Serialize)]
struct PlanRef<'a> {
    program: &'a Program,
    cwd: &'a std::path::Path,
    volumes: &'a [&'a Volume],
    network: Network,
    limits: &'a Limits,
    memory_held: bool,
}

const NO_INTERPRETER: &str = "the interpreter that its first line names is not there; a line that ends in CR LF names \
                              one with a CR at its end";
const NO_PROGRAM: &str = "it is neither a program of this machine nor a script with `#!` in its first line; name its \
                          interpreter";

/// What a report other than success means to the caller.
pub(crate) fn failure(report: &Report, what: &Launch) -> SandboxError {
    let program = what.program.clone();
    match report {
        Report::NotStarted { errno: libc::ENOENT | libc::ENOTDIR, found: false } => {
            let env = what.environment();
            let path = env.into_iter().find(|(name, _)| name == "PATH").map(|(_, value)| value);
            SandboxError::NotFound { program, path: path.unwrap_or_default() }
        }
        Report::NotStarted { errno, .. } => {
            let reason = match *errno {
                libc::ENOENT => NO_INTERPRETER.to_owned(),
                libc::ENOEXEC => NO_PROGRAM.to_owned(),
                libc::EACCES => "it lacks the right to be executed".to_owned(),
                other => io::Error::from_raw_os_error(other).to_string(),
            };
            SandboxError::NotExecutable { program, reason }
        }
        Report::NoDirectory { errno } => SandboxError::WorkingDirectory {
            path: what.cwd.clone(),
            source: io::Error::from_raw_os_error(*errno),
        },
        Report::Failed(fault) => match what.mounts.iter().find(|mount| {
            fault.step.strip_prefix("volume ").is_some_and(|inside| mount.inside.as_os_str() == inside)
        }) {
            Some(mount) => volumes::refused(mount, volumes::explain(&fault.error())),
            None => SandboxError::setup(&fault.step, fault.error()),
        },
        other => SandboxError::setup("start", format!("unexpected answer {other:?}")),
    }
}
