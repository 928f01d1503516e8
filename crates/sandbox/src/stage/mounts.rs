//! Mounts made, cloned and set in place through descriptors, so that no path is looked up twice.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags},
};

/// A place in the file tree, not an open file: no rights to its content are needed or gained.
pub(crate) const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// Whoever made them, no program gains rights or reaches a device by them.
pub(crate) const PLAIN: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);
const AT_RECURSIVE: u32 = 0x8000;

/// A new file system that nobody else has mounted.
pub(super) fn fresh(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// A detached copy of what is mounted at a place, and below it.
pub(crate) fn copy(directory: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::from_bits_retain(AT_RECURSIVE);
    rustix::mount::open_tree(directory, path, flags)
}

/// Sets a detached mount onto a place below a directory.
pub(crate) fn set(mount: &OwnedFd, directory: impl AsFd, path: &str) -> Result<(), Errno> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    rustix::mount::move_mount(mount, "", directory, path, flags)
}

/// Makes the tree behind a descriptor the root, and lets go of the old one with everything in it.
pub(super) fn enter(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::mount::unmount(".", rustix::mount::UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

/// Opens a place of the host that no symbolic link leads to.
pub(crate) fn place(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        CWD,
        path,
        PLACE,
        Mode::empty(),
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The place for a volume below a root, made where it is missing. A volume mounted earlier may hold part of the way, and
/// an agent may have put a symbolic link there: each step is taken by itself, and none through a link.
pub(super) fn landing(root: impl AsFd, inside: &Path, file: bool) -> io::Result<OwnedFd> {
    let mut here = rustix::io::dup(root)?;
    let parts: Vec<_> = inside
        .components()
        .filter_map(|part| if let Component::Normal(name) = part { Some(name) } else { None })
        .collect();
    for (index, name) in parts.iter().enumerate() {
        let last = index + 1 == parts.len();
        let made = if last && file {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            rustix::fs::openat(&here, *name, flags, Mode::from_raw_mode(0o644)).map(drop)
        } else {
            rustix::fs::mkdirat(&here, *name, Mode::from_raw_mode(0o755))
        };
        // A read-only volume may hold the place already; whether it does shows in the next step.
        let refused = made.err().filter(|error| *error != Errno::EXIST);
        let kind = if last && file { OFlags::empty() } else { OFlags::DIRECTORY };
        let next = rustix::fs::openat(&here, *name, PLACE | OFlags::NOFOLLOW | kind, Mode::empty());
        here = match (next, refused) {
            (Ok(next), _) => next,
            (Err(_), Some(error)) | (Err(error), None) => return Err(error.into()),
        };
    }
    let found = rustix::fs::fstat(&here)?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Symlink {
        return Err(Errno::LOOP.into());
    }
    Ok(here)
}
