//! Searching a tree for lines or for names, on all cores. The matching is ripgrep's; the walk is our own, over
//! descriptors beneath the volume's root, and never follows a link.

mod ignores;
mod lines;
mod names;
mod queue;
mod walk;

use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use aegis_core::config::HardLinks;
use rustix::fs::FileType;
use tokio_util::sync::CancellationToken;

pub use lines::LinePattern;
pub use names::NamePattern;

use super::{
    error::FileError,
    local::{READ, Root},
    place::Place,
};

/// What to look for.
#[derive(Debug)]
pub enum Query {
    Lines(LinePattern),
    Names(NamePattern),
}

#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    pub query: &'a Query,
    /// The most hits: lines, or paths.
    pub limit: usize,
    /// Where names are matched from, when that is above the start: the start's path from there.
    pub prefix: &'a str,
    /// Paths below the start that other volumes are mounted over.
    pub covered: &'a [String],
    pub honour_ignore_files: bool,
    pub cancel: &'a CancellationToken,
}

/// Hits sorted by path, and what was left out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub files: Vec<FileHits>,
    pub hits: usize,
    /// There are more hits than the limit.
    pub cut: bool,
    pub searched: u64,
    pub skipped: Skipped,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileHits {
    /// Relative to the start of the search. Bytes that are no UTF-8 are shown as U+FFFD.
    pub path: String,
    /// Empty in a search for names.
    pub lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub number: u64,
    pub text: String,
}

/// Files that were not searched, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    pub binary: u64,
    pub not_utf8: u64,
    /// See `spec.storage.hard_links`.
    pub hard_linked: u64,
    /// A line too long to hold in memory; what comes before it was searched.
    pub long_lines: u64,
    /// Files and directories that the node may not read.
    pub unreadable: u64,
}

impl Skipped {
    pub fn total(&self) -> u64 {
        self.binary + self.not_utf8 + self.hard_linked + self.long_lines + self.unreadable
    }

    fn add(&mut self, other: &Self) {
        self.binary += other.binary;
        self.not_utf8 += other.not_utf8;
        self.hard_linked += other.hard_linked;
        self.long_lines += other.long_lines;
        self.unreadable += other.unreadable;
    }
}

impl Found {
    /// Adds what was found below `prefix`, e.g. in a volume that is mounted there.
    pub fn absorb(&mut self, prefix: &str, other: Self) {
        self.files.extend(other.files.into_iter().map(|mut file| {
            file.path = if prefix.is_empty() { file.path } else { format!("{prefix}/{}", file.path) };
            file
        }));
        self.hits += other.hits;
        self.cut |= other.cut;
        self.searched += other.searched;
        self.skipped.add(&other.skipped);
    }
}

/// Shared by the threads of one search.
#[derive(Debug)]
struct Progress<'a> {
    limit: usize,
    hits: AtomicUsize,
    stopped: AtomicBool,
    cancel: &'a CancellationToken,
}

impl Progress<'_> {
    /// Whether one more hit is wanted; when not, every thread stops.
    fn wants_hit(&self) -> bool {
        let wanted = self.hits.fetch_add(1, Ordering::Relaxed) < self.limit;
        if !wanted {
            self.stopped.store(true, Ordering::Relaxed);
        }
        wanted
    }

    fn take_back(&self, hits: usize) {
        self.hits.fetch_sub(hits, Ordering::Relaxed);
    }

    fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed) || self.cancel.is_cancelled()
    }
}

pub(super) fn run(
    root: &Root,
    place: &Place,
    hard_links: HardLinks,
    search: &Search<'_>,
) -> Result<Found, FileError> {
    let start = root.open_at(place, READ)?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&start)?.st_mode);
    let progress = Progress {
        limit: search.limit,
        hits: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
        cancel: search.cancel,
    };
    let mut found = Found::default();
    match (search.query, kind) {
        (Query::Lines(pattern), FileType::Directory) => {
            let walk = walk::Walk::new(root, start.as_fd(), place, search, &progress, walk::Reach::default());
            let (searchers, unreadable) =
                walk.run(|| lines::LineSearcher::new(pattern, hard_links, &progress));
            searchers.into_iter().for_each(|searcher| searcher.report(&mut found));
            found.skipped.unreadable += unreadable;
        }
        (Query::Lines(pattern), _) => {
            let name = place.path().as_str().rsplit_once('/').map_or("", |(_, name)| name);
            let mut searcher = lines::LineSearcher::new(pattern, hard_links, &progress);
            searcher.search_open(start, || name.to_owned());
            searcher.refusal()?;
            searcher.report(&mut found);
        }
        (Query::Names(pattern), FileType::Directory) => {
            let reach = if search.prefix.is_empty() { pattern.reach() } else { walk::Reach::default() };
            let walk = walk::Walk::new(root, start.as_fd(), place, search, &progress, reach);
            let (searchers, unreadable) =
                walk.run(|| names::NameSearcher::new(pattern, search.prefix, &progress));
            searchers.into_iter().for_each(|searcher| searcher.report(&mut found));
            found.skipped.unreadable += unreadable;
        }
        (Query::Names(_), _) => return Err(FileError::NotADirectory),
    }
    if search.cancel.is_cancelled() {
        return Err(FileError::Cancelled);
    }
    found.files.sort_unstable();
    found.cut = progress.hits.load(Ordering::Relaxed) > search.limit;
    found.hits = found.files.iter().map(|file| file.lines.len().max(1)).sum();
    Ok(found)
}
