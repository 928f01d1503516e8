//! Volumes over NFS version 3, for agents that run elsewhere. An export is one volume handed to one caller for a while;
//! every request is decided by that caller's context as the call of the file tool that does the same.

mod accesses;
mod alarm;
mod answer;
mod changes;
mod export;
mod handle;
mod listing;
mod looks;
mod serve;
mod status;
mod tree;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::{Duration, Instant},
};

use crate::nfs3::Status;
use aegis_core::{
    Caller, Door, Event, Tier, Timestamp, Violation, ViolationKind,
    call::hex,
    config::NfsConfig,
    event::EventName,
    id::{ContextName, TenantId, UserId},
    nearest::suggestion,
    record::NodeRecord,
};
use aegis_plane::Plane;
use aegis_routes::files::{FileError, Files, VolumeSummary};
use aegis_stores::DataDir;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::{
    alarm::Alarm,
    export::{Export, NewExport},
    handle::{ExportId, HandleKey},
};

pub use self::{export::ExportSummary, handle::KeyError};

const LONGEST_EXPORT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How often accesses that have been idle, and exports whose time is up, are ended.
const SWEEP: Duration = Duration::from_millis(500);
/// How long requests in work may take once their export has ended.
const LAST_WORK: Duration = Duration::from_secs(10);
const NAME: &str = "export:";

/// The exports of a node, and who answers for them.
#[derive(Debug)]
pub struct Gateway {
    plane: Arc<Plane>,
    files: Arc<Files>,
    config: NfsConfig,
    key: Option<HandleKey>,
    exports: RwLock<HashMap<ExportId, Arc<Export>>>,
    address: OnceLock<SocketAddr>,
    /// Changes with every start: what was written and not committed may be lost then.
    verifier: u64,
    alarm: Alarm,
}

/// What an operator asks for.
#[derive(Debug, Clone)]
pub struct WantedExport {
    pub context: ContextName,
    pub tenant: TenantId,
    pub user: UserId,
    pub volume: Option<String>,
    pub lasting: Duration,
}

/// An export that was made, and how to get at it.
#[derive(Debug, Clone)]
pub struct MadeExport {
    pub summary: ExportSummary,
    pub address: SocketAddr,
    /// The secret that a client mounts by.
    pub mount_path: String,
}

impl MadeExport {
    /// What to type on the agent's machine.
    pub fn mount_command(&self) -> String {
        let (host, port) = (host(self.address), self.address.port());
        format!(
            "mount -t nfs -o vers=3,proto=tcp,mountproto=tcp,port={port},mountport={port},nolock,soft \
             {host}:{} /mnt",
            self.mount_path
        )
    }

    /// For libraries that need no mount, such as libnfs.
    pub fn url(&self) -> String {
        let (host, port) = (host(self.address), self.address.port());
        format!("nfs://{host}{}/?version=3&nfsport={port}&mountport={port}", self.mount_path)
    }
}

fn host(address: SocketAddr) -> String {
    if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() }
}

impl Gateway {
    pub fn open(
        plane: &Arc<Plane>,
        files: &Arc<Files>,
        config: &NfsConfig,
        data: &DataDir,
    ) -> Result<Arc<Self>, KeyError> {
        let key = if config.enabled { Some(HandleKey::open(data)?) } else { None };
        let mut verifier = [0; 8];
        getrandom::fill(&mut verifier).map_err(KeyError::Randomness)?;
        Ok(Arc::new(Self {
            plane: Arc::clone(plane),
            files: Arc::clone(files),
            config: config.clone(),
            key,
            exports: RwLock::default(),
            address: OnceLock::new(),
            verifier: u64::from_be_bytes(verifier),
            alarm: Alarm::default(),
        }))
    }

    /// Takes its place in the network, if it is to have one. Exports can be made from then on.
    pub async fn bind(&self) -> std::io::Result<Option<TcpListener>> {
        if !self.config.enabled {
            return Ok(None);
        }
        let listener = TcpListener::bind(self.config.listen).await?;
        let _ = self.address.set(listener.local_addr()?);
        Ok(Some(listener))
    }

