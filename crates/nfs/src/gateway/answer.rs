//! From a request to the deed, and back to an answer.

use std::sync::{Arc, PoisonError, atomic::Ordering};

use crate::{
    mount3,
    nfs3::{Attributes, Before, Call, Change, Kind, Reply, Status, Time},
};
use aegis_core::VolumePath;
use aegis_routes::files::attached::{FileFacts, FileKind};

use super::{
    Gateway,
    export::Export,
    handle::HandleKey,
    tree::{ROOT, Spot},
};

const LONGEST_NAME: usize = 255;

/// A file that a good handle stands for, and whose it is.
pub(super) struct Held {
    pub(super) export: Arc<Export>,
    pub(super) spot: Spot,
}

impl Gateway {
    pub(super) async fn nfs(&self, call: Call) -> Result<Reply, Status> {
        match call {
            Call::Null => Ok(Reply::Null),
            Call::GetAttr { handle } => self.get_attributes(&self.held(&handle).await?).await,
            Call::Lookup { directory, name } => self.look_up(&self.held(&directory).await?, &name).await,
            Call::Access { handle, wanted } => self.access(&self.held(&handle).await?, wanted).await,
            Call::ReadLink { handle } => self.read_link(&self.held(&handle).await?).await,
            Call::Read { handle, offset, count } => {
                self.read(&self.held(&handle).await?, offset, count).await
            }
            Call::ReadDir { directory, cookie, verifier, count } => {
                self.read_directory(&self.held(&directory).await?, cookie, verifier, count, false).await
            }
            Call::ReadDirPlus { directory, cookie, verifier, count } => {
                self.read_directory(&self.held(&directory).await?, cookie, verifier, count, true).await
            }
            Call::FsStat { handle } => self.file_system(&self.held(&handle).await?).await,
            Call::FsInfo { handle } => self.limits(&self.held(&handle).await?).await,
            Call::PathConf { handle } => self.path_facts(&self.held(&handle).await?).await,
            Call::SetAttr { handle, new, guard } => {
                self.set_attributes(&self.held(&handle).await?, new, guard).await
            }
            Call::Write { handle, offset, stability, data } => {
                self.write(&self.held(&handle).await?, offset, stability, data).await
            }
            Call::Commit { handle } => self.commit(&self.held(&handle).await?).await,
            Call::Create { directory, name, how } => {
                self.create(&self.held(&directory).await?, &name, how).await
            }
            Call::MkDir { directory, name, new } => {
                self.make_directory(&self.held(&directory).await?, &name, new).await
            }
            Call::SymLink { directory, name, target } => {
                self.make_link(&self.held(&directory).await?, &name, &target).await
            }
            Call::Remove { directory, name } => {
                self.remove(&self.held(&directory).await?, &name, false).await
            }
            Call::RmDir { directory, name } => self.remove(&self.held(&directory).await?, &name, true).await,
            Call::Rename { from_directory, from, to_directory, to } => {
                let (old, new) = (self.held(&from_directory).await?, self.held(&to_directory).await?);
                self.rename(&old, &from, &new, &to).await
            }
            // Devices and sockets are never made. A second name would let a file be reached by a path that no rule
            // was asked about.
            Call::MkNod { directory } => {
                self.held(&directory).await?;
                Err(Status::NotSupported)
            }
            Call::Link { handle, directory } => {
                self.held(&handle).await?;
                self.held(&directory).await?;
                Err(Status::NotSupported)
            }
        }
    }

    /// The first handle of an export. The path is the secret, and maybe a directory below.
    pub(super) async fn mount(&self, path: &[u8]) -> Result<Vec<u8>, mount3::Status> {
        let path = std::str::from_utf8(path).map_err(|_| mount3::Status::NotFound)?;
        let rest = path.strip_prefix('/').unwrap_or(path);
        let (secret, below) = rest.split_once('/').unwrap_or((rest, ""));
        let found = {
            let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
            let known = |export: &&Arc<Export>| export.is_live() && same(&export.secret[1..], secret);
            exports.values().find(known).cloned()
        };
        let (Some(export), Some(key)) = (found, &self.key) else {
            self.unauthorized(None, "a mount path that is no export's", Status::Access).await;
            return Err(mount3::Status::Access);
        };
        let mut file = ROOT;
        for name in below.split('/').filter(|name| !name.is_empty()) {
            let spot = export.spot(file).ok_or(mount3::Status::NotFound)?;
            let held = Held { export: Arc::clone(&export), spot };
            file = self.step(&held, name).await.map_err(|status| match status {
                Status::Access => mount3::Status::Access,
                Status::NotADirectory => mount3::Status::NotADirectory,
                Status::ServerFault | Status::Io => mount3::Status::ServerFault,
                _ => mount3::Status::NotFound,
            })?;
        }
        export.requests.fetch_add(1, Ordering::Relaxed);
        Ok(export.handle_of(key, file))
    }

