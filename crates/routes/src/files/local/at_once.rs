//! Reading a small file without waiting for anything: names and content must be in the kernel's caches already.
//! What is not, or is in any way special, is left to the way that may block.

use std::{io::IoSliceMut, os::fd::AsFd};

use aegis_core::config::HardLinks;
use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::ReadWriteFlags,
};

use super::{READ, Root, readable, resolve::Confinement, size_of};
use crate::files::{
    place::Place,
    storage::{Content, Portion},
};

/// Larger files take the other way: even a copy out of memory takes its time.
const SMALL: u64 = 64 << 10;

/// `statfs` names of file systems whose `open` and `close` touch memory only: ext2 to ext4, XFS, Btrfs, F2FS.
/// Others may have to ask a server, or a process.
const LOCAL: [u32; 4] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010];
/// All of a tmpfs is in memory, and it does not know the flag that says so.
const TMPFS: u32 = 0x0102_1994;

/// How to read without waiting in this volume, where that can be done.
pub(super) fn way(root: &Root) -> Option<ReadWriteFlags> {
    if root.confinement() != Confinement::Kernel {
        return None;
    }
    let kind = rustix::fs::fstatfs(root.fd()).ok()?.f_type;
    let is = |known: u32| i128::from(known) == i128::from(kind);
    if is(TMPFS) {
        return Some(ReadWriteFlags::empty());
    }
    LOCAL.into_iter().any(is).then_some(ReadWriteFlags::NOWAIT)
}

pub(super) fn read(
    root: &Root,
    way: ReadWriteFlags,
    place: &Place,
    portion: Portion,
    hard_links: HardLinks,
) -> Option<Content> {
    let resolve = ResolveFlags::CACHED
        | ResolveFlags::BENEATH
        | ResolveFlags::NO_MAGICLINKS
        // Something that is not local may be mounted inside.
        | ResolveFlags::NO_XDEV;
    let (scope, rest) = (place.scope(), place.rest());
    if rest.is_empty() {
        return None;
    }
    let base = match scope {
        "" => None,
        scope => {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = resolve | ResolveFlags::NO_SYMLINKS;
            Some(rustix::fs::openat2(root.fd(), scope, flags, Mode::empty(), resolve).ok()?)
        }
    };
    let base = base.as_ref().map_or(root.fd(), AsFd::as_fd);
    // Noting the time of access could wait for the journal.
    let fd = rustix::fs::openat2(base, rest, READ | OFlags::NOATIME, Mode::empty(), resolve).ok()?;
    let size = size_of(&readable(fd.as_fd(), hard_links).ok()?);
    let (Portion::Whole(limit) | Portion::Start(limit)) = portion;
    if size > SMALL.min(limit) {
        return None;
    }
    // One byte more than expected, to see the end.
    let mut bytes = vec![0; usize::try_from(size).ok()? + 1];
    let read = rustix::io::preadv2(&fd, &mut [IoSliceMut::new(&mut bytes)], 0, way).ok()?;
    if read as u64 != size {
        return None;
    }
    bytes.truncate(read);
    Some(Content { bytes, size })
}
