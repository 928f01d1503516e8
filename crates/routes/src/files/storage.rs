//! What a volume needs of the thing that keeps its bytes. A local directory implements it today; an object store
//! can, since nothing here speaks of file descriptors or of changing a file in place.
//!
//! Implementations block. The edge in `files` calls them from threads that may.

use std::fmt;

use tokio_util::sync::CancellationToken;

use super::{
    attached::Attached,
    error::FileError,
    place::Place,
    quota::Quota,
    search::{Found, Search},
};

pub trait Storage: Send + Sync + fmt::Debug {
    /// Reads one version of a file: replacing it meanwhile changes nothing in the answer.
    fn read(&self, place: &Place, portion: Portion) -> Result<Content, FileError>;

    /// The same, but only where that needs no waiting at all; this one may be called where nothing may block.
    /// `None` says nothing about the file: ask [`Storage::read`].
    fn read_at_once(&self, _place: &Place, _portion: Portion) -> Option<Content> {
        None
    }

    /// Makes or replaces a file, with missing parents. Readers and crashes see the old content or the new one.
    fn write(&self, place: &Place, content: &[u8], terms: &Terms<'_>) -> Result<(), FileError>;

    /// Reads a text, changes it and puts it back as one step. When somebody else changes the file in between,
    /// theirs is kept and the answer is [`FileError::ChangedWhileEditing`].
    ///
    /// `change` answers `None` to leave the file as it is.
    fn rewrite(
        &self,
        place: &Place,
        limit: u64,
        change: &mut Change<'_>,
        terms: &Terms<'_>,
    ) -> Result<Rewritten, FileError>;

    /// Makes ready what turns the file from `before` into `after`; `None` is a file that is not there. Everything that
    /// can fail should fail here: nothing is seen of it until [`Staged::commit`].
    fn stage<'s>(
        &'s self,
        place: &Place,
        before: Option<&[u8]>,
        after: Option<&[u8]>,
        terms: &Terms<'s>,
    ) -> Result<Box<dyn Staged + 's>, FileError>;

    /// Gives a file or directory another name in the same volume, with missing parents. Nothing is ever replaced.
    fn rename(&self, from: &Place, to: &Place, terms: &Terms<'_>) -> Result<(), FileError>;

    /// The first `limit` entries by name.
    fn list(&self, place: &Place, limit: usize, cancel: &CancellationToken) -> Result<Listing, FileError>;

    /// Makes a directory, with missing parents; `false` when it was there already.
    fn create_dir(&self, place: &Place, terms: &Terms<'_>) -> Result<bool, FileError>;

    fn delete(&self, place: &Place, recursive: bool, terms: &Terms<'_>) -> Result<Deleted, FileError>;

    /// The same files by number, where they have one and can be changed in place: only such a volume can be exported.
    fn attached(&self) -> Option<&dyn Attached> {
        None
    }

    fn search(&self, place: &Place, search: &Search<'_>) -> Result<Found, FileError>;

    /// Bytes in all files, and [`PER_ENTRY`](super::PER_ENTRY) for each file and directory.
    /// What can't be looked into is counted as far as it is known.
    fn usage(&self, cancel: &CancellationToken) -> Result<u64, FileError>;

    /// How many directories the last [`Storage::usage`] could not look into.
    fn unread(&self) -> u64;

    /// Removes what writers that were killed left behind; answers how many files that were.
    fn sweep(&self) -> Result<u64, FileError>;
}

/// A change that is ready to be made. Dropped before that, it leaves nothing behind.
pub trait Staged {
    /// Refused when the file is no longer what it was.
    fn commit(&mut self) -> Result<(), FileError>;

    /// Whether the file is another than before: a commit may have failed after that.
    fn is_made(&self) -> bool;

    /// Puts the file back as it was before [`Staged::commit`].
    fn undo(&mut self) -> Result<(), FileError>;
}

pub type Change<'a> = dyn FnMut(&str) -> Result<Option<String>, FileError> + 'a;

/// What every change has to keep to.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    pub quota: &'a Quota,
    pub cancel: &'a CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Portion {
    /// All of it, or [`FileError::TooLarge`] when it has more bytes than this.
    Whole(u64),
    /// The first so many bytes.
    Start(u64),
}

#[derive(Debug)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// How large the file is; more than `bytes` when only its start was asked for.
    pub size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewritten {
    pub old_size: u64,
    pub new_size: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Files and directories.
    pub entries: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub struct Listing {
    /// Sorted by name.
    pub entries: Vec<Entry>,
    /// How many there are, listed or not.
    pub total: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As stored, which need not be UTF-8.
    pub name: Vec<u8>,
    /// Of a symbolic link: whether what it points to is a directory inside the volume.
    pub is_directory: bool,
    pub is_symlink: bool,
}
