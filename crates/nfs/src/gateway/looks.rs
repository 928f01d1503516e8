//! Requests that change nothing.

use std::sync::Arc;

use crate::{
    MAX_TRANSFER,
    nfs3::{DirectoryEntry, FileSystem, Found, Limits, Listed, PathFacts, Piece, Reply, Status, access},
};
use aegis_core::{Event, event::EventName};
use aegis_plane::Wanted;
use aegis_routes::files::{
    FileError,
    attached::{At, FileFacts, FileKind},
};

use super::{
    Gateway,
    accesses::Kind,
    answer::Held,
    listing::{self, Order, PARENT, SELF},
};

/// The longest answer to a listing, whatever is asked for.
const LONGEST_LIST: usize = 64 << 10;
/// The answer around the entries.
const AROUND: usize = 160;

impl Gateway {
    /// Looks at the file itself, if the caller may look at its path.
    async fn look<T: Send + 'static>(
        &self,
        held: &Held,
        deed: impl FnOnce(&At<'_>) -> Result<T, FileError> + Send + 'static,
        event: impl FnOnce(&T) -> Event,
    ) -> Result<T, Status> {
        let (export, path, into) = (&held.export, &held.spot.path, held.looked_into());
        // What may not be looked at is refused by its own name, with its own record.
        let key = if Kind::Look.allowed(&self.plane, &export.caller, path) { into } else { path.clone() };
        let work = async |permitted| export.attachment.work(permitted, deed).await;
        let told = |value: &T| (event(value).with("path", path.as_str()), 0);
        export.accesses.work(export.site(&self.plane), Kind::Look, &key, path, work, told).await
    }

