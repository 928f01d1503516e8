//! Volumes as directories of this machine, for programs that a sandbox shows them to. What such programs write is not
//! booked anywhere, so what a volume holds is measured anew around them.

use std::{
    fs::{DirBuilder, File},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::Arc,
};

use aegis_core::{
    VolumePath,
    config::AccessMode,
    id::{TenantId, VolumeId},
    path::PathPrefix,
};
use tokio_util::sync::CancellationToken;

use super::{Files, error::FileError, place::Place, volume::Volume};

/// One volume of a tenant, and where its files are.
#[derive(Debug, Clone)]
pub struct HostVolume {
    volume: Arc<Volume>,
}

impl HostVolume {
    pub fn id(&self) -> &VolumeId {
        &self.volume.id
    }

    /// The directory of this machine, without symbolic links.
    pub fn host(&self) -> &PathBuf {
        &self.volume.host
    }

    pub fn mount_path(&self) -> &VolumePath {
        &self.volume.mount_path
    }

    pub fn access(&self) -> AccessMode {
        self.volume.access
    }

    /// Makes a directory of the volume that is missing, with those above it. Passes through no link. Blocks.
    pub fn make_directory(&self, path: &VolumePath) -> Result<(), FileError> {
        let cancel = CancellationToken::new();
        let place = Place::new(path.clone(), &self.volume.mount_path, path.as_str().len())?;
        self.volume.storage.create_dir(&place, &self.volume.terms(&cancel)?).map(drop)
    }

    /// How much more it may hold; `None` without a limit. Blocks while it is measured.
    pub fn room(&self) -> Result<Option<u64>, FileError> {
        let usage = || self.volume.storage.usage(&CancellationToken::new());
        let known = self.volume.quota().limit_and_use(&usage)?;
        Ok(known.map(|(limit, used)| limit.saturating_sub(used)))
    }

    /// What it holds has changed behind the node's back: it is measured at the next need.
    pub fn forget(&self) {
        self.volume.quota().forget();
    }

    /// It has grown behind the node's back, by about so much.
    pub fn grew(&self, bytes: u64) {
        self.volume.quota().grew(bytes);
    }
}

/// A directory and a file of this machine that are empty and stay so, to be seen in place of others.
#[derive(Debug, Clone)]
pub struct Blank {
    pub directory: PathBuf,
    pub file: PathBuf,
}

impl Files {
    /// Makes what is missing of it. Blocks.
    pub fn blank(&self) -> Result<Blank, FileError> {
        // No tenant can have this name.
        let above = self.volumes.directory().join(".blank");
        let blank = Blank { directory: above.join("directory"), file: above.join("file") };
        let make = || {
            DirBuilder::new().recursive(true).mode(0o755).create(&blank.directory)?;
            File::options().write(true).create(true).truncate(true).open(&blank.file)?;
            // The sandbox takes no path with links in it, and the operator's may have some.
            Ok(Blank { directory: blank.directory.canonicalize()?, file: blank.file.canonicalize()? })
        };
        make().map_err(FileError::System)
    }

    /// The volumes of a tenant that lie wholly within `granted` (`None`: all), in the order in which to mount them.
    ///
    /// A grant of a part of a volume does not count: what is mounted is mounted whole.
    pub async fn host_volumes(
        self: &Arc<Self>,
        tenant: &TenantId,
        granted: Option<&[PathPrefix]>,
    ) -> Result<Vec<HostVolume>, FileError> {
        let (files, tenant) = (Arc::clone(self), tenant.clone());
        let mounts = tokio::task::spawn_blocking(move || files.volumes.of(&tenant))
            .await
            .map_err(|error| FileError::System(std::io::Error::other(error)))??;
        let within = |volume: &Arc<Volume>| {
            granted.is_none_or(|prefixes| prefixes.iter().any(|prefix| prefix.covers(&volume.mount_path)))
        };
        // The deepest come first in a tenant's mounts, and must be mounted last.
        let mounted = mounts.iter().rev().filter(|volume| within(volume));
        Ok(mounted.map(|volume| HostVolume { volume: Arc::clone(volume) }).collect())
    }
}