    pub async fn volumes(&self, tenant: &TenantId) -> Result<Vec<VolumeSummary>, Violation> {
        self.files.volumes_of(tenant).await.map_err(|error| unusable(&error))
    }

    /// Whether volumes can be exported at all.
    pub fn is_enabled(&self) -> bool {
        self.config.enabled
    }

    pub fn list(&self) -> Vec<ExportSummary> {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<ExportSummary> =
            exports.values().filter(|export| export.is_live()).map(|export| export.summary()).collect();
        found.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
        found
    }

    /// Makes an export, on behalf of an operator.
    pub async fn export(&self, operator: &Caller, wanted: WantedExport) -> Result<MadeExport, Violation> {
        let refused = |message: String| Violation::new(ViolationKind::MalformedRequest, message);
        let Some(address) = self.address.get().copied() else {
            return Err(Violation::new(ViolationKind::Conflict, "this node does not speak NFS")
                .rule("spec.storage.nfs.enabled")
                .hint("set `enabled: true` there, start the node again with `aegis up`, and export then"));
        };
        self.plane.policy().contexts().named(wanted.context.as_str())?;
        if wanted.lasting.is_zero() || wanted.lasting > LONGEST_EXPORT {
            return Err(refused("an export lasts from one second to 30 days".into()));
        }
        let attachment = match self.files.attach(&wanted.tenant, wanted.volume.as_deref()).await {
            Ok(attachment) => attachment,
            Err(error) => {
                return Err(match (&error, &wanted.volume) {
                    (FileError::NoVolume, Some(volume)) => self.no_volume(&wanted.tenant, volume).await?,
                    _ => unusable(&error),
                });
            }
        };
        let (mut id, mut secret) = ([0; 16], [0; 16]);
        for bytes in [&mut id, &mut secret] {
            getrandom::fill(bytes).map_err(|error| {
                Violation::new(ViolationKind::InternalError, format!("no random numbers: {error}"))
            })?;
        }
        let name = format!("{NAME}{}", hex(&id));
        let caller = Caller {
            tenant: wanted.tenant,
            user: wanted.user,
            tier: Tier::User,
            context: wanted.context,
            credential: name.as_str().into(),
            door: Door::Nfs,
            session: Some(name.as_str().into()),
            pinned: None,
        };
        // The root has no way to it that could be refused: whether it may be looked at is asked when it is.
        let root = attachment.root().await.map_err(|error| unusable(&error))?;
        let secret = format!("/{}", hex(&secret));
        let export = Arc::new(Export::new(NewExport {
            id: ExportId(id),
            name,
            caller,
            attachment,
            secret: secret.clone(),
            root: root.identity,
            lasting: wanted.lasting,
        }));
        let summary = export.summary();
        {
            let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
            let live = exports.values().filter(|export| export.is_live()).count();
            if live >= self.config.max_exports as usize {
                return Err(Violation::new(
                    ViolationKind::Overloaded,
                    format!("{live} exports are in use, which is the limit"),
                )
                .rule("spec.storage.nfs.max_exports")
                .hint("end one with `aegis volume unexport`"));
            }
            exports.insert(ExportId(id), Arc::clone(&export));
        }
        if let Err(violation) = self.note(Some(operator), "volume-exported", &summary).await {
            // An export that the record does not know must not be usable.
            self.forget(&export);
            return Err(violation);
        }
        self.plane.bus().announce_to(&export.caller.tenant, told(EventName::VolumeExported, &summary));
        Ok(MadeExport { summary, address, mount_path: secret })
    }

    async fn no_volume(&self, tenant: &TenantId, name: &str) -> Result<Violation, Violation> {
        let there = self.volumes(tenant).await?;
        let shown: String = name.chars().take(80).collect();
        let close = suggestion(&shown, there.iter().map(|volume| volume.id.as_str()));
        let message = format!("the tenant `{tenant}` has no volume `{shown}`{close}");
        Ok(Violation::new(ViolationKind::UnknownName, message)
            .hint("`aegis volume list` shows those there are"))
    }

