//! Volumes of a container. A node that is root stages them with their ids mapped, as the native backend mounts them; any
//! other node's files are its containers' own already.

use std::{
    io,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use super::{
    home::Stand,
    inside::{self, MAPPING_ROLE},
    profile::{self, Bind},
};
use crate::{
    SandboxError,
    launch::{Access, Mount},
    native::volumes::{explain, open_as_root, refused},
    stage::{STAGE_NAME, mounts},
    wire::{self, Volume},
};

/// What of the host's users and files a container has.
#[derive(Debug)]
pub(super) struct Owner {
    /// The user that programs are, on the host.
    pub(super) user: u32,
    /// The namespace that maps root's files to that user, when the node is root; or why there is none.
    pub(super) mapping: Result<Option<OwnedFd>, String>,
}

impl Owner {
    pub(super) fn new(executable: &Path, (user, group): (u32, u32)) -> Self {
        let mapping = if rustix::process::geteuid().is_root() && user != 0 {
            make_mapping(executable, user, group).map(Some).map_err(|error| error.to_string())
        } else {
            Ok(None)
        };
        Self { user, mapping }
    }
}

/// Has the stage make a user namespace; a process of many threads can't.
fn make_mapping(executable: &Path, user: u32, group: u32) -> io::Result<OwnedFd> {
    let (door, inner) = wire::pair()?;
    let mut child = Command::new(executable)
        .arg0(STAGE_NAME)
        .args([MAPPING_ROLE.to_owned(), user.to_string(), group.to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(inner))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut descriptors = Vec::new();
    let answer = wire::receive::<Result<(), i32>>(&door, &mut descriptors);
    child.wait()?;
    match answer? {
        Some(Ok(())) => descriptors.pop().ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Some(Err(errno)) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// What the engine, the stage and the check of both get to know of the volumes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    pub(super) binds: Vec<Bind>,
    pub(super) planned: Vec<Volume>,
    pub(super) identities: Vec<(u64, u64)>,
}

impl Volumes {
    pub(super) fn stage(wanted: &[Mount], owner: &Owner, stand: &mut Stand) -> Result<Self, SandboxError> {
        let mut volumes = Self::default();
        for mount in wanted {
            profile::check_mount(mount)?;
            volumes.add(mount, owner, stand)?;
        }
        Ok(volumes)
    }

    fn add(&mut self, mount: &Mount, owner: &Owner, stand: &mut Stand) -> Result<(), SandboxError> {
        let failed = |error: io::Error| refused(mount, explain(&error));
        let root = rustix::process::geteuid().is_root();
        let place = if root {
            open_as_root(mount, owner.mapping.as_ref().ok().and_then(Option::as_ref), owner.user)?
        } else {
            mounts::place(&mount.host).map_err(|error| failed(error.into()))?
        };
        let found = rustix::fs::fstat(&place).map_err(|error| failed(error.into()))?;
        if !root
            && mount.access == Access::ReadWrite
            && owner.user != found.st_uid
            && found.st_mode & 0o002 == 0
        {
            return Err(refused(
                mount,
                format!(
                    "programs are user {} on this host, and it belongs to user {}",
                    owner.user, found.st_uid
                ),
            ));
        }
        let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
        let file = kind != rustix::fs::FileType::Directory;
        let source = if root { stand.stage(&place, file).map_err(failed)? } else { mount.host.clone() };
        self.identities.push(inside::identity(&place).map_err(failed)?);
        self.planned.push(Volume { inside: mount.inside.clone(), access: mount.access, file });
        self.binds.push(Bind { source, inside: mount.inside.clone(), access: mount.access });
        Ok(())
    }
}
