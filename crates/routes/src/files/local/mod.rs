//! A volume in a directory of this machine. The kernel confines every operation to it: names are resolved
//! beneath the root's file descriptor, changes go through the descriptor of the parent directory.

mod at_once;
mod attached;
mod delete;
mod list;
mod lock;
mod rename;
mod resolve;
mod stage;
mod temporary;
#[cfg(test)]
mod tests;
mod tree;
mod write;

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
};

use aegis_core::config::HardLinks;
use rustix::{
    fs::{FileType, Stat},
    io::{Errno, ReadWriteFlags},
};
use tokio_util::sync::CancellationToken;

pub(crate) use lock::FileLocks;
pub(crate) use resolve::{Confinement, Links, READ, Root};
pub(crate) use temporary::is_temporary;
pub(crate) use tree::entries;

use super::{
    attached::Attached,
    error::FileError,
    place::Place,
    search::{self, Found, Search},
    storage::{Change, Content, Deleted, Listing, Portion, Rewritten, Staged, Storage, Terms},
};

#[derive(Debug)]
pub(crate) struct LocalDirectory {
    root: Root,
    /// How small files can be read without waiting, if at all.
    at_once: Option<ReadWriteFlags>,
    hard_links: HardLinks,
    locks: Arc<FileLocks>,
    /// Directories that could not be looked into when it was last measured.
    unread: AtomicU64,
}

impl LocalDirectory {
    /// `confinement`: `None` takes the best that the kernel has.
    pub(crate) fn open(
        directory: &Path,
        hard_links: HardLinks,
        locks: Arc<FileLocks>,
        confinement: Option<Confinement>,
    ) -> io::Result<Self> {
        let root = Root::open(directory, confinement)?;
        if root.confinement() == Confinement::Walk {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::warn!(
                    "this kernel has no openat2: symbolic links in volumes are refused, not followed"
                );
            });
        }
        let at_once = at_once::way(&root);
        Ok(Self { root, at_once, hard_links, locks, unread: AtomicU64::new(0) })
    }

    fn readable(&self, fd: BorrowedFd<'_>) -> Result<Stat, FileError> {
        readable(fd, self.hard_links)
    }
}

/// The file's facts, when it is one that may be read.
pub(crate) fn readable(fd: BorrowedFd<'_>, hard_links: HardLinks) -> Result<Stat, FileError> {
    let stat = rustix::fs::fstat(fd)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Err(resolve::special(kind));
    }
    if stat.st_nlink > 1 && hard_links == HardLinks::Refuse {
        return Err(FileError::HardLinked(stat.st_nlink));
    }
    Ok(stat)
}

impl Storage for LocalDirectory {
    fn read(&self, place: &Place, portion: Portion) -> Result<Content, FileError> {
        let fd = self.root.open_at(place, READ)?;
        let stat = self.readable(fd.as_fd())?;
        read_portion(&fd, &stat, portion)
    }

    fn read_at_once(&self, place: &Place, portion: Portion) -> Option<Content> {
        at_once::read(&self.root, self.at_once?, place, portion, self.hard_links)
    }

    fn write(&self, place: &Place, content: &[u8], terms: &Terms<'_>) -> Result<(), FileError> {
        self.write_file(place, content, terms)
    }

    fn rewrite(
        &self,
        place: &Place,
        limit: u64,
        change: &mut Change<'_>,
        terms: &Terms<'_>,
    ) -> Result<Rewritten, FileError> {
        self.rewrite_file(place, limit, change, terms)
    }

    fn stage<'s>(
        &'s self,
        place: &Place,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
        terms: &Terms<'s>,
    ) -> Result<Box<dyn Staged + 's>, FileError> {
        self.stage_change(place, before, after, terms)
    }

    fn rename(&self, from: &Place, to: &Place, terms: &Terms<'_>) -> Result<(), FileError> {
        self.rename_entry(from, to, terms)
    }

    fn list(&self, place: &Place, limit: usize, cancel: &CancellationToken) -> Result<Listing, FileError> {
        list::list(&self.root, place, limit, cancel)
    }

    fn create_dir(&self, place: &Place, terms: &Terms<'_>) -> Result<bool, FileError> {
        self.root.make_directory(place, &|| self.room_for_one(terms))
    }

    fn delete(&self, place: &Place, recursive: bool, terms: &Terms<'_>) -> Result<Deleted, FileError> {
        delete::delete(&self.root, place, recursive, terms)
    }

    fn attached(&self) -> Option<&dyn Attached> {
        Some(self)
    }

    fn search(&self, place: &Place, search: &Search<'_>) -> Result<Found, FileError> {
        search::run(&self.root, place, self.hard_links, search)
    }

    fn usage(&self, cancel: &CancellationToken) -> Result<u64, FileError> {
        let tree::Total { bytes, unread } = tree::usage(&self.root, cancel)?;
        if self.unread.swap(unread, Ordering::Relaxed) != unread && unread > 0 {
            tracing::warn!(
                unread,
                "directories of a volume can't be looked into, so what is in there is not counted as in use; `aegis volume \
                 list` shows which volume"
            );
        }
        Ok(bytes)
    }

    fn unread(&self) -> u64 {
        self.unread.load(Ordering::Relaxed)
    }

    fn sweep(&self) -> Result<u64, FileError> {
        temporary::sweep(&self.root)
    }
}

/// Reads in one system call when the file keeps the size that it had a moment ago, and correctly when it grows or
/// shrinks meanwhile.
fn read_portion(fd: &OwnedFd, stat: &Stat, portion: Portion) -> Result<Content, FileError> {
    let size = size_of(stat);
    let limit = match portion {
        Portion::Whole(limit) if size > limit => return Err(FileError::TooLarge { size, limit }),
        Portion::Whole(limit) | Portion::Start(limit) => limit,
    };
    // One byte more than expected tells the end of the file from a file that has grown.
    let expected = usize::try_from(size.min(limit)).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(expected.saturating_add(1));
    loop {
        if bytes.len() == bytes.capacity() {
            bytes.reserve(64 << 10);
        }
        match rustix::io::read(fd, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) if bytes.len() as u64 > limit => break,
            Ok(_) if bytes.len() as u64 == size => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let read = bytes.len() as u64;
    if read > limit {
        let size = size.max(read);
        match portion {
            Portion::Whole(limit) => return Err(FileError::TooLarge { size, limit }),
            Portion::Start(limit) => bytes.truncate(usize::try_from(limit).unwrap_or(usize::MAX)),
        }
        return Ok(Content { bytes, size });
    }
    Ok(Content { bytes, size: read })
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}
