//! The OCI backend: `podman` or `docker` make the container, and the node's own stage is its first process.
//!
//! ```text
//! node ── engine run --detach …     the namespaces, the image as a read-only root, volumes, control groups
//!   ║        └─ container
//!   ║              └─ stage         mounted read-only with its libraries, whatever the image holds
//!   ╚══ socket ═══════╝  └─ program and what it starts
//! ```
//!
//! The stage calls the node over a socket that stands in the container, and gets streams, limits and program over it, as the
//! first process of a native sandbox does. Output never passes through the engine, ends are told exactly, the proxy's
//! listener comes back as a descriptor, Landlock and the filter of system calls lie on top of what the engine sets up, and
//! a node that dies takes its containers along.

mod carrier;
mod engine;
mod home;
mod inside;
mod probe;
mod profile;
mod start;
mod volumes;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::sync::Semaphore;

pub(crate) use self::inside::{MAPPING_ROLE, ROLE, main as container_main, map_volumes};
use self::{carrier::Carrier, engine::Engine, home::Home, probe::Found, start::Fresh};
use crate::{
    Backend, Floor, Layers, SandboxError, launch::Launch, native::take_over, running::Running, wire::Program,
};

/// How long the engine's own process may take to end once its container runs.
const FAREWELL: Duration = Duration::from_secs(60);

/// What the OCI backend needs to know of its host.
#[derive(Debug, Clone)]
pub struct OciSettings {
    /// The image for launches that name none. It must be there already: nothing is ever pulled.
    pub image: String,
    /// `podman` or `docker`, by path; `None` looks for them in PATH, in this order.
    pub engine: Option<PathBuf>,
    /// Options of the engine itself, before its command: where its storage is, and how it stores.
    pub engine_options: Vec<String>,
    /// The runtime below the engine, by name or path; `None` tries the engine's own, then `runc`.
    pub runtime: Option<String>,
    /// The binary that serves as the stage: it must call [`stage_main`](crate::stage_main) first thing when
    /// [`is_stage`](crate::is_stage). It has to be readable and executable by everyone.
    pub executable: PathBuf,
    /// A directory for sockets and staged volumes, made when missing; only the node's user may change it. Nodes with the
    /// same directory clear away what one of them left behind.
    pub state: PathBuf,
    /// Containers that may be starting at one time; engines don't get faster by more.
    pub starts: usize,
}

impl OciSettings {
    /// The usual settings, with that image.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            engine: None,
            engine_options: Vec::new(),
            runtime: None,
            executable: PathBuf::from("/proc/self/exe"),
            state: usual_state(),
            starts: std::thread::available_parallelism().map_or(2, std::num::NonZero::get) * 2,
        }
    }
}

/// A directory that is gone with the next boot, where there is one.
fn usual_state() -> PathBuf {
    let user = rustix::process::geteuid();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    match runtime {
        _ if user.is_root() => PathBuf::from("/run/aegis-sandbox"),
        Some(directory) => directory.join("aegis-sandbox"),
        None => std::env::temp_dir().join(format!("aegis-sandbox-{}", user.as_raw())),
    }
}

/// The OCI backend. Dropping it leaves running containers to their [`Running`]s.
pub struct Oci {
    shared: Arc<Shared>,
}

impl fmt::Debug for Oci {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Oci").field("layers", &self.shared.layers).finish_non_exhaustive()
    }
}

struct Shared {
    floor: Floor,
    layers: Layers,
    found: Option<Found>,
    starts: Arc<Semaphore>,
}

/// What every container of this backend stands on.
struct Ground {
    engine: Engine,
    carrier: Carrier,
    home: Arc<Home>,
    image: String,
    executable: PathBuf,
}

impl Ground {
    fn find(settings: &OciSettings) -> Result<Self, String> {
        profile::check_image(&settings.image).map_err(|error| error.to_string())?;
        let engine = Engine::find(settings.engine.as_deref(), &settings.engine_options)
            .map_err(|error| error.to_string())?;
        let carrier = Carrier::new(&settings.executable).map_err(|error| error.to_string())?;
        let home = open_home(&settings.state).map_err(|error| error.to_string())?;
        let swept = home.sweep(&engine);
        if swept > 0 {
            tracing::info!(swept, "removed containers that an earlier node left");
        }
        Ok(Self {
            engine,
            carrier,
            home: Arc::new(home),
            image: settings.image.clone(),
            executable: settings.executable.clone(),
        })
    }
}

fn open_home(state: &Path) -> io::Result<Home> {
    Home::open(state).map_err(|error| {
        io::Error::new(error.kind(), format!("directory of containers {}: {error}", state.display()))
    })
}

impl Oci {
    /// Looks for an engine, removes what a node left that was killed, and tries every layer with a throw-away container.
    /// Blocks for some seconds. A host that holds too little still gives a backend: one that says so and refuses every
    /// launch.
    pub fn new(settings: &OciSettings, floor: Floor) -> Self {
        let tried = Ground::find(settings).and_then(|ground| probe::look(ground, settings));
        let (found, layers) = match tried {
            Ok((found, layers)) => (Some(found), layers),
            Err(reason) => (None, Layers::none(&reason)),
        };
        let starts = Arc::new(Semaphore::new(settings.starts.clamp(1, 64)));
        Self { shared: Arc::new(Shared { floor, layers, found, starts }) }
    }
}

impl Backend for Oci {
    fn name(&self) -> &'static str {
        "oci"
    }

    fn layers(&self) -> &Layers {
        &self.shared.layers
    }

    fn launch(&self, what: Launch) -> BoxFuture<'_, Result<Running, SandboxError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let gone = |error: String| SandboxError::Stage(io::Error::other(error));
            what.check()?;
            let place =
                Arc::clone(&shared.starts).acquire_owned().await.map_err(|error| gone(error.to_string()))?;
            let wall = what.limits.wall;
            let fresh = tokio::task::spawn_blocking(move || {
                let _place = place;
                shared.launch(&what)
            });
            let Fresh { started, asked, .. } = fresh.await.map_err(|error| gone(error.to_string()))??;
            let running = take_over(started, wall).map_err(SandboxError::Stage);
            drop(tokio::task::spawn_blocking(move || asked.wait(FAREWELL)));
            running
        })
    }
}

impl Shared {
    fn launch(&self, what: &Launch) -> Result<Fresh, SandboxError> {
        self.floor.check(&self.layers)?;
        let Some(Found { ground, manner, owner }) = &self.found else {
            return Err(SandboxError::setup("start", "no container engine works here"));
        };
        let argv = std::iter::once(&what.program).chain(&what.args).cloned().collect();
        ground.start(manner, owner, what, Program::Run { argv, env: what.environment() })
    }
}
