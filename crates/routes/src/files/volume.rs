//! Which directory a path of a tenant is in.

use std::{
    collections::HashMap,
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use aegis_core::{
    VolumePath,
    config::{AccessMode, HardLinks, StorageConfig, TtlClass},
    id::{TenantId, VolumeId, is_dns_label},
    path::{BadPath, WORKSPACE},
};
use tokio_util::sync::CancellationToken;

use super::{
    error::FileError,
    local::{FileLocks, LocalDirectory},
    quota::Quota,
    storage::{Storage, Terms},
};

/// Workspaces held open. Past this many, those not in use are closed; the next call opens them again.
const MAX_OPEN_TENANTS: usize = 1024;
const WORKSPACE_DIRECTORY: &str = "workspace";

#[derive(Debug)]
pub struct Volume {
    pub id: VolumeId,
    pub owner: Owner,
    pub mount_path: VolumePath,
    pub access: AccessMode,
    pub size_limit: Option<u64>,
    pub ttl_class: TtlClass,
    pub(super) storage: Arc<dyn Storage>,
    /// The directory that holds it, without symbolic links.
    pub(super) host: PathBuf,
    quota: Quota,
}

/// Whose files a volume holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The operator's; every tenant sees it.
    Node,
    Tenant(TenantId),
}

impl Volume {
    pub(super) fn quota(&self) -> &Quota {
        &self.quota
    }

    /// What a change has to keep to, unless there may be none.
    pub(super) fn terms<'a>(&'a self, cancel: &'a CancellationToken) -> Result<Terms<'a>, FileError> {
        match self.access {
            AccessMode::ReadOnly => Err(FileError::ReadOnlyVolume),
            AccessMode::ReadWrite => Ok(self.looking(cancel)),
        }
    }

    /// The same for whoever only looks.
    pub(super) fn looking<'a>(&'a self, cancel: &'a CancellationToken) -> Terms<'a> {
        Terms { quota: &self.quota, cancel }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("the directory for volumes, {}, can't be used: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "volume `{volume}`: {} can't be opened as a directory: {source}; see `host_path` under \
         `spec.storage.volumes`",
        path.display()
    )]
    HostPath { volume: String, path: PathBuf, source: io::Error },
    #[error("volume `{volume}`: its mount path is wrong: {source}")]
    MountPath { volume: String, source: BadPath },
}

/// What one tenant sees, the deepest mount first.
pub(super) type Mounts = Arc<[Arc<Volume>]>;

#[derive(Debug)]
pub(super) struct Volumes {
    directory: PathBuf,
    workspace_size_limit: u64,
    hard_links: HardLinks,
    locks: Arc<FileLocks>,
    configured: Vec<Arc<Volume>>,
    tenants: RwLock<HashMap<TenantId, Mounts>>,
}

