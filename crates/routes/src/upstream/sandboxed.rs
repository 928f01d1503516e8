//! Servers whose program runs in a sandbox: it sees the mounts and reaches the domains that its entry names, and nothing
//! else of this machine, its network and the node.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use aegis_core::{
    Event, Grant,
    config::{
        AccessMode, ExecConfig, McpServer, SandboxChoice,
        upstream::{MountSource, ServerMount, ServerSandbox},
    },
    id::TenantId,
    progress::{Listener, Progress},
};
use aegis_mcp_client::{Error, Host, Hosted};
use aegis_sandbox::{Access, Exit, Input, Launch, Limits, Mount, Network, Running, Signal};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::{
    egress::Egress,
    exec::{
        Sandbox, disk,
        environment::show_way_out,
        launch::access_of,
        proxy::{Pace, Proxy},
    },
    files::{Files, HostVolume},
};

/// How long a program may take to go once its input is closed, and once it was asked to.
const FAREWELL: Duration = Duration::from_secs(2);
/// A place of its own, gone with it.
const SCRATCH: &str = "/tmp";

/// What the node confines servers with.
#[derive(derive_more::Debug)]
pub struct Confinement {
    pub sandbox: Sandbox,
    pub exec: ExecConfig,
    pub egress: Egress,
    pub files: Arc<Files>,
    /// Where connections out of sandboxes are recorded.
    #[debug(skip)]
    pub journal: Arc<dyn Listener>,
    /// The node's own directory, which no server is shown.
    pub data: PathBuf,
}

/// One server's program, ready to be started.
pub(super) struct Confined<'a> {
    pub(super) confinement: &'a Confinement,
    launch: Launch,
    choice: SandboxChoice,
    /// Those that the program can write to.
    volumes: Vec<HostVolume>,
    grant: Arc<Grant>,
    server: String,
}

impl Confinement {
    /// Puts together what the server is to see; `environment` is all that it is given besides.
    pub(super) async fn confine<'a>(
        &'a self,
        server: &McpServer,
        wanted: &ServerSandbox,
        tenant: &TenantId,
        environment: Vec<(String, String)>,
    ) -> Result<Confined<'a>, String> {
        let mut volumes = Vec::new();
        let mut mounts = Vec::new();
        for declared in &wanted.mounts {
            let (mount, volume) = self.mount(declared, tenant).await?;
            if mount.access == Access::ReadWrite {
                volumes.extend(volume);
            }
            mounts.push(mount);
        }
        let network = if wanted.egress.is_empty() { Network::None } else { Network::Proxy };
        let mut environment: BTreeMap<String, String> = environment.into_iter().collect();
        if network == Network::Proxy {
            show_way_out(&mut environment);
        }
        let (limits, of_commands) = (&server.resource_limits, &self.exec.limits);
        let launch = Launch {
            program: server.executable.clone().unwrap_or_default(),
            args: server.args.clone(),
            env: environment.into_iter().collect(),
            cwd: PathBuf::from(server.working_directory.as_deref().unwrap_or(SCRATCH)),
            stdin: Input::Pipe,
            mounts,
            network,
            limits: Limits {
                memory: u64::from(limits.memory_mb) << 20,
                processes: limits.processes,
                cpu: f64::from(limits.cpu_millicores) / 1000.0,
                wall: Duration::MAX,
                file_size: of_commands.file_size.0,
                scratch: of_commands.scratch.0,
                open_files: of_commands.open_files,
            },
            image: None,
        };
        let choice = SandboxChoice { image: wanted.image.clone(), ..SandboxChoice::default() };
        let grant = Grant {
            rule: format!("spec.mcp_servers: {}: sandbox.egress", server.name),
            domains: Some(wanted.egress.clone()),
            ..Grant::default()
        };
        let server = server.name.clone();
        Ok(Confined { confinement: self, launch, choice, volumes, grant: Arc::new(grant), server })
    }

    async fn mount(
        &self,
        declared: &ServerMount,
        tenant: &TenantId,
    ) -> Result<(Mount, Option<HostVolume>), String> {
        let inside = PathBuf::from(declared.inside());
        let wanted = access_of(declared.access);
        match declared.source() {
            Some(MountSource::Host(place)) => {
                let host = PathBuf::from(place);
                if overlap(&host, &self.data) {
                    return Err(format!(
                        "{place} would show it the node's own directory, {}; mount another place, or a `volume`",
                        self.data.display()
                    ));
                }
                Ok((Mount { host, inside, access: wanted }, None))
            }
            Some(MountSource::Volume(place)) => {
                let volumes =
                    self.files.host_volumes(tenant, None).await.map_err(|error| error.to_string())?;
                let Some(volume) = volumes.iter().find(|volume| volume.mount_path().as_str() == place) else {
                    let known: Vec<&str> =
                        volumes.iter().map(|volume| volume.mount_path().as_str()).collect();
                    return Err(format!("there is no volume at {place}; there are {}", known.join(", ")));
                };
                let access = match volume.access() {
                    AccessMode::ReadOnly => Access::ReadOnly,
                    AccessMode::ReadWrite => wanted,
                };
                Ok((Mount { host: volume.host().clone(), inside, access }, Some(volume.clone())))
            }
            None => Err("a mount says neither `host` nor `volume`".to_owned()),
        }
    }
}

/// What is wrong with a mount, or is not there yet.
pub(super) enum Unmountable {
    Never(String),
    NotYet(String),
}