    /// What a handle stands for. One that is not ours, or not any more, is told of.
    pub(super) async fn held(&self, handle: &[u8]) -> Result<Held, Status> {
        let Some(handle) = self.key.as_ref().and_then(|key| key.open_handle(handle)) else {
            return Err(self
                .unauthorized(None, "a handle that this node did not make", Status::BadHandle)
                .await);
        };
        let export = self.exports.read().unwrap_or_else(PoisonError::into_inner).get(&handle.export).cloned();
        let Some(export) = export.filter(|export| export.is_live()) else {
            return Err(self.unauthorized(None, "a handle of an export that has ended", Status::Stale).await);
        };
        if export.volume != handle.volume {
            let reason = "a handle of another volume than the export's";
            return Err(self.unauthorized(Some(&export), reason, Status::BadHandle).await);
        }
        let spot = export.spot(handle.file).ok_or(Status::Stale)?;
        export.requests.fetch_add(1, Ordering::Relaxed);
        Ok(Held { export, spot })
    }

    pub(super) fn key(&self) -> Result<&HandleKey, Status> {
        self.key.as_ref().ok_or(Status::ServerFault)
    }

    pub(super) fn attributes(&self, export: &Export, facts: &FileFacts) -> Attributes {
        let time = |(seconds, nanoseconds): (i64, u32)| Time {
            seconds: u32::try_from(seconds.max(0)).unwrap_or(u32::MAX),
            nanoseconds,
        };
        Attributes {
            kind: match facts.kind {
                FileKind::File => Kind::File,
                FileKind::Directory => Kind::Directory,
                FileKind::Link => Kind::Link,
                FileKind::Fifo => Kind::Fifo,
                FileKind::Socket => Kind::Socket,
                FileKind::BlockDevice => Kind::BlockDevice,
                FileKind::CharacterDevice => Kind::CharacterDevice,
            },
            mode: facts.mode & 0o777,
            links: facts.links,
            uid: self.config.uid,
            gid: self.config.gid,
            size: facts.size,
            used: facts.used,
            file_system: export.volume.number(),
            number: facts.identity.number,
            atime: time(facts.accessed),
            mtime: time(facts.modified),
            ctime: time(facts.changed),
        }
    }

    pub(super) fn change(
        &self,
        export: &Export,
        before: Option<&FileFacts>,
        after: Option<&FileFacts>,
    ) -> Change {
        let before = before.map(|facts| {
            let Attributes { size, mtime, ctime, .. } = self.attributes(export, facts);
            Before { size, mtime, ctime }
        });
        Change { before, after: after.map(|facts| self.attributes(export, facts)) }
    }
}

impl Held {
    /// The path of an entry of this directory.
    pub(super) fn child(&self, name: &[u8]) -> Result<(VolumePath, String), Status> {
        let name = std::str::from_utf8(name).map_err(|_| Status::Invalid)?;
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(Status::Invalid);
        }
        if name.len() > LONGEST_NAME {
            return Err(Status::NameTooLong);
        }
        if !self.spot.directory {
            return Err(Status::NotADirectory);
        }
        let path =
            VolumePath::parse(&format!("{}/{name}", self.spot.path)).map_err(|_| Status::NameTooLong)?;
        // Another volume is mounted there, which is not what was exported.
        if !self.export.attachment.holds(&path) {
            return Err(Status::Access);
        }
        Ok((path, name.to_owned()))
    }

    /// The directory that looking at this file is looking into.
    pub(super) fn looked_into(&self) -> VolumePath {
        if self.spot.directory || self.spot.path == *self.export.mount_path() {
            return self.spot.path.clone();
        }
        let above = self.spot.path.as_str().rsplit_once('/').map_or("/", |(above, _)| above);
        VolumePath::parse(above).unwrap_or_else(|_| self.spot.path.clone())
    }
}

/// Takes as long whatever is guessed right.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len()
        && one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
