//! The node's side of its stage: started once, asked for sandboxes and volumes, gone with the node.

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::NativeSettings;
use crate::{
    SandboxError,
    launch::Mount,
    stage::{Prepare, STAGE_NAME},
    wire::{self, Hello, Open, Setup},
};

/// How long the stage may take for one answer; it does nothing that waits for anyone.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running stage. Dropping it ends every sandbox it made.
#[derive(Debug)]
pub(super) struct StageProcess {
    child: Mutex<Child>,
    /// Questions and answers about volumes come in pairs.
    door: Mutex<OwnedFd>,
    /// Orders to the nursery; each is one message, answered by the sandbox itself.
    nursery: Mutex<OwnedFd>,
    /// For volumes of root.
    pub(super) mapping: Result<Option<OwnedFd>, String>,
    /// The user that programs run as on the host.
    pub(super) user: Option<u32>,
}

impl StageProcess {
    pub(super) fn start(settings: &NativeSettings) -> Result<Self, SandboxError> {
        let root = rustix::process::geteuid().is_root();
        let setup = Setup {
            become_user: root.then_some(settings.user),
            system: settings.system.clone(),
            etc: settings.etc.clone(),
        };
        let spawn = || -> io::Result<_> {
            let (door, inner_door) = wire::pair()?;
            let (nursery, inner_nursery) = wire::pair()?;
            let child = Command::new(&settings.executable)
                .arg0(STAGE_NAME)
                // For whoever reads a list of processes.
                .arg(format!("node-{}", std::process::id()))
                .env_clear()
                .current_dir("/")
                .stdin(Stdio::from(inner_door))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let stage = Self {
                child: Mutex::new(child),
                door: Mutex::new(door),
                nursery: Mutex::new(nursery),
                mapping: Ok(None),
                user: root.then_some(settings.user.0),
            };
            wire::send(&*lock(&stage.door), &setup, &[inner_nursery.as_fd()])?;
            for socket in [&stage.door, &stage.nursery] {
                be_patient(&*lock(socket))?;
            }
            Ok(stage)
        };
        let mut stage = spawn().map_err(SandboxError::Stage)?;
        let (mapping, namespace) = hello(&stage.door)?;
        let _ = hello(&stage.nursery)?;
        stage.mapping = mapping.map(|_| namespace);
        Ok(stage)
    }

    /// Whether the process has ended.
    pub(super) fn is_gone(&self) -> bool {
        !matches!(lock(&self.child).try_wait(), Ok(None))
    }

    /// Has the nursery raise a sandbox that reports to that socket.
    pub(super) fn prepare(&self, control: &OwnedFd, groups: &[OwnedFd]) -> io::Result<()> {
        let descriptors: Vec<_> = std::iter::once(control).chain(groups).map(AsFd::as_fd).collect();
        wire::send(&*lock(&self.nursery), &Prepare, &descriptors)
    }

    /// Has the stage open a volume.
    pub(super) fn open_volume(&self, mount: &Mount) -> io::Result<OwnedFd> {
        let door = lock(&self.door);
        wire::send(&*door, &Open { path: mount.host.clone(), access: mount.access }, &[])?;
        let mut descriptors = Vec::new();
        match wire::receive::<Result<(), i32>>(&*door, &mut descriptors)? {
            Some(Ok(())) => descriptors.pop().ok_or_else(|| io::ErrorKind::InvalidData.into()),
            Some(Err(errno)) => Err(io::Error::from_raw_os_error(errno)),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Drop for StageProcess {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn be_patient(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_timeout(socket, rustix::net::sockopt::Timeout::Recv, Some(PATIENCE))?)
}

/// What the stage said, and the descriptor it sent along.
type Greeting = (Result<bool, String>, Option<OwnedFd>);

fn hello(socket: &Mutex<OwnedFd>) -> Result<Greeting, SandboxError> {
    let mut descriptors = Vec::new();
    match wire::receive::<Hello>(&*lock(socket), &mut descriptors) {
        Ok(Some(Hello::Ready { mapping })) => Ok((mapping, descriptors.pop())),
        Ok(Some(Hello::Failed(fault))) => Err(SandboxError::setup(&fault.step, fault.error())),
        Ok(None) => Err(SandboxError::Stage(io::ErrorKind::BrokenPipe.into())),
        Err(error) => Err(SandboxError::Stage(error)),
    }
}
