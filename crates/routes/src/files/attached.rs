//! Volumes worked on file by file and piece by piece, as a file protocol does it. The caller has a permit for each path,
//! and no symbolic link is ever followed here: whoever speaks such a protocol follows them itself, name by name.

use std::{fmt, sync::Arc};

use aegis_core::{Permit, VolumePath, config::AccessMode, id::TenantId, path::PathPrefix};
use tokio_util::sync::CancellationToken;

use super::{
    FileError, Files, Terms, Volume,
    located::off_the_way,
    place::{Place, granted_from},
    volume::{Mounts, holding},
};

/// Which file it is, whatever its name. The time of birth tells it from one that got its number later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    pub device: u64,
    pub number: u64,
    pub born: (i64, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Fifo,
    Socket,
    BlockDevice,
    CharacterDevice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    pub identity: Identity,
    pub kind: FileKind,
    /// Permissions only.
    pub mode: u32,
    pub links: u32,
    pub size: u64,
    pub used: u64,
    pub accessed: (i64, u32),
    pub modified: (i64, u32),
    pub changed: (i64, u32),
}

/// What of a file is to be set. Times: `None` in a time is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewFacts {
    pub mode: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<Option<(i64, u32)>>,
    pub modified: Option<Option<(i64, u32)>>,
}

/// A file before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Altered {
    pub before: FileFacts,
    pub after: FileFacts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    pub total: u64,
    pub free: u64,
}

/// A name in a directory, with the number of what it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub name: String,
    pub number: u64,
}

/// A storage whose files have numbers and can be changed in place. Everything blocks. Where an identity is given, what is
/// found at the place must be that file, or the answer is [`FileError::TreeMoved`].
pub trait Attached: Send + Sync + fmt::Debug {
    fn facts(&self, place: &Place) -> Result<FileFacts, FileError>;