impl Confinement {
    /// Why a declared mount could not be made now.
    pub(super) async fn unmountable(&self, declared: &ServerMount, tenant: &TenantId) -> Option<Unmountable> {
        if let Err(reason) = self.mount(declared, tenant).await {
            return Some(Unmountable::Never(reason));
        }
        let Some(MountSource::Host(place)) = declared.source() else { return None };
        match tokio::fs::canonicalize(place).await {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Some(Unmountable::NotYet(format!("there is nothing at {place}, which is to be mounted")))
            }
            Err(error) => {
                Some(Unmountable::NotYet(format!("{place} is to be mounted and can't be read: {error}")))
            }
            Ok(real) if real != Path::new(place) => Some(Unmountable::NotYet(format!(
                "{place} goes through a symbolic link, which no sandbox mounts; it leads to {}",
                real.display()
            ))),
            Ok(_) => None,
        }
    }
}

/// Whether one of the two places holds the other. Links need not be followed: a sandbox mounts none.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

impl Host for Confined<'_> {
    fn start(&self) -> BoxFuture<'_, Result<Hosted, Error>> {
        Box::pin(async move {
            let failed = |reason: String| Error::Start {
                program: self.launch.program.as_str().into(),
                reason: reason.into(),
            };
            // Each start on a full volume could add a little more.
            let volumes = self.volumes.clone();
            let looked = tokio::task::spawn_blocking(move || disk::refused(&volumes)).await;
            if let Some(reason) = looked.unwrap_or_else(|error| Some(error.to_string())) {
                return Err(failed(reason));
            }
            let chosen = self.confinement.sandbox.ready_for(self.choice.clone()).await.map_err(|reason| {
                failed(format!(
                    "it is to run in a sandbox, and {reason}; `aegis doctor` says what is missing"
                ))
            })?;
            let launch = Launch { image: chosen.image, ..self.launch.clone() };
            let running = chosen.backend.launch(launch).await;
            let mut running = running.map_err(|error| failed(error.to_string()))?;
            let (Some(input), Some(output), Some(complaints)) =
                (running.stdin.take(), running.stdout.take(), running.stderr.take())
            else {
                return Err(failed("it has no pipes".into()));
            };
            let kept = Kept {
                egress: self.confinement.egress.clone(),
                grant: Arc::clone(&self.grant),
                journal: Journal { server: self.server.clone(), node: Arc::clone(&self.confinement.journal) },
                volumes: self.volumes.clone(),
            };
            Ok(Hosted {
                pid: running.pid(),
                input: Box::new(input),
                output: Box::new(output),
                complaints: Box::new(complaints),
                keeper: Box::new(move |stopping| Box::pin(kept.until_the_end(running, stopping))),
            })
        })
    }
}

/// What a running program needs of the node.
struct Kept {
    egress: Egress,
    grant: Arc<Grant>,
    journal: Journal,
    volumes: Vec<HostVolume>,
}

impl Kept {
    /// Lets it out where it may go, and waits until nothing of it is left.
    async fn until_the_end(self, mut running: Running, stopping: CancellationToken) -> String {
        let door = running.proxy.take();
        let way_out = async {
            if let Some(door) = &door {
                let pace = Pace::PerMinute;
                let (grant, listener) = (&*self.grant, &self.journal);
                Proxy { egress: &self.egress, grant, listener, pace }.serve(door).await;
            }
            std::future::pending::<()>().await;
        };
        let overrun = disk::overrun(self.volumes.clone());
        let how = tokio::select! {
            exit = running.wait() => how(exit),
            overrun = overrun => {
                running.kill();
                running.wait().await;
                format!("it {overrun} and was ended")
            }
            () = stopping.cancelled() => {
                see_off(&mut running).await;
                "it was closed here".to_owned()
            }
            () = way_out => String::new(),
        };
        // What it wrote is booked nowhere.
        self.volumes.iter().for_each(HostVolume::forget);
        how
    }
}

/// Its input is closed by now, which is how a program is told to go.
async fn see_off(running: &mut Running) {
    if tokio::time::timeout(FAREWELL, running.wait()).await.is_ok() {
        return;
    }
    let _ = running.signal(Signal::Terminate);
    if tokio::time::timeout(FAREWELL, running.wait()).await.is_err() {
        running.kill();
        running.wait().await;
    }
}

fn how(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("the process ended (exit status: {code})"),
        Exit::Signal(signal) => format!("the process ended (signal: {signal})"),
        Exit::TimedOut => "the process ended (its time was up)".to_owned(),
        Exit::OutOfMemory => {
            "the process ended (it needed more memory than `resource_limits.memory_mb`)".to_owned()
        }
    }
}

/// Says of which server a connection was.
struct Journal {
    server: String,
    node: Arc<dyn Listener>,
}

impl Listener for Journal {
    fn progress(&self, _: Progress) {}

    fn event(&self, event: Event) {
        self.node.event(event.with("server", self.server.as_str()));
    }

    fn records(&self) -> bool {
        self.node.records()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_own_directory_is_shown_to_nobody() {
        let data = Path::new("/var/lib/aegis");
        for shown in ["/", "/var", "/var/lib/aegis", "/var/lib/aegis/keys"] {
            assert!(overlap(Path::new(shown), data), "{shown}");
        }
        for shown in ["/var/lib/aegis2", "/srv", "/var/lib/aeg"] {
            assert!(!overlap(Path::new(shown), data), "{shown}");
        }
    }
}