    async fn facts(&self, held: &Held) -> Result<FileFacts, Status> {
        let identity = held.spot.identity;
        let look = move |at: &At<'_>| {
            let facts = at.storage.facts(at.known(0, identity)?.place)?;
            if facts.identity == identity { Ok(facts) } else { Err(FileError::TreeMoved) }
        };
        let facts = self.look(held, look, |_| Event::new(EventName::FileLookedAt)).await;
        // A handle's file is somewhere else now, or nowhere.
        facts.map_err(|status| if status == Status::NotFound { Status::Stale } else { status })
    }

    pub(super) async fn get_attributes(&self, held: &Held) -> Result<Reply, Status> {
        let facts = self.facts(held).await?;
        Ok(Reply::Attributes(self.attributes(&held.export, &facts)))
    }

    /// One name down from a directory: the number of what is there.
    pub(super) async fn step(&self, held: &Held, name: &str) -> Result<u64, Status> {
        let facts = self.child_facts(held, name.as_bytes()).await?;
        if facts.kind != FileKind::Directory {
            return Err(Status::NotADirectory);
        }
        let handle = held.export.handle(self.key()?, held.spot.file, name, &facts);
        self.key()?.open_handle(&handle).map(|handle| handle.file).ok_or(Status::ServerFault)
    }

    async fn child_facts(&self, held: &Held, name: &[u8]) -> Result<FileFacts, Status> {
        let (path, _) = held.child(name)?;
        let (export, directory) = (&held.export, &held.spot);
        let identity = directory.identity;
        let may = |path| Kind::Look.allowed(&self.plane, &export.caller, path);
        let key = if may(&path) && may(&directory.path) { directory.path.clone() } else { path.clone() };
        let parent = directory.path.clone();
        let work = async |permitted| {
            export
                .attachment
                .work(permitted, move |at| {
                    let place = at.known(0, identity)?.place;
                    at.inside(place, &parent, identity)?;
                    at.storage.facts(place)
                })
                .await
        };
        let told = |_: &FileFacts| (Event::new(EventName::FileLookedAt).with("path", path.as_str()), 0);
        export.accesses.work(export.site(&self.plane), Kind::Look, &key, &path, work, told).await
    }

    pub(super) async fn look_up(&self, held: &Held, name: &[u8]) -> Result<Reply, Status> {
        let (export, spot) = (&held.export, &held.spot);
        let key = self.key()?;
        if matches!(name, b"." | b"..") {
            if !spot.directory {
                return Err(Status::NotADirectory);
            }
            let file = if name == b"." { spot.file } else { spot.parent };
            let spot = export.spot(file).ok_or(Status::Stale)?;
            let there = Held { export: Arc::clone(export), spot };
            let facts = self.facts(&there).await?;
            let found =
                Found { handle: export.handle_of(key, file), attributes: self.attributes(export, &facts) };
            return Ok(Reply::Found { found, directory: None });
        }
        let facts = self.child_facts(held, name).await?;
        let (_, name) = held.child(name)?;
        let found = Found {
            handle: export.handle(key, spot.file, &name, &facts),
            attributes: self.attributes(export, &facts),
        };
        Ok(Reply::Found { found, directory: None })
    }

    pub(super) async fn access(&self, held: &Held, wanted: u32) -> Result<Reply, Status> {
        let facts = self.facts(held).await?;
        let (caller, path) = (&held.export.caller, &held.spot.path);
        let reads = if held.spot.directory { Kind::Look } else { Kind::Read };
        let mut allowed = 0;
        if reads.allowed(&self.plane, caller, path) {
            allowed |= access::READ | access::LOOKUP | access::EXECUTE;
        }
        let volume = held.export.attachment.volume();
        let writable = volume.access == aegis_core::config::AccessMode::ReadWrite && facts.mode & 0o222 != 0;
        if writable && Kind::Write.allowed(&self.plane, caller, path) {
            allowed |= access::MODIFY | access::EXTEND;
        }
        let removal = Wanted {
            tool: "fs.delete",
            asked_as: "nfs.remove",
            path: path.as_str(),
            hidden: &[],
            flags: &[("recursive", false)],
        };
        if writable && held.spot.directory && self.plane.would_admit(caller, &removal) {
            allowed |= access::DELETE;
        }
        let attributes = self.attributes(&held.export, &facts);
        Ok(Reply::Access { attributes, allowed: allowed & wanted })
    }

    pub(super) async fn read_link(&self, held: &Held) -> Result<Reply, Status> {
        let identity = held.spot.identity;
        let read = move |at: &At<'_>| at.storage.read_link(&at.known(0, identity)?);
        let (target, facts) = self.look(held, read, |_| Event::new(EventName::FileLookedAt)).await?;
        Ok(Reply::Target { attributes: self.attributes(&held.export, &facts), target })
    }

    pub(super) async fn read(&self, held: &Held, offset: u64, count: u32) -> Result<Reply, Status> {
        if held.spot.directory {
            return Err(Status::IsADirectory);
        }
        let (export, path, identity) = (&held.export, &held.spot.path, held.spot.identity);
        let count = usize::try_from(count.min(MAX_TRANSFER)).unwrap_or(0);
        let work = async |permitted| {
            export
                .attachment
                .work(permitted, move |at| at.storage.read_at(&at.known(0, identity)?, offset, count))
                .await
        };
        let told = |(data, _): &(Vec<u8>, FileFacts)| {
            let event = Event::new(EventName::FileRead).with("path", path.as_str());
            (event.with("offset", offset).with("bytes", data.len()), data.len() as u64)
        };
        let (data, facts) =
            export.accesses.work(export.site(&self.plane), Kind::Read, path, path, work, told).await?;
        let end = offset.saturating_add(data.len() as u64) >= facts.size;
        Ok(Reply::Piece(Piece { attributes: self.attributes(export, &facts), data: data.into(), end }))
    }

    pub(super) async fn read_directory(
        &self,
        held: &Held,
        cookie: u64,
        verifier: u64,
        count: u32,
        plus: bool,
    ) -> Result<Reply, Status> {
        if !held.spot.directory {
            return Err(Status::NotADirectory);
        }
        if cookie != 0 && verifier != self.verifier {
            return Err(Status::BadCookie);
        }
        let export = Arc::clone(&held.export);
        let identity = held.spot.identity;
        let room = usize::try_from(count).unwrap_or(usize::MAX).min(LONGEST_LIST).saturating_sub(AROUND);
        let listings = Arc::clone(&export);
        let read = move |at: &At<'_>| {
            let known = at.known(0, identity)?;
            let facts = at.storage.facts(known.place)?;
            let remembered = if cookie == 0 { None } else { listings.listings.recall(&facts) };
            let (facts, order) = match remembered {
                Some(order) => (facts, order),
                None => {
                    let (facts, names) = at.storage.names(&known)?;
                    let order = listings.listings.order(names);
                    listings.listings.remember(&facts, &order);
                    (facts, order)
                }
            };
            let found = if plus { page_facts(at, &order, cookie, room) } else { Vec::new() };
            Ok((facts, order, found))
        };
        let (facts, order, found) = self
            .look(held, read, |(_, order, _)| {
                Event::new(EventName::DirectoryListed).with("entries", order.len())
            })
            .await?;
        let above = export.spot(held.spot.parent).map_or(facts.identity.number, |spot| spot.identity.number);
        let own = [(SELF, ".", facts.identity.number), (PARENT, "..", above)];
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        let (mut left, mut end) = (room, true);
        for (at, name, number) in own.into_iter().filter(|(at, ..)| *at > cookie) {
            let entry = DirectoryEntry { number, name: name.into(), cookie: at, found: None };
            left = left.saturating_sub(entry.room());
            entries.push(entry);
        }
        let start = listing::after(&order, cookie);
        let key = self.key()?;
        for (index, (at, listed)) in order[start..].iter().enumerate() {
            let mut entry = DirectoryEntry {
                number: listed.number,
                name: listed.name.as_bytes().to_vec(),
                cookie: *at,
                found: None,
            };
            let Ok(child) = held.child(listed.name.as_bytes()) else { continue };
            if plus
                && let Some(Some(facts)) = found.get(index)
                && Kind::Look.allowed(&self.plane, &export.caller, &child.0)
            {
                entry.found = Some(Found {
                    handle: export.handle(key, held.spot.file, &listed.name, facts),
                    attributes: self.attributes(&export, facts),
                });
            }
            let takes = entry.room();
            if takes > left {
                end = false;
                break;
            }
            left -= takes;
            entries.push(entry);
        }
        if entries.is_empty() && !end {
            return Err(Status::TooSmall);
        }
        let directory = self.attributes(&export, &facts);
        let listed = Listed { directory, verifier: self.verifier, entries, end };
        Ok(Reply::Listed { listed, plus })
    }

    pub(super) async fn file_system(&self, held: &Held) -> Result<Reply, Status> {
        let identity = held.spot.identity;
        let read = move |at: &At<'_>| {
            let facts = at.storage.facts(at.known(0, identity)?.place)?;
            Ok((facts, at.storage.space(&at.looking())?))
        };
        let (facts, space) = self.look(held, read, |_| Event::new(EventName::FileLookedAt)).await?;
        Ok(Reply::FileSystem(FileSystem {
            attributes: self.attributes(&held.export, &facts),
            total_bytes: space.total,
            free_bytes: space.free,
            // Each takes up so much of the quota.
            total_files: space.total / 4096,
            free_files: space.free / 4096,
        }))
    }

    pub(super) async fn limits(&self, held: &Held) -> Result<Reply, Status> {
        let facts = self.facts(held).await?;
        let attributes = self.attributes(&held.export, &facts);
        Ok(Reply::Limits(Limits { attributes, transfer: MAX_TRANSFER, largest_file: i64::MAX as u64 }))
    }

    pub(super) async fn path_facts(&self, held: &Held) -> Result<Reply, Status> {
        let facts = self.facts(held).await?;
        Ok(Reply::PathFacts(PathFacts {
            attributes: self.attributes(&held.export, &facts),
            longest_name: 255,
        }))
    }
}

/// The facts of as many entries as can fit into a page.
fn page_facts(at: &At<'_>, order: &Order, cookie: u64, room: usize) -> Vec<Option<FileFacts>> {
    // A name, a handle and attributes take at least so much.
    let most = room / 150 + 1;
    let page = order[listing::after(order, cookie)..].iter().take(most);
    page.map(|(_, listed)| at.child_facts(0, &listed.name).ok()).collect()
}
