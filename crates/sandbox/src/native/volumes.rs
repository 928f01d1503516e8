//! Volumes as detached mounts: opened by the node where it may, by its stage otherwise.

use std::{
    fs, io,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
};

use crate::{
    error::SandboxError,
    launch::{Access, Mount},
    stage::mounts,
    sys::{self, MountChange},
};

/// A detached mount of a place of the host, by a process that may make one. With a mapping, files of the node's user
/// belong to the sandbox's.
pub(crate) fn open_volume(path: &Path, access: Access, mapping: Option<&OwnedFd>) -> io::Result<OwnedFd> {
    let place = mounts::place(path)?;
    let tree = mounts::copy(&place, Path::new(""))?;
    let read_only = if access == Access::ReadOnly { sys::MOUNT_READ_ONLY } else { 0 };
    let change = MountChange {
        set: sys::MOUNT_NO_SUID | sys::MOUNT_NO_DEVICES | read_only,
        private: true,
        recursive: true,
        mapping,
    };
    sys::change_mount(&tree, &change)?;
    Ok(tree)
}

/// As root: mapped where the file system can, plain where nothing is lost by it, refused otherwise.
pub(crate) fn open_as_root(
    mount: &Mount,
    mapping: Option<&OwnedFd>,
    user: u32,
) -> Result<OwnedFd, SandboxError> {
    let refuse = |reason: String| refused(mount, reason);
    let found = fs::symlink_metadata(&mount.host).map_err(|error| refuse(error.to_string()))?;
    let plain = || open_volume(&mount.host, mount.access, None).map_err(|error| refuse(explain(&error)));
    if found.uid() == user {
        return plain();
    }
    let world = found.mode() & 0o007;
    if found.uid() != 0 {
        // Files of a third user: what it gives to everyone is all there is.
        return if mount.access == Access::ReadOnly || world & 0o2 != 0 {
            plain()
        } else {
            Err(refuse(format!(
                "it belongs to user {}, and sandboxes of a node that runs as root work on volumes of root or of user {user}; \
                 change its owner, or run the node as that user",
                found.uid()
            )))
        };
    }
    let mapped = match mapping {
        Some(mapping) => open_volume(&mount.host, mount.access, Some(mapping)),
        None => Err(io::ErrorKind::Unsupported.into()),
    };
    match mapped {
        Ok(tree) => Ok(tree),
        // Path errors come from either kind of mount; the plain one tells them.
        Err(_) if mount.access == Access::ReadOnly || world & 0o2 != 0 => plain(),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => Err(refuse(explain(&error))),
        Err(error) => Err(refuse(format!(
            "its file system has no id-mapped mounts ({error}), so the sandbox's user could not write it; \
             change its owner to user {user}, or run the node as an unprivileged user"
        ))),
    }
}

pub(crate) fn refused(mount: &Mount, reason: String) -> SandboxError {
    SandboxError::Mount { host: mount.host.clone(), inside: mount.inside.clone(), reason }
}

/// What a failure to open a volume means.
pub(crate) fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ELOOP) => "a symbolic link stands in its path; give the path it leads to".into(),
        Some(libc::ENOENT) => "it does not exist".into(),
        Some(libc::EACCES) => "the node's user may not reach it".into(),
        _ => error.to_string(),
    }
}
