//! Volumes: files that callers reach, confined by the kernel.
//!
//! A path is parsed (`VolumePath`), found in the tenant's mounts (`volume`), split into what the caller's grant
//! covers and what lies below it (`place`), and handed to the volume's `Storage`. Storages block, so every call
//! makes one hop to a thread that may; events are told when it is back.

pub mod attached;
mod edit;
mod error;
mod local;
mod located;
mod mounted;
mod patch;
mod place;
mod quota;
mod rename;
mod revise;
mod search;
mod storage;
mod sweep;
mod volume;

use std::{path::PathBuf, sync::Arc};

use crate::tool::Run;
use aegis_core::{Event, Failure, VolumePath, config::StorageConfig, event::EventName, path::BadPath};

pub use attached::{Attachment, VolumeSummary};
pub use error::FileError;
pub use mounted::{Blank, HostVolume};
pub use patch::AppliedHunk;
pub use place::Place;
pub use quota::{PER_ENTRY, Quota, Reservation};
pub use rename::Renamed;
pub use revise::{Revised, Revision};
pub use search::{FileHits, Found, Line, LinePattern, NamePattern, Query, Search, Skipped};
pub use storage::{Change, Content, Deleted, Entry, Listing, Portion, Rewritten, Staged, Storage, Terms};
pub use volume::{Owner, Volume, VolumeError};

use located::{Asked, Located};
use sweep::Sweep;
use volume::{Volumes, mounted_below};

/// All volumes of the node.
#[derive(Debug)]
pub struct Files {
    volumes: Volumes,
    sweep: Sweep,
    limits: Limits,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    read_bytes: u64,
    list_entries: usize,
    grep_matches: usize,
    glob_paths: usize,
    honour_ignore_files: bool,
}

/// One replacement of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub target: String,
    pub replacement: String,
}

/// What an edit did to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditReport {
    /// Where each replacement starts, counted from one, in the text as it was at its turn.
    pub lines: Vec<usize>,
    pub old_size: u64,
    pub new_size: u64,
}

impl Files {
    /// Opens the configured volumes. Tenants' workspaces are made in `directory` when first used.
    pub fn new(directory: PathBuf, config: &StorageConfig) -> Result<Self, VolumeError> {
        let volumes = Volumes::new(directory, config)?;
        Ok(Self {
            sweep: Sweep::start(&volumes),
            volumes,
            limits: Limits {
                read_bytes: config.max_read_bytes.0,
                list_entries: config.max_list_entries.max(1) as usize,
                grep_matches: config.max_grep_matches.max(1) as usize,
                glob_paths: config.max_glob_paths.max(1) as usize,
                honour_ignore_files: config.honour_ignore_files,
            },
        })
    }

    /// Blocks until the leftovers of a killed node, if there was one, are gone. Work need not wait for it.
    pub fn wait_until_swept(&self) {
        self.sweep.wait();
    }

    /// The whole file as text.
    pub async fn read_text(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
    ) -> Result<(VolumePath, String), Failure> {
        let portion = Portion::Whole(self.limits.read_bytes);
        self.read(run, path, portion, |content| {
            String::from_utf8(content.bytes)
                .map_err(|error| FileError::NotUtf8(error.utf8_error().valid_up_to()))
        })
        .await
    }

