//! A call's path, found in the caller's mounts.

use std::sync::Arc;

use aegis_core::{Event, Grant, VolumePath, event::EventName, id::TenantId, path::PathPrefix};
use tokio_util::sync::CancellationToken;

use super::{
    error::FileError,
    place::{Place, granted_from},
    search::{Found, Query, Search},
    storage::{Entry, Listing},
    volume::{Mounts, Volume, holding, mounted_below},
};

/// What a call wants, before its volume is known.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) path: VolumePath,
    pub(super) free_from: usize,
    /// Paths that are closed to the caller's tool.
    pub(super) closed: Vec<PathPrefix>,
    /// Paths that are closed to some tool of the caller, where the call changes something.
    pub(super) guarded: Vec<PathPrefix>,
    /// Where the list stands that closes them.
    deny_list: String,
    pub(super) tenant: TenantId,
    pub(super) cancel: CancellationToken,
}

impl Asked {
    /// `NotGranted` when the path is under no directory that the grant names.
    pub(super) fn new(
        path: VolumePath,
        grant: &Grant,
        tenant: TenantId,
        cancel: CancellationToken,
    ) -> Result<Self, FileError> {
        let granted = granted_from(&path, grant.paths.as_deref())?;
        let free_from = if grant.no_links { path.as_str().len() } else { granted };
        let (closed, guarded) = (grant.denied_paths.clone(), grant.guarded_paths.clone());
        let deny_list = grant.deny_list.clone();
        Ok(Self { path, free_from, closed, guarded, deny_list, tenant, cancel })
    }

    pub(super) fn locate(self, mounts: Mounts) -> Result<Located, FileError> {
        let volume = holding(&mounts, &self.path)?.clone();
        // A link could lead to what is closed, and links stay in their volume: where it has such a path, none is followed.
        let wall =
            self.closed.iter().chain(&self.guarded).find(|closed| closed.lies_below(&volume.mount_path));
        let wall = wall.map(|closed| Wall { closed: closed.to_string(), deny_list: self.deny_list });
        let free_from = if wall.is_some() { self.path.as_str().len() } else { self.free_from };
        let place = Place::new(self.path, &volume.mount_path, free_from)?;
        Ok(Located { mounts, volume, place, wall, guarded: self.guarded, cancel: self.cancel })
    }
}

/// Why no link is followed in a volume.
#[derive(Debug)]
struct Wall {
    closed: String,
    deny_list: String,
}

/// A path, and the volume it is in.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) mounts: Mounts,
    pub(super) volume: Arc<Volume>,
    pub(super) place: Place,
    wall: Option<Wall>,
    guarded: Vec<PathPrefix>,
    pub(super) cancel: CancellationToken,
}

impl Located {
    /// What went wrong here, with the rule where it is one of the caller's context.
    pub(super) fn told(&self, error: FileError) -> FileError {
        match (error, &self.wall) {
            (FileError::LinkRefused, Some(wall)) => {
                FileError::LinkWalled { closed: wall.closed.clone(), deny_list: wall.deny_list.clone() }
            }
            (error, _) => error,
        }
    }

    /// Whether a file may be here, which is not so on the way to what is closed.
    pub(super) fn may_be_file(&self) -> Result<(), FileError> {
        off_the_way(self.place.path(), &self.guarded)
    }

    pub(super) fn event(&self, name: EventName) -> Event {
        Event::new(name).with("path", self.place.path().as_str()).with("volume", self.volume.id.as_str())
    }

    pub(super) fn into_path(self) -> VolumePath {
        self.place.into_path()
    }

    /// With the mount points of other volumes among the entries.
    pub(super) fn list(&self, limit: usize) -> Result<Listing, FileError> {
        let mut mounted: Vec<&str> = mounted_below(&self.mounts, self.place.path())
            .map(|(rest, _)| rest.split_once('/').map_or(rest, |(first, _)| first))
            .collect();
        mounted.sort_unstable();
        mounted.dedup();
        let mut listing = match self.volume.storage.list(&self.place, limit, &self.cancel) {
            // A directory that is there only because something is mounted below it.
            Err(FileError::NotFound) if !mounted.is_empty() => Listing::default(),
            listing => listing?,
        };
        for name in mounted {
            let entry = Entry { name: name.into(), is_directory: true, is_symlink: false };
            match listing.entries.binary_search_by(|listed| listed.name.as_slice().cmp(name.as_bytes())) {
                Ok(same) => listing.entries[same] = entry,
                Err(index) => {
                    listing.entries.insert(index, entry);
                    listing.total += 1;
                }
            }
        }
        listing.entries.truncate(limit);
        Ok(listing)
    }

    /// With the volumes that are mounted below.
    pub(super) fn search(
        &self,
        query: &Query,
        limit: usize,
        honour_ignore_files: bool,
    ) -> Result<Found, FileError> {
        let mounted: Vec<(&str, &Arc<Volume>)> = mounted_below(&self.mounts, self.place.path()).collect();
        let covered: Vec<String> = mounted.iter().map(|(rest, _)| (*rest).to_owned()).collect();
        let search =
            Search { query, limit, prefix: "", covered: &covered, honour_ignore_files, cancel: &self.cancel };
        let mut found = match self.volume.storage.search(&self.place, &search) {
            Err(FileError::NotFound) if !mounted.is_empty() => Found::default(),
            found => found?,
        };
        for (rest, volume) in mounted {
            let covered: Vec<String> =
                mounted_below(&self.mounts, &volume.mount_path).map(|(rest, _)| rest.to_owned()).collect();
            let search = Search { covered: &covered, prefix: rest, limit: limit - found.hits, ..search };
            found.absorb(rest, volume.storage.search(&Place::root(&volume.mount_path), &search)?);
        }
        found.files.sort_unstable();
        Ok(found)
    }
}

/// A path that leads to none of the closed ones.
pub(super) fn off_the_way(path: &VolumePath, closed: &[PathPrefix]) -> Result<(), FileError> {
    let leads_to = |closed: &&PathPrefix| closed.as_str() != path.as_str() && closed.lies_below(path);
    match closed.iter().find(leads_to) {
        Some(closed) => Err(FileError::OnTheWay { closed: closed.to_string() }),
        None => Ok(()),
    }
}