    /// At most `count` bytes; fewer only at the end of the file.
    fn read_at(&self, file: &Known<'_>, offset: u64, count: usize)
    -> Result<(Vec<u8>, FileFacts), FileError>;

    /// With `durable`, on disk before it returns.
    fn write_at(
        &self,
        file: &Known<'_>,
        offset: u64,
        data: &[u8],
        durable: bool,
        terms: &Terms<'_>,
    ) -> Result<Altered, FileError>;

    fn sync(&self, file: &Known<'_>) -> Result<FileFacts, FileError>;

    fn set(&self, file: &Known<'_>, new: &NewFacts, terms: &Terms<'_>) -> Result<Altered, FileError>;

    /// An empty file; [`FileError::AlreadyExists`] when something is there.
    fn create(&self, place: &Place, mode: u32, terms: &Terms<'_>) -> Result<FileFacts, FileError>;

    fn make_directory(&self, place: &Place, mode: u32, terms: &Terms<'_>) -> Result<FileFacts, FileError>;

    /// A link that would lead out of the volume is refused.
    fn make_link(&self, place: &Place, target: &[u8], terms: &Terms<'_>) -> Result<FileFacts, FileError>;

    /// Where a link leads, if that is inside the volume.
    fn read_link(&self, file: &Known<'_>) -> Result<(Vec<u8>, FileFacts), FileError>;

    fn remove(&self, place: &Place, directory: bool, terms: &Terms<'_>) -> Result<(), FileError>;

    /// What is at `to` is replaced where the kernel would replace it.
    fn rename_over(&self, from: &Place, to: &Place, terms: &Terms<'_>) -> Result<(), FileError>;

    /// Every name but those that are no text, and those of files that are being written.
    fn names(&self, directory: &Known<'_>) -> Result<(FileFacts, Vec<Listed>), FileError>;

    fn space(&self, terms: &Terms<'_>) -> Result<Space, FileError>;
}

/// A place where a certain file is expected.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    pub place: &'a Place,
    pub identity: Identity,
    /// Whoever works on it has made it, and may write it although its mode lets nobody.
    pub own: bool,
}

/// A volume that a file protocol works on.
#[derive(Debug, Clone)]
pub struct Attachment {
    files: Arc<Files>,
    tenant: TenantId,
    mounts: Mounts,
    volume: Arc<Volume>,
}

/// A volume as operators see it.
#[derive(Debug, Clone)]
pub struct VolumeSummary {
    pub id: String,
    pub mount_path: String,
    pub access: AccessMode,
    pub size_limit: Option<u64>,
    /// What is in use, where there is a limit.
    pub used: Option<u64>,
    /// Directories whose content is not counted, since they can't be looked into.
    pub unread: u64,
}

impl Files {
    /// The tenant's volume with that name, or the one at `/workspace`.
    pub async fn attach(
        self: &Arc<Self>,
        tenant: &TenantId,
        volume: Option<&str>,
    ) -> Result<Attachment, FileError> {
        let (files, tenant, named) = (Arc::clone(self), tenant.clone(), volume.map(str::to_owned));
        let attached = tokio::task::spawn_blocking(move || {
            let mounts = files.volumes.of(&tenant)?;
            let volume = match &named {
                Some(name) => {
                    mounts.iter().find(|volume| volume.id.as_str() == name).ok_or(FileError::NoVolume)?
                }
                None => holding(&mounts, &VolumePath::parse(".")?)?,
            };
            let volume = Arc::clone(volume);
            volume.storage.attached().ok_or(FileError::NotAttachable)?;
            Ok(Attachment { files, tenant, mounts, volume })
        });
        attached.await.map_err(|error| FileError::System(std::io::Error::other(error)))?
    }

    /// The volumes that a tenant sees.
    pub async fn volumes_of(self: &Arc<Self>, tenant: &TenantId) -> Result<Vec<VolumeSummary>, FileError> {
        let (files, tenant) = (Arc::clone(self), tenant.clone());
        let summary = |volume: &Arc<Volume>| {
            let measure = || volume.storage.usage(&CancellationToken::new());
            // One that can't be measured now is shown all the same.
            let known = volume.quota().limit_and_use(&measure).unwrap_or_default();
            VolumeSummary {
                id: volume.id.to_string(),
                mount_path: volume.mount_path.to_string(),
                access: volume.access,
                size_limit: volume.size_limit,
                used: known.map(|(_, used)| used),
                unread: volume.storage.unread(),
            }
        };
        let looked = tokio::task::spawn_blocking(move || {
            Ok(files.volumes.of(&tenant)?.iter().rev().map(summary).collect())
        });
        looked.await.map_err(|error| FileError::System(std::io::Error::other(error)))?
    }
}

/// Places that permits were shown for. Used once, at once.
#[derive(Debug)]
pub struct Permitted {
    places: Vec<Place>,
    guarded: Vec<PathPrefix>,
}

/// Where an operation works: the storage, and the places that were permitted, in their order.
#[derive(Debug)]
pub struct At<'a> {
    pub storage: &'a dyn Attached,
    pub places: &'a [Place],
    guarded: &'a [PathPrefix],
    attachment: &'a Attachment,
    cancel: &'a CancellationToken,
}

impl<'a> At<'a> {
    /// What a change has to keep to, unless there may be none.
    pub fn terms(&self) -> Result<Terms<'a>, FileError> {
        let terms = self.attachment.volume.terms(self.cancel)?;
        self.attachment.files.mark_changes();
        Ok(terms)
    }

    /// For looking at how full the volume is, also when it may not be changed.
    pub fn looking(&self) -> Terms<'a> {
        self.attachment.volume.looking(self.cancel)
    }

    /// What is at another path of the volume, as a check of where a permitted one is.
    pub fn parent_facts(&self, path: &VolumePath) -> Result<FileFacts, FileError> {
        let end = path.as_str().len();
        let place = Place::new(path.clone(), &self.attachment.volume.mount_path, end)?;
        self.storage.facts(&place)
    }

    /// Whether the place is in the directory that is meant: the one with that identity, still at that path.
    pub fn inside(&self, place: &Place, directory: &VolumePath, identity: Identity) -> Result<(), FileError> {
        let rest = place.path().below(directory.as_str()).ok_or(FileError::NotGranted)?;
        if rest.is_empty() || rest.contains('/') {
            return Err(FileError::NotGranted);
        }
        match self.parent_facts(directory) {
            Ok(facts) if facts.identity == identity => Ok(()),
            Ok(_) | Err(FileError::NotFound | FileError::NotADirectory) => Err(FileError::TreeMoved),
            Err(error) => Err(error),
        }
    }

    /// The facts of an entry of a permitted directory.
    pub fn child_facts(&self, index: usize, name: &str) -> Result<FileFacts, FileError> {
        let directory = self.places.get(index).ok_or(FileError::NotFound)?;
        self.parent_facts(&VolumePath::parse(&format!("{}/{name}", directory.path()))?)
    }

    /// Whether a file may be made here, which is not so on the way to what is closed.
    pub fn may_be_file(&self, place: &Place) -> Result<(), FileError> {
        off_the_way(place.path(), self.guarded)
    }

    /// Whether a link may be made here. In what is closed to some tool, what others put there would end up where it leads.
    pub fn may_be_link(&self, place: &Place) -> Result<(), FileError> {
        match self.guarded.iter().find(|closed| closed.covers(place.path())) {
            Some(closed) => Err(FileError::OnTheWay { closed: closed.to_string() }),
            None => self.may_be_file(place),
        }
    }

    pub fn known(&self, index: usize, identity: Identity) -> Result<Known<'a>, FileError> {
        let place = self.places.get(index).ok_or(FileError::NotFound)?;
        Ok(Known { place, identity, own: false })
    }
}

impl Attachment {
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume's own directory, which everybody may know to be there.
    pub async fn root(&self) -> Result<FileFacts, FileError> {
        let places = vec![Place::root(&self.volume.mount_path)];
        self.work(Permitted { places, guarded: Vec::new() }, |at| at.storage.facts(&at.places[0])).await
    }

    /// Whether the path is in this volume, and not in one that is mounted below it.
    pub fn holds(&self, path: &VolumePath) -> bool {
        holding(&self.mounts, path).is_ok_and(|volume| Arc::ptr_eq(volume, &self.volume))
    }

    /// The paths as places to work at, each of which its permit must cover.
    pub fn permitted(&self, paths: &[(&Permit, &VolumePath)]) -> Result<Permitted, FileError> {
        let mut places = Vec::with_capacity(paths.len());
        let mut guarded = Vec::new();
        for (permit, path) in paths {
            if permit.caller().tenant != self.tenant || !self.holds(path) {
                return Err(FileError::NotGranted);
            }
            granted_from(path, permit.limits().paths.as_deref())?;
            // All of it is resolved without links.
            let end = path.as_str().len();
            places.push(Place::new((*path).clone(), &self.volume.mount_path, end)?);
            guarded.extend_from_slice(&permit.limits().guarded_paths);
        }
        Ok(Permitted { places, guarded })
    }

    /// Does a deed on a thread that may block.
    pub async fn work<T: Send + 'static>(
        &self,
        permitted: Permitted,
        deed: impl FnOnce(&At<'_>) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let Permitted { places, guarded } = permitted;
        let attachment = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let storage = attachment.volume.storage.attached().ok_or(FileError::NotAttachable)?;
            let cancel = CancellationToken::new();
            let (attachment, cancel) = (&attachment, &cancel);
            deed(&At { storage, places: &places, guarded: &guarded, attachment, cancel })
        });
        done.await.map_err(|error| FileError::System(std::io::Error::other(error)))?
    }
}
