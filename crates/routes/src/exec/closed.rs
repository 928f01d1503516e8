//! Paths of a volume that are closed to the caller, in a sandbox that shows the volume.
//!
//! Something empty goes over each of them. The directories between it and the volume are mounted onto themselves: a
//! mount point can be neither renamed nor removed, so nothing below comes to stand under another name, where it would
//! be open after the command.

use std::{
    collections::BTreeSet,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use aegis_core::{Failure, FailureKind, VolumePath, config::AccessMode, path::PathPrefix};
use aegis_sandbox::{Access, Mount};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags},
    io::Errno,
};

use super::launch::access_of;
use crate::files::{Blank, FileError, HostVolume};

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

#[derive(Debug, thiserror::Error)]
pub(super) enum Uncovered {
    #[error(
        "`{path}` is on the way to a path that is closed to the caller, and it is a symbolic link, so it can't be kept from \
         a command: an operator can close the path it leads to instead"
    )]
    Link { path: String },
    #[error("what is closed at `{path}` can't be kept from a command: {source}")]
    Look { path: String, source: Errno },
    #[error("what is closed at `{path}` can't be kept from a command: {source}")]
    Make { path: String, source: FileError },
}

impl From<Uncovered> for Failure {
    fn from(error: Uncovered) -> Self {
        let kind = match &error {
            Uncovered::Link { .. } | Uncovered::Look { .. } => FailureKind::PermissionDenied,
            Uncovered::Make { source, .. } => source.kind(),
        };
        Self::new(kind, error.to_string())
    }
}

/// What to mount over the volumes. Where a closed path is missing it is made, as an empty directory: a command must not
/// be the one to make it. Blocks.
pub(super) fn covers(
    volumes: &[HostVolume],
    closed: &[PathPrefix],
    blank: &Blank,
) -> Result<Vec<Mount>, Uncovered> {
    let mut mounts = Vec::new();
    let mut seen = BTreeSet::new();
    for prefix in outermost(closed) {
        let Some((volume, path)) = holder(volumes, prefix) else { continue };
        for mount in cover(volume, &path, blank)? {
            if seen.insert(mount.inside.clone()) {
                mounts.push(mount);
            }
        }
    }
    Ok(mounts)
}

/// Those that lie below no other.
fn outermost(closed: &[PathPrefix]) -> impl Iterator<Item = &PathPrefix> {
    let above = |one: &PathPrefix| {
        let path = VolumePath::parse(one.as_str());
        move |other: &&PathPrefix| {
            path.as_ref().is_ok_and(|path| other.as_str() != path.as_str() && other.covers(path))
        }
    };
    closed.iter().filter(move |one| !closed.iter().any(|other| above(one)(&other)))
}

/// The mounted volume that the path is in: the deepest.
fn holder<'v>(volumes: &'v [HostVolume], closed: &PathPrefix) -> Option<(&'v HostVolume, VolumePath)> {
    let path = VolumePath::parse(closed.as_str()).ok()?;
    let above = volumes.iter().filter(|volume| path.below(volume.mount_path().as_str()).is_some());
    let volume = above.max_by_key(|volume| volume.mount_path().as_str().len())?;
    Some((volume, path))
}

fn cover(volume: &HostVolume, path: &VolumePath, blank: &Blank) -> Result<Vec<Mount>, Uncovered> {
    let rest = path.below(volume.mount_path().as_str()).unwrap_or_default();
    let writable = volume.access() == AccessMode::ReadWrite;
    let (mut host, mut inside) = (volume.host().clone(), PathBuf::from(volume.mount_path().as_str()));
    let look = |at: &Path, source: Errno| Uncovered::Look { path: at.display().to_string(), source };
    let mut here = open(rustix::fs::CWD, &host).map_err(|error| look(&inside, error))?;
    let mut mounts = Vec::new();
    let mut names = rest.split('/').peekable();
    while let Some(name) = names.next() {
        host.push(name);
        inside.push(name);
        let stat = || rustix::fs::statat(&here, name, AtFlags::SYMLINK_NOFOLLOW);
        let found = match stat() {
            // Nothing is there, and nothing can come to be there.
            Err(Errno::NOENT) if !writable => break,
            Err(Errno::NOENT) => {
                volume
                    .make_directory(path)
                    .map_err(|source| Uncovered::Make { path: path.to_string(), source })?;
                stat()
            }
            found => found,
        };
        let found = found.map_err(|error| look(&inside, error))?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::Symlink {
            return Err(Uncovered::Link { path: inside.display().to_string() });
        }
        let directory = kind == FileType::Directory;
        if names.peek().is_none() {
            let host = if directory { &blank.directory } else { &blank.file }.clone();
            mounts.push(Mount { host, inside: inside.clone(), access: Access::ReadOnly });
            break;
        }
        if writable {
            mounts.push(Mount {
                host: host.clone(),
                inside: inside.clone(),
                access: access_of(volume.access()),
            });
        }
        if !directory {
            // While this file stays where it is, nothing can be below it.
            break;
        }
        here = open(&here, Path::new(name)).map_err(|error| look(&inside, error))?;
    }
    Ok(mounts)
}

fn open(directory: impl std::os::fd::AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, path, PLACE | OFlags::DIRECTORY, Mode::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_volume_is_told_as_one() {
        let source = FileError::QuotaExceeded { limit: 1, used: 1, growth: 1 };
        let failure = Failure::from(Uncovered::Make { path: "/workspace/a".into(), source });
        assert_eq!(failure.kind, FailureKind::VolumeQuotaExceeded);
        let failure = Failure::from(Uncovered::Link { path: "/workspace/a".into() });
        assert_eq!(failure.kind, FailureKind::PermissionDenied);
    }

    #[test]
    fn what_lies_below_another_closed_path_is_closed_with_it() {
        let closed: Vec<PathPrefix> = ["/workspace/a/b", "/workspace/a", "/workspace/ab", "/workspace/a"]
            .map(|path| PathPrefix::parse(path).unwrap())
            .into();
        let left: Vec<&str> = outermost(&closed).map(PathPrefix::as_str).collect();
        assert_eq!(left, ["/workspace/a", "/workspace/ab", "/workspace/a"]);
    }
}