    /// Ends an export. Its handles are worth nothing from now on.
    pub async fn unexport(&self, operator: &Caller, name: &str) -> Result<ExportSummary, Violation> {
        let found = {
            let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
            exports.values().find(|export| export.name == name && export.is_live()).cloned()
        };
        let export = found.ok_or_else(|| {
            let shown: String = name.chars().take(80).collect();
            Violation::new(ViolationKind::UnknownName, format!("there is no export `{shown}`"))
                .hint("`aegis volume list` shows those there are")
        })?;
        self.end(&export, Some(operator)).await?;
        Ok(export.summary())
    }

    /// Ends every export, in order: each access gets its record.
    pub async fn close(&self) {
        for export in self.all() {
            if let Err(violation) = self.end(&export, None).await {
                tracing::error!(%violation, "the end of an export could not be recorded");
            }
        }
    }

    /// Ends what is idle or over, until the node stops.
    async fn sweep(&self, stopping: &CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(SWEEP) => {}
                () = stopping.cancelled() => return,
            }
            for export in self.all() {
                export.accesses.sweep(&self.plane).await;
                if !export.is_live()
                    && let Err(violation) = self.end(&export, None).await
                {
                    tracing::error!(%violation, "the end of an export could not be recorded");
                }
            }
        }
    }

    async fn end(&self, export: &Arc<Export>, operator: Option<&Caller>) -> Result<(), Violation> {
        if !self.forget(export) {
            return Ok(());
        }
        // Requests that are in work are still recorded.
        let patience = Instant::now() + LAST_WORK;
        while !export.accesses.finish(&self.plane).await && Instant::now() < patience {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let summary = export.summary();
        self.plane.bus().announce_to(&export.caller.tenant, told(EventName::ExportEnded, &summary));
        self.note(operator, "volume-unexported", &summary).await
    }

    /// Whether it was there until now.
    fn forget(&self, export: &Export) -> bool {
        export.end();
        self.exports.write().unwrap_or_else(PoisonError::into_inner).remove(&export.id).is_some()
    }

    fn all(&self) -> Vec<Arc<Export>> {
        self.exports.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    async fn note(
        &self,
        operator: Option<&Caller>,
        action: &str,
        summary: &ExportSummary,
    ) -> Result<(), Violation> {
        let mut detail = Map::new();
        detail.insert("export".into(), json!(summary));
        self.record(operator, action, detail).await
    }

    async fn record(
        &self,
        caller: Option<&Caller>,
        action: &str,
        detail: Map<String, Value>,
    ) -> Result<(), Violation> {
        let caller = caller.cloned();
        self.plane
            .note(NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller, detail })
            .await
    }

    /// Tells of a handle or mount path that gives no right, and what the client hears.
    async fn unauthorized(&self, export: Option<&Export>, reason: &str, status: Status) -> Status {
        self.plane.meters().refused(ViolationKind::UnauthorizedVolumeAccess);
        let event = Event::new(EventName::UnauthorizedVolumeAccess).with("reason", reason);
        let event = match export {
            Some(export) => event.with("export", export.name.as_str()),
            None => event,
        };
        match export {
            Some(export) => self.plane.bus().announce_to(&export.caller.tenant, event),
            None => self.plane.bus().announce_node(event),
        }
        if let Some(missed) = self.alarm.count() {
            let mut detail = Map::new();
            detail.insert("violation".into(), ViolationKind::UnauthorizedVolumeAccess.as_str().into());
            detail.insert("reason".into(), reason.into());
            if missed > 0 {
                detail.insert("unrecorded_before".into(), missed.into());
            }
            if let Some(export) = export {
                detail.insert("export".into(), export.name.as_str().into());
            }
            let caller = export.map(|export| &export.caller);
            if let Err(violation) = self.record(caller, "unauthorized-volume-access", detail).await {
                tracing::error!(%violation, "an unauthorized access could not be recorded");
            }
        }
        status
    }
}

fn told(name: EventName, summary: &ExportSummary) -> Event {
    Event::new(name)
        .with("export", summary.id.as_str())
        .with("volume", summary.volume.as_str())
        .with("context", summary.context.as_str())
}

fn unusable(error: &FileError) -> Violation {
    Violation::new(ViolationKind::InternalError, format!("the volume can't be used: {error}"))
}
