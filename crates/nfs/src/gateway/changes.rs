//! Requests that change something. Writing has one record for many requests; every other change has its own.

use crate::nfs3::{Found, How, NewAttributes, Reply, SetTime, Stability, Status, Time, Written};
use aegis_core::{Event, VolumePath, event::EventName, record::CallResult};
use aegis_plane::{Operation, Wanted};
use aegis_routes::files::{
    FileError,
    attached::{Altered, At, FileFacts, FileKind, Known, NewFacts},
};
use bytes::Bytes;

use super::{Gateway, accesses::Kind, answer::Held, export::Export, status};

/// Of a file that a client makes without saying.
const NEW_FILE: u32 = 0o644;
const NEW_DIRECTORY: u32 = 0o755;

const WRITE: &str = "fs.write";
const DELETE: &str = "fs.delete";
const CONTENT: &[&str] = &["content"];

fn write<'a>(asked_as: &'a str, path: &'a VolumePath) -> Wanted<'a> {
    Wanted { tool: WRITE, asked_as, path: path.as_str(), hidden: CONTENT, flags: &[] }
}

fn delete<'a>(asked_as: &'a str, path: &'a VolumePath, tree: bool) -> Wanted<'a> {
    let flags = if tree { &[("recursive", true)] } else { &[("recursive", false)] };
    Wanted { tool: DELETE, asked_as, path: path.as_str(), hidden: &[], flags }
}

