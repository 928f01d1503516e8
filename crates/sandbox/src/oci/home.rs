//! Where a backend keeps what containers need of the host while they start: sockets and staged volumes, below one
//! directory that belongs to it alone. A lock that dies with the node tells the living from the dead.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::{
            fs::{DirBuilderExt, MetadataExt, PermissionsExt},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    mount::UnmountFlags,
};

use super::engine::{Engine, EngineError};
use crate::stage::mounts;

/// Labels of a container: whose it is, and below which directory that owner's lock stands.
pub(super) const OWNER: &str = "aegis.sandbox.owner";
pub(super) const STATE: &str = "aegis.sandbox.state";
const LOCK: &str = "lock";
const SOCKET: &str = "control";
const VOLUME: &str = "volume-";

/// The directory of one backend. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) state: PathBuf,
    /// The owner's name in labels, and that of its directory.
    pub(super) owner: String,
    place: PathBuf,
    /// Held for as long as this process lives.
    _lock: File,
}

impl Home {
    pub(super) fn open(state: &Path) -> io::Result<Self> {
        private(state)?;
        // A parent that others may change could be swapped for something else; the engine gets plain paths.
        let state = state.canonicalize()?;
        let owner = uuid::Uuid::now_v7().simple().to_string();
        let (made, place) = (state.join(format!("new-{owner}")), state.join(&owner));
        DirBuilder::new().mode(0o700).create(&made)?;
        let lock = File::create(made.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        // Under its name only once it is locked, so that nobody takes it for a dead one's.
        fs::rename(&made, &place)?;
        for (name, text) in [("hosts", "127.0.0.1 localhost\n::1 localhost\n"), ("empty", "")] {
            fs::write(place.join(name), text)?;
            fs::set_permissions(place.join(name), fs::Permissions::from_mode(0o644))?;
        }
        Ok(Self { state, owner, place, _lock: lock })
    }

    /// A file that every container sees.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// A directory for one launch.
    pub(super) fn stand(&self, id: &str) -> io::Result<Stand> {
        let place = self.place.join(id);
        DirBuilder::new().mode(0o700).create(&place)?;
        let directory = rustix::fs::open(&place, mounts::PLACE | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Stand { place, directory, staged: Vec::new() })
    }

    /// Removes what owners left that are no more: containers first, then mounts and files.
    pub(super) fn sweep(&self, engine: &Engine) -> usize {
        let gone = self.abandoned(engine).unwrap_or_else(|error| {
            tracing::warn!(%error, "containers of earlier nodes can't be listed");
            Vec::new()
        });
        if let Err(error) = engine.remove(&gone) {
            tracing::warn!(%error, "containers of earlier nodes can't be removed");
        }
        for entry in fs::read_dir(&self.state).into_iter().flatten().flatten() {
            let owner = entry.file_name().to_string_lossy().into_owned();
            if is_owner(&owner) && !self.lives(&owner) {
                remove_tree(&entry.path());
            }
        }
        gone.len()
    }

    /// Containers below the same directory of state whose owner is no more.
    fn abandoned(&self, engine: &Engine) -> Result<Vec<String>, EngineError> {
        let label = format!("label={STATE}={}", self.state.display());
        let all = engine.ask(["ps", "--all", "--quiet", "--no-trunc", "--filter", &label])?;
        let all: Vec<_> = all.split_whitespace().collect();
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let format = format!("{{{{.Id}}}} {{{{index .Config.Labels \"{OWNER}\"}}}}");
        let owned = engine.ask(["inspect", "--type=container", "--format", &format].iter().chain(&all))?;
        let gone = owned.lines().filter_map(|line| line.split_once(' '));
        Ok(gone.filter(|(_, owner)| !self.lives(owner.trim())).map(|(id, _)| id.to_owned()).collect())
    }

    /// Whether an owner's process is there: it holds its lock.
    fn lives(&self, owner: &str) -> bool {
        if owner == self.owner {
            return true;
        }
        if !is_owner(owner) {
            return false;
        }
        match File::open(self.state.join(owner).join(LOCK)) {
            Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err(),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        remove_tree(&self.place);
    }
}

/// Names of owners are ours; whatever else stands there is not.
fn is_owner(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes a directory that nobody else may enter, or makes sure that it is one.
fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(path)?;
    let found = fs::symlink_metadata(path)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !own || found.mode() & 0o022 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} must be a directory that only this node's user may change", path.display()),
        ));
    }
    Ok(())
}

/// What one launch needs of the host. Dropping it takes everything away again.
#[derive(Debug)]
pub(super) struct Stand {
    place: PathBuf,
    directory: OwnedFd,
    staged: Vec<PathBuf>,
}

impl Stand {
    /// The socket that the container's first process calls, and its path.
    pub(super) fn listen(&self) -> io::Result<(UnixListener, PathBuf)> {
        // The directory may lie deeper than an address of a socket is long.
        let address = format!("/proc/self/fd/{}/{SOCKET}", self.directory.as_raw_fd());
        let listener = UnixListener::bind(address)?;
        let path = self.place.join(SOCKET);
        // The directory keeps everybody out; the container's user, whoever it is, gets the socket itself.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok((listener, path))
    }

    /// Sets a detached mount where an engine can find it.
    pub(super) fn stage(&mut self, tree: &OwnedFd, is_file: bool) -> io::Result<PathBuf> {
        let name = format!("{VOLUME}{}", self.staged.len());
        let path = self.place.join(&name);
        if is_file {
            File::create(&path)?;
        } else {
            DirBuilder::new().mode(0o700).create(&path)?;
        }
        mounts::set(tree, &self.directory, &name)?;
        self.staged.push(path.clone());
        Ok(path)
    }

    /// Once the container has its volumes, the host need not show them any more.
    pub(super) fn clear(&mut self) {
        for path in self.staged.drain(..) {
            if let Err(error) = rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                tracing::warn!(path = %path.display(), %error, "a staged volume can't be unmounted");
            }
        }
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        self.clear();
        remove_tree(&self.place);
    }
}

/// Removes our own directories: sockets, mount points, small files, two levels deep. Never descends into a mount: a
/// volume that could not be unmounted must not lose its files.
fn remove_tree(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let path = entry.path();
        let staged = entry.file_name().to_string_lossy().starts_with(VOLUME);
        if staged {
            let _ = rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && staged => drop(fs::remove_dir(&path)),
            Ok(kind) if kind.is_dir() => remove_tree(&path),
            _ => drop(fs::remove_file(&path)),
        }
    }
    let _ = fs::remove_dir(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_lives_as_long_as_its_lock_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        let (one, two) = (Home::open(&state).unwrap(), Home::open(&state).unwrap());
        assert!(one.lives(&two.owner) && one.lives(&one.owner) && two.lives(&one.owner));
        let gone = two.owner.clone();
        drop(two);
        assert!(!one.lives(&gone) && !one.lives("../..") && !one.lives(""));
        assert!(!state.join(gone).exists());
        assert_eq!(fs::metadata(&state).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_that_others_may_change_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = Home::open(directory.path()).expect_err("must be refused");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_stand_goes_with_all_it_holds() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(&directory.path().join("a".repeat(120))).unwrap();
        let stand = home.stand("one").unwrap();
        let (_listener, path) = stand.listen().unwrap();
        assert!(path.exists());
        drop(stand);
        assert!(!path.exists() && !path.parent().unwrap().exists());
    }
}