impl Volumes {
    pub(super) fn new(directory: PathBuf, config: &StorageConfig) -> Result<Self, VolumeError> {
        make_private(&directory)
            .map_err(|source| VolumeError::Directory { path: directory.clone(), source })?;
        let locks = Arc::new(FileLocks::default());
        let configured = config
            .volumes
            .iter()
            .map(|volume| {
                let path = PathBuf::from(&volume.host_path);
                let mount_path = VolumePath::parse(&volume.mount_path)
                    .map_err(|source| VolumeError::MountPath { volume: volume.name.clone(), source })?;
                let opened = LocalDirectory::open(&path, config.hard_links, locks.clone(), None)
                    .and_then(|storage| Ok((storage, path.canonicalize()?)));
                let (storage, host) = opened.map_err(|source| VolumeError::HostPath {
                    volume: volume.name.clone(),
                    path,
                    source,
                })?;
                let size_limit = volume.size_limit.map(|size| size.0);
                Ok(Arc::new(Volume {
                    id: VolumeId::new(&volume.name),
                    owner: volume
                        .tenant
                        .as_deref()
                        .map_or(Owner::Node, |tenant| Owner::Tenant(tenant.into())),
                    mount_path,
                    access: volume.access_mode,
                    size_limit,
                    ttl_class: volume.ttl_class,
                    storage: Arc::new(storage),
                    host,
                    quota: Quota::new(size_limit),
                }))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            directory,
            workspace_size_limit: config.workspace_size_limit.0,
            hard_links: config.hard_links,
            locks,
            configured,
            tenants: RwLock::default(),
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// What is open already and can be had without waiting.
    pub(super) fn of_open(&self, tenant: &TenantId) -> Option<Mounts> {
        self.tenants.try_read().ok()?.get(tenant).cloned()
    }

    pub(super) fn of(&self, tenant: &TenantId) -> Result<Mounts, FileError> {
        let known = self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned();
        if let Some(mounts) = known {
            return Ok(mounts);
        }
        let mut tenants = self.tenants.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(mounts) = tenants.get(tenant) {
            return Ok(mounts.clone());
        }
        if tenants.len() >= MAX_OPEN_TENANTS {
            // Whoever works with a volume holds it; what it has measured goes with it and is measured again.
            tenants.retain(|_, mounts| Arc::strong_count(mounts) > 1);
        }
        let mounts = self.mount(tenant)?;
        tenants.insert(tenant.clone(), mounts.clone());
        Ok(mounts)
    }

    fn mount(&self, tenant: &TenantId) -> Result<Mounts, FileError> {
        let own = Owner::Tenant(tenant.clone());
        let mut mounts: Vec<Arc<Volume>> = Vec::new();
        let theirs = self.configured.iter().filter(|volume| volume.owner == own);
        let shared = self.configured.iter().filter(|volume| volume.owner == Owner::Node);
        // At one mount point the tenant's own volume comes before one that all see.
        for volume in theirs.chain(shared) {
            if mounts.iter().all(|mounted| mounted.mount_path != volume.mount_path) {
                mounts.push(volume.clone());
            }
        }
        if mounts.iter().all(|volume| volume.mount_path.as_str() != WORKSPACE) {
            mounts.push(Arc::new(self.workspace(tenant)?));
        }
        mounts.sort_by_key(|volume| std::cmp::Reverse(volume.mount_path.as_str().len()));
        Ok(mounts.into())
    }

    fn workspace(&self, tenant: &TenantId) -> Result<Volume, FileError> {
        // Tenants are named by the operator, and still: a name becomes a directory here.
        if !is_dns_label(tenant.as_str()) {
            return Err(FileError::Workspace(io::Error::other("the tenant's name is no plain label")));
        }
        let directory = self.directory.join(tenant.as_str()).join(WORKSPACE_DIRECTORY);
        let open = || LocalDirectory::open(&directory, self.hard_links, self.locks.clone(), None);
        let (storage, host) = make_private(&directory)
            .and_then(|()| Ok((open()?, directory.canonicalize()?)))
            .map_err(FileError::Workspace)?;
        Ok(Volume {
            id: VolumeId::new(format!("{tenant}/{WORKSPACE_DIRECTORY}")),
            owner: Owner::Tenant(tenant.clone()),
            mount_path: VolumePath::parse(WORKSPACE)?,
            access: AccessMode::ReadWrite,
            size_limit: Some(self.workspace_size_limit),
            ttl_class: TtlClass::Persistent,
            storage: Arc::new(storage),
            host,
            quota: Quota::new(Some(self.workspace_size_limit)),
        })
    }

    /// The configured volumes that the node may have written to.
    pub(super) fn writable_storages(&self) -> Vec<Arc<dyn Storage>> {
        let writable = self.configured.iter().filter(|volume| volume.access == AccessMode::ReadWrite);
        writable.map(|volume| volume.storage.clone()).collect()
    }

    /// Every tenant's workspace that there is, opened when its turn comes.
    pub(super) fn workspaces(&self) -> impl Iterator<Item = io::Result<LocalDirectory>> + use<> {
        let (hard_links, locks) = (self.hard_links, self.locks.clone());
        let tenants = std::fs::read_dir(&self.directory).into_iter().flatten().flatten();
        tenants
            .map(|tenant| tenant.path().join(WORKSPACE_DIRECTORY))
            .filter(|workspace| workspace.is_dir())
            .map(move |workspace| LocalDirectory::open(&workspace, hard_links, locks.clone(), None))
    }
}

/// The volume that holds `path`: the one with the deepest mount point above it.
pub(super) fn holding<'m>(mounts: &'m Mounts, path: &VolumePath) -> Result<&'m Arc<Volume>, FileError> {
    mounts.iter().find(|volume| path.below(volume.mount_path.as_str()).is_some()).ok_or(FileError::NoVolume)
}

/// Volumes mounted further down, with their mount points relative to `path`.
pub(super) fn mounted_below<'m>(
    mounts: &'m Mounts,
    path: &'m VolumePath,
) -> impl Iterator<Item = (&'m str, &'m Arc<Volume>)> {
    mounts.iter().filter_map(|volume| {
        volume.mount_path.below(path.as_str()).filter(|rest| !rest.is_empty()).map(|rest| (rest, volume))
    })
}

fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}