impl Gateway {
    /// One change with its intent before and its record after.
    async fn alter<T: Send + 'static>(
        &self,
        export: &Export,
        wanted: &[(Wanted<'_>, &VolumePath)],
        event: Event,
        deed: impl FnOnce(&At<'_>) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Status> {
        let mut begun: Vec<Operation> = Vec::with_capacity(wanted.len());
        let mut refused = None;
        for (wanted, _) in wanted {
            match self.plane.begin(&export.caller, wanted).await {
                Ok(operation) => begun.push(operation),
                Err(violation) => {
                    refused = Some(violation);
                    break;
                }
            }
        }
        let done = match &refused {
            Some(_) => None,
            None => {
                let paths: Vec<_> = begun
                    .iter()
                    .zip(wanted)
                    .map(|(operation, (_, path))| (operation.permit(), *path))
                    .collect();
                Some(match export.attachment.permitted(&paths) {
                    Ok(permitted) => export.attachment.work(permitted, deed).await,
                    Err(error) => Err(error),
                })
            }
        };
        let result = match (&done, &refused) {
            (Some(Ok(_)), _) => CallResult::Done { bytes: 0 },
            (Some(Err(error)), _) => {
                CallResult::Failed { kind: error.kind().as_str().to_owned(), message: error.to_string() }
            }
            (None, violation) => CallResult::Failed {
                kind: violation.as_ref().map_or_else(String::new, |violation| violation.kind.to_string()),
                message: "another part of the same request was refused; nothing was changed".into(),
            },
        };
        if let (Some(Ok(_)), Some(first)) = (&done, begun.first()) {
            self.plane.announce(first, event);
        }
        let mut unrecorded = None;
        for operation in begun {
            if let Err(violation) = self.plane.end(operation, result.clone()).await {
                unrecorded = Some(status::of_violation(&violation));
            }
        }
        match (done, refused, unrecorded) {
            (_, Some(violation), _) => Err(status::of_violation(&violation)),
            (_, _, Some(status)) => Err(status),
            (Some(done), ..) => done.map_err(|error| {
                if let FileError::QuotaExceeded { limit, used, growth } = &error {
                    let event = Event::new(EventName::QuotaExceeded)
                        .with("bytes", *growth)
                        .with("used", *used)
                        .with("limit", *limit);
                    self.plane.bus().announce_to(&export.caller.tenant, event);
                }
                status::of_error(&error)
            }),
            (None, ..) => Err(Status::ServerFault),
        }
    }

    /// What a client may set of a file; whose it is, it may not.
    fn new_facts(&self, new: &NewAttributes) -> Result<NewFacts, Status> {
        let other = |wanted: Option<u32>, own: u32| wanted.is_some_and(|wanted| wanted != own);
        if other(new.uid, self.config.uid) || other(new.gid, self.config.gid) {
            return Err(Status::Permission);
        }
        if new.mode.is_some_and(|mode| mode & !0o777 != 0) {
            return Err(Status::Permission);
        }
        let time = |time: Option<SetTime>| {
            time.map(|time| match time {
                SetTime::Now => None,
                SetTime::To(Time { seconds, nanoseconds }) => Some((i64::from(seconds), nanoseconds)),
            })
        };
        Ok(NewFacts { mode: new.mode, size: new.size, accessed: time(new.atime), modified: time(new.mtime) })
    }

    pub(super) async fn set_attributes(
        &self,
        held: &Held,
        new: NewAttributes,
        guard: Option<Time>,
    ) -> Result<Reply, Status> {
        let (export, path, identity) = (&held.export, &held.spot.path, held.spot.identity);
        let new = self.new_facts(&new)?;
        if held.spot.directory && new.size.is_some() {
            return Err(Status::IsADirectory);
        }
        let event = Event::new(EventName::AttributesChanged).with("path", path.as_str());
        let event = match new.size {
            Some(size) => event.with("size", size),
            None => event,
        };
        let altered = self
            .alter(export, &[(write("nfs.setattr", path), path)], event, move |at| {
                let known = at.known(0, identity)?;
                if let Some(guard) = guard {
                    let (seconds, nanoseconds) = at.storage.facts(known.place)?.changed;
                    if (i64::from(guard.seconds), guard.nanoseconds) != (seconds, nanoseconds) {
                        return Err(FileError::ChangedWhileEditing);
                    }
                }
                at.storage.set(&known, &new, &at.terms()?)
            })
            .await?;
        let Altered { before, after } = altered;
        Ok(Reply::Changed(self.change(export, Some(&before), Some(&after))))
    }

    pub(super) async fn write(
        &self,
        held: &Held,
        offset: u64,
        stability: Stability,
        data: Bytes,
    ) -> Result<Reply, Status> {
        if held.spot.directory {
            return Err(Status::IsADirectory);
        }
        let (export, path, identity) = (&held.export, &held.spot.path, held.spot.identity);
        let durable = stability > Stability::Unstable;
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let own = export.has_created(&identity);
        let work = async |permitted| {
            export
                .attachment
                .work(permitted, move |at| {
                    let file = Known { own, ..at.known(0, identity)? };
                    at.storage.write_at(&file, offset, &data, durable, &at.terms()?)
                })
                .await
        };
        let told = |_: &Altered| {
            let event = Event::new(EventName::FileWritten).with("path", path.as_str());
            (event.with("offset", offset).with("bytes", count), u64::from(count))
        };
        let Altered { before, after } =
            export.accesses.work(export.site(&self.plane), Kind::Write, path, path, work, told).await?;
        Ok(Reply::Written(Written {
            change: self.change(export, Some(&before), Some(&after)),
            count,
            stability: if durable { Stability::File } else { Stability::Unstable },
            verifier: self.verifier,
        }))
    }

    /// What was written is on disk, and so is the record of it.
    pub(super) async fn commit(&self, held: &Held) -> Result<Reply, Status> {
        let (export, path, identity) = (&held.export, &held.spot.path, held.spot.identity);
        if held.spot.directory {
            return Err(Status::Invalid);
        }
        let work = async |permitted| {
            export.attachment.work(permitted, move |at| at.storage.sync(&at.known(0, identity)?)).await
        };
        let told = |_: &FileFacts| {
            (Event::new(EventName::FileWritten).with("path", path.as_str()).with("committed", true), 0)
        };
        let facts =
            export.accesses.work(export.site(&self.plane), Kind::Write, path, path, work, told).await?;
        export.accesses.end(&self.plane, Kind::Write, path).await?;
        let change = self.change(export, None, Some(&facts));
        Ok(Reply::Committed { change, verifier: self.verifier })
    }

    pub(super) async fn create(&self, held: &Held, name: &[u8], how: How) -> Result<Reply, Status> {
        let (path, name) = held.child(name)?;
        let export = &held.export;
        let (new, exclusive) = match how {
            How::Unchecked(new) => (self.new_facts(&new)?, None),
            How::Guarded(new) => (self.new_facts(&new)?, None),
            How::Exclusive(verifier) => (NewFacts::default(), Some(verifier)),
        };
        let (parent, identity) = (held.spot.path.clone(), held.spot.identity);
        let event = Event::new(EventName::FileWritten).with("path", path.as_str()).with("bytes", 0);
        let made = self
            .alter(export, &[(write("nfs.create", &path), &path)], event, move |at| {
                let terms = at.terms()?;
                let place = at.known(0, identity)?.place;
                at.inside(place, &parent, identity)?;
                at.may_be_file(place)?;
                let before = at.parent_facts(&parent)?;
                let facts = match at.storage.create(place, new.mode.unwrap_or(NEW_FILE), &terms) {
                    Ok(facts) => {
                        let known = at.known(0, facts.identity)?;
                        let mut rest = NewFacts { mode: None, ..new };
                        if let Some(verifier) = exclusive {
                            let (high, low) = halves(verifier);
                            (rest.accessed, rest.modified) = (Some(Some((high, 0))), Some(Some((low, 0))));
                        }
                        if rest == NewFacts::default() {
                            facts
                        } else {
                            at.storage.set(&known, &rest, &terms)?.after
                        }
                    }
                    Err(FileError::AlreadyExists(shown)) => {
                        let there = at.storage.facts(place)?;
                        let known = at.known(0, there.identity)?;
                        match (how, exclusive) {
                            _ if there.kind != FileKind::File => return Err(FileError::AlreadyExists(shown)),
                            (How::Unchecked(_), _) => {
                                let rest = NewFacts { mode: None, ..new };
                                at.storage.set(&known, &rest, &terms)?.after
                            }
                            // The same request, sent again.
                            (_, Some(verifier))
                                if (there.accessed.0, there.modified.0) == halves(verifier)
                                    && there.size == 0 =>
                            {
                                there
                            }
                            _ => return Err(FileError::AlreadyExists(shown)),
                        }
                    }
                    Err(error) => return Err(error),
                };
                Ok((facts, before, at.parent_facts(&parent)?))
            })
            .await?;
        held.export.created(made.0.identity);
        self.made(held, &name, &made)
    }

    pub(super) async fn make_directory(
        &self,
        held: &Held,
        name: &[u8],
        new: NewAttributes,
    ) -> Result<Reply, Status> {
        let (path, name) = held.child(name)?;
        let mode = self.new_facts(&new)?.mode.unwrap_or(NEW_DIRECTORY);
        let (parent, identity) = (held.spot.path.clone(), held.spot.identity);
        let event = Event::new(EventName::DirectoryCreated).with("path", path.as_str());
        let wanted = Wanted {
            tool: "fs.create_dir",
            asked_as: "nfs.mkdir",
            path: path.as_str(),
            hidden: &[],
            flags: &[],
        };
        let made = self
            .alter(&held.export, &[(wanted, &path)], event, move |at| {
                let place = at.known(0, identity)?.place;
                at.inside(place, &parent, identity)?;
                let before = at.parent_facts(&parent)?;
                let facts = at.storage.make_directory(place, mode, &at.terms()?)?;
                Ok((facts, before, at.parent_facts(&parent)?))
            })
            .await?;
        self.made(held, &name, &made)
    }

    pub(super) async fn make_link(&self, held: &Held, name: &[u8], target: &Bytes) -> Result<Reply, Status> {
        let (path, name) = held.child(name)?;
        let (parent, identity, target) = (held.spot.path.clone(), held.spot.identity, target.clone());
        let event = Event::new(EventName::FileWritten).with("path", path.as_str()).with("link", true);
        let made = self
            .alter(&held.export, &[(write("nfs.symlink", &path), &path)], event, move |at| {
                let place = at.known(0, identity)?.place;
                at.inside(place, &parent, identity)?;
                at.may_be_link(place)?;
                let before = at.parent_facts(&parent)?;
                let facts = at.storage.make_link(place, &target, &at.terms()?)?;
                Ok((facts, before, at.parent_facts(&parent)?))
            })
            .await?;
        self.made(held, &name, &made)
    }

    fn made(
        &self,
        held: &Held,
        name: &str,
        (facts, before, after): &(FileFacts, FileFacts, FileFacts),
    ) -> Result<Reply, Status> {
        let export = &held.export;
        let found = Found {
            handle: export.handle(self.key()?, held.spot.file, name, facts),
            attributes: self.attributes(export, facts),
        };
        Ok(Reply::Made { found, directory: self.change(export, Some(before), Some(after)) })
    }

    pub(super) async fn remove(&self, held: &Held, name: &[u8], directory: bool) -> Result<Reply, Status> {
        let (path, _) = held.child(name)?;
        let (parent, identity) = (held.spot.path.clone(), held.spot.identity);
        let event = Event::new(EventName::FileDeleted).with("path", path.as_str());
        let asked_as = if directory { "nfs.rmdir" } else { "nfs.remove" };
        let (gone, before, after) = self
            .alter(&held.export, &[(delete(asked_as, &path, false), &path)], event, move |at| {
                let place = at.known(0, identity)?.place;
                at.inside(place, &parent, identity)?;
                let (gone, before) = (at.storage.facts(place)?, at.parent_facts(&parent)?);
                at.storage.remove(place, directory, &at.terms()?)?;
                Ok((gone, before, at.parent_facts(&parent)?))
            })
            .await?;
        // Under other names it lives on.
        if gone.links <= 1 || directory {
            held.export.removed(&gone.identity);
        }
        Ok(Reply::Changed(self.change(&held.export, Some(&before), Some(&after))))
    }

    /// Takes away here and puts there, and must be allowed both.
    pub(super) async fn rename(
        &self,
        old: &Held,
        from: &[u8],
        new: &Held,
        to: &[u8],
    ) -> Result<Reply, Status> {
        if old.export.id != new.export.id {
            let reason = "a rename from one export to another";
            return Err(self.unauthorized(Some(&new.export), reason, Status::CrossDevice).await);
        }
        let ((from, _), (to, name)) = (old.child(from)?, new.child(to)?);
        let export = &old.export;
        // What is at the new place goes, and a directory takes a whole tree there.
        if !self.plane.would_admit(&export.caller, &delete("nfs.rename", &to, true)) {
            return Err(Status::Access);
        }
        let event = Event::new(EventName::FileRenamed).with("path", from.as_str()).with("to", to.as_str());
        let ends = [old.spot.clone(), new.spot.clone()];
        let wanted = [(delete("nfs.rename", &from, true), &from), (write("nfs.rename", &to), &to)];
        let (replaced, moved, changes) = self
            .alter(export, &wanted, event, move |at| {
                let (from, to) = (at.known(0, ends[0].identity)?.place, at.known(1, ends[1].identity)?.place);
                at.inside(from, &ends[0].path, ends[0].identity)?;
                at.inside(to, &ends[1].path, ends[1].identity)?;
                let before = [at.parent_facts(&ends[0].path)?, at.parent_facts(&ends[1].path)?];
                let replaced = at.storage.facts(to).ok();
                at.storage.rename_over(from, to, &at.terms()?)?;
                let after = [at.parent_facts(&ends[0].path)?, at.parent_facts(&ends[1].path)?];
                Ok((replaced, at.storage.facts(to)?, (before, after)))
            })
            .await?;
        if let Some(gone) = replaced.filter(|gone| gone.identity != moved.identity && gone.links <= 2) {
            export.removed(&gone.identity);
        }
        export.renamed(new.spot.file, &name, &moved);
        let (before, after) = changes;
        Ok(Reply::Renamed {
            from: self.change(export, Some(&before[0]), Some(&after[0])),
            to: self.change(export, Some(&before[1]), Some(&after[1])),
        })
    }
}

fn halves(verifier: u64) -> (i64, i64) {
    // Within what every file system can hold as a time.
    (
        (i64::try_from(verifier >> 32).unwrap_or(0)) & 0x7fff_ffff,
        i64::try_from(verifier & 0x7fff_ffff).unwrap_or(0),
    )
}
