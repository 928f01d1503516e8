//! Landlock: what of the file tree may be read, written, made and removed, held by the kernel whatever is mounted later.

use std::{os::fd::OwnedFd, path::Path};

use rustix::fs::{FileType, Mode};

use super::{At, mounts};
use crate::{
    launch::Access,
    sys,
    wire::{Fault, Plan},
};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// Rights by version of the interface: each version knows those of the ones before it.
const KNOWN: [u64; 5] = [0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff];
/// What a rule about a single file may name.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
/// Signals and abstract sockets stay among the sandbox's own processes.
const SCOPED: u64 = 0b11;
const SCOPED_SINCE: u32 = 6;

/// The rules for a plan; `None` when this kernel has no Landlock.
pub(super) fn rules(plan: &Plan) -> Result<Option<OwnedFd>, Fault> {
    let version = match sys::landlock_version() {
        Ok(version) if version > 0 => version,
        _ => return Ok(None),
    };
    let known = KNOWN[(version as usize).min(KNOWN.len()) - 1];
    let scoped = (version >= SCOPED_SINCE).then_some(SCOPED);
    let rules = sys::landlock_rules(known, scoped).at("landlock")?;
    let all = known & !(MAKE_CHAR | MAKE_BLOCK);
    let look = EXECUTE | READ_FILE | READ_DIR;
    grant(&rules, Path::new("/"), look)?;
    grant(&rules, Path::new("/tmp"), all & !IOCTL_DEV)?;
    grant(&rules, Path::new("/dev/shm"), all & !IOCTL_DEV)?;
    grant(&rules, Path::new("/dev"), known & (look | WRITE_FILE | TRUNCATE | IOCTL_DEV))?;
    for volume in plan.volumes.iter().filter(|volume| volume.access == Access::ReadWrite) {
        grant(&rules, &volume.inside, all & !IOCTL_DEV)?;
    }
    Ok(Some(rules))
}

fn grant(rules: &OwnedFd, path: &Path, rights: u64) -> Result<(), Fault> {
    let place = rustix::fs::open(path, mounts::PLACE, Mode::empty()).at("landlock")?;
    let kind = rustix::fs::fstat(&place).at("landlock")?;
    let directory = FileType::from_raw_mode(kind.st_mode) == FileType::Directory;
    sys::landlock_grant(rules, if directory { rights } else { rights & OF_FILES }, &place).at("landlock")
}