    /// At most the first `limit` bytes, and never more than the node reads at once; `take` makes of them what
    /// the caller wants.
    pub async fn read_start<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        limit: u64,
        take: impl FnOnce(Content) -> Result<T, FileError> + Send + 'static,
    ) -> Result<(VolumePath, T), Failure> {
        self.read(run, path, Portion::Start(limit.min(self.limits.read_bytes)), take).await
    }

    /// Small files that the kernel has in memory are answered right here; the hop to another thread would take
    /// many times as long as the read.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        portion: Portion,
        take: impl FnOnce(Content) -> Result<T, FileError> + Send + 'static,
    ) -> Result<(VolumePath, T), Failure> {
        let asked = self.asked(run, path)?;
        let told = |at: Located, bytes: usize, taken: Result<T, FileError>| {
            let taken = taken?;
            run.emit(at.event(EventName::FileRead).with("bytes", bytes));
            Ok((at.into_path(), taken))
        };
        if let Some((at, content)) = self.read_at_once(&asked, portion) {
            tokio::task::coop::consume_budget().await;
            let bytes = content.bytes.len();
            return told(at, bytes, take(content));
        }
        let (at, (bytes, taken)) = self
            .work_on(run, asked, move |at| {
                let content = at.volume.storage.read(&at.place, portion)?;
                Ok((content.bytes.len(), take(content)?))
            })
            .await?;
        told(at, bytes, Ok(taken))
    }

    fn read_at_once(&self, asked: &Asked, portion: Portion) -> Option<(Located, Content)> {
        let mounts = self.volumes.of_open(&asked.tenant)?;
        let at = asked.clone().locate(mounts).ok()?;
        let content = at.volume.storage.read_at_once(&at.place, portion)?;
        Some((at, content))
    }

    pub async fn write(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        content: String,
    ) -> Result<(VolumePath, u64), Failure> {
        let (at, bytes) = self
            .change(run, path, move |at, terms| {
                at.may_be_file()?;
                at.volume.storage.write(&at.place, content.as_bytes(), terms)?;
                Ok(content.len() as u64)
            })
            .await?;
        run.emit(at.event(EventName::FileWritten).with("bytes", bytes));
        Ok((at.into_path(), bytes))
    }

    pub async fn edit(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        edit: Edit,
    ) -> Result<(VolumePath, EditReport), Failure> {
        self.apply(run, path, vec![edit], |_, message| message).await
    }

    /// Replaces passages one after the other, all or none of them.
    pub async fn multi_edit(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        edits: Vec<Edit>,
    ) -> Result<(VolumePath, EditReport), Failure> {
        let explain =
            |index, message| format!("edit {index} (0-based): {message}; the file is left unchanged");
        self.apply(run, path, edits, explain).await
    }

    async fn apply(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        edits: Vec<Edit>,
        explain: fn(usize, String) -> String,
    ) -> Result<(VolumePath, EditReport), Failure> {
        let limit = self.limits.read_bytes;
        let (at, report) = self
            .change(run, path, move |at, terms| {
                let mut lines = Vec::with_capacity(edits.len());
                let mut change = |text: &str| apply(text, &edits, &mut lines, explain, terms.cancel);
                let Rewritten { old_size, new_size } =
                    at.volume.storage.rewrite(&at.place, limit, &mut change, terms)?;
                Ok(EditReport { lines, old_size, new_size })
            })
            .await?;
        if !report.lines.is_empty() {
            run.emit(at.event(EventName::FileWritten).with("bytes", report.new_size));
        }
        Ok((at.into_path(), report))
    }

    pub async fn list(self: &Arc<Self>, run: &Run<'_>, path: &str) -> Result<(VolumePath, Listing), Failure> {
        let limit = self.limits.list_entries;
        let (at, listing) = self.work(run, path, move |at| at.list(limit)).await?;
        run.emit(at.event(EventName::DirectoryListed).with("entries", listing.total));
        Ok((at.into_path(), listing))
    }

    /// Answers whether anything had to be made.
    pub async fn create_dir(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
    ) -> Result<(VolumePath, bool), Failure> {
        let (at, made) =
            self.change(run, path, |at, terms| at.volume.storage.create_dir(&at.place, terms)).await?;
        run.emit(at.event(EventName::DirectoryCreated).with("created", made));
        Ok((at.into_path(), made))
    }

    pub async fn delete(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        recursive: bool,
    ) -> Result<(VolumePath, Deleted), Failure> {
        let (at, deleted) = self
            .change(run, path, move |at, terms| {
                if mounted_below(&at.mounts, at.place.path()).next().is_some() {
                    return Err(FileError::MountPoint);
                }
                at.volume.storage.delete(&at.place, recursive, terms)
            })
            .await?;
        run.emit(
            at.event(EventName::FileDeleted).with("entries", deleted.entries).with("bytes", deleted.bytes),
        );
        Ok((at.into_path(), deleted))
    }

    pub async fn grep(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        pattern: String,
    ) -> Result<(VolumePath, Found), Failure> {
        let (limit, honour) = (self.limits.grep_matches, self.limits.honour_ignore_files);
        self.search(run, path, move |_| LinePattern::parse(&pattern).map(Query::Lines), limit, honour).await
    }

    pub async fn glob(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        pattern: String,
    ) -> Result<(VolumePath, Found), Failure> {
        let (limit, honour) = (self.limits.glob_paths, self.limits.honour_ignore_files);
        let query = move |start: &VolumePath| NamePattern::parse(&pattern, start).map(Query::Names);
        self.search(run, path, query, limit, honour).await
    }

    async fn search(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        query: impl FnOnce(&VolumePath) -> Result<Query, FileError> + Send + 'static,
        limit: usize,
        honour_ignore_files: bool,
    ) -> Result<(VolumePath, Found), Failure> {
        let (at, found) = self
            .work(run, path, move |at| at.search(&query(at.place.path())?, limit, honour_ignore_files))
            .await?;
        run.emit(
            at.event(EventName::TreeSearched)
                .with("hits", found.hits)
                .with("files", found.searched)
                .with("truncated", found.cut),
        );
        Ok((at.into_path(), found))
    }

    /// [`Files::work`] on a volume that may be changed.
    async fn change<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        deed: impl FnOnce(&Located, &Terms<'_>) -> Result<T, FileError> + Send + 'static,
    ) -> Result<(Located, T), Failure> {
        self.change_at(run, path, move |at, files, terms| {
            files.mark_changes();
            deed(at, terms)
        })
        .await
    }

    /// [`Files::work`] on a volume that may be changed, for a deed that says itself when it changes something.
    async fn change_at<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        deed: impl FnOnce(&Located, &Self, &Terms<'_>) -> Result<T, FileError> + Send + 'static,
    ) -> Result<(Located, T), Failure> {
        let files = self.clone();
        self.work(run, path, move |at| {
            let terms = at.volume.terms(&at.cancel)?;
            deed(at, &files, &terms)
        })
        .await
    }

    /// To be called before a change: from now on a kill may leave something.
    fn mark_changes(&self) {
        self.sweep.mark();
    }

    /// Finds the volume and does the deed there, on a thread that may block.
    async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Run<'_>,
        path: &str,
        deed: impl FnOnce(&Located) -> Result<T, FileError> + Send + 'static,
    ) -> Result<(Located, T), Failure> {
        let asked = self.asked(run, path)?;
        self.work_on(run, asked, deed).await
    }

    fn asked(&self, run: &Run<'_>, path: &str) -> Result<Asked, FileError> {
        let path = VolumePath::parse(path).inspect_err(|error| {
            if *error == BadPath::Traversal {
                run.emit(Event::new(EventName::PathTraversalBlocked).with("path", path));
            }
        })?;
        let tenant = run.permit.caller().tenant.clone();
        Asked::new(path, run.permit.limits(), tenant, run.cancel.clone())
    }

    async fn work_on<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Run<'_>,
        asked: Asked,
        deed: impl FnOnce(&Located) -> Result<T, FileError> + Send + 'static,
    ) -> Result<(Located, T), Failure> {
        let files = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mounts = files.volumes.of(&asked.tenant)?;
            let at = asked.locate(mounts)?;
            let outcome = deed(&at).map_err(|error| at.told(error));
            Ok::<_, FileError>((at, outcome))
        });
        let (at, outcome) = done.await.map_err(|error| FileError::System(std::io::Error::other(error)))??;
        match outcome {
            Ok(value) => Ok((at, value)),
            Err(error) => {
                if let FileError::QuotaExceeded { limit, used, growth } = error {
                    run.emit(
                        at.event(EventName::QuotaExceeded)
                            .with("bytes", growth)
                            .with("used", used)
                            .with("limit", limit),
                    );
                }
                Err(error.into())
            }
        }
    }
}

fn apply(
    text: &str,
    edits: &[Edit],
    lines: &mut Vec<usize>,
    explain: fn(usize, String) -> String,
    cancel: &tokio_util::sync::CancellationToken,
) -> Result<Option<String>, FileError> {
    let mut changed: Option<String> = None;
    for (index, edit) in edits.iter().enumerate() {
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled);
        }
        let current = changed.as_deref().unwrap_or(text);
        let edited =
            edit::replace_once(current, &edit.target, &edit.replacement).map_err(|error| match error {
                FileError::TargetNotFound(message) => FileError::TargetNotFound(explain(index, message)),
                FileError::TargetNotUnique(message) => FileError::TargetNotUnique(explain(index, message)),
                other => other,
            })?;
        lines.push(edited.line);
        changed = Some(edited.text);
    }
    Ok(changed)
}
