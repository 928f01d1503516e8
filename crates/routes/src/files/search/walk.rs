use std::{
    ffi::CStr,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use rustix::fs::{FileType, OFlags};

use super::{
    Progress, Search,
    ignores::Ignores,
    queue::{Directory, Queue, Work},
};
use crate::files::{
    error::FileError,
    local::{Links, Root, entries, is_temporary},
    place::Place,
};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Files taken up at once; a thread with nothing to do gets half of what another has left.
const BATCH: usize = 128;
/// How many names go by between two looks at whether the search goes on.
const STRIDE: u32 = 256;
const MAX_THREADS: usize = 16;

/// Searches under way in the node: they share the cores instead of each taking all.
static SEARCHES: AtomicUsize = AtomicUsize::new(0);

/// One thread's share of a search.
pub(super) trait Searcher: Send {
    /// Looks at a name; `true` asks for [`Searcher::search`].
    fn wants(&mut self, directory: &Directory, name: &CStr) -> bool;

    fn search(&mut self, directory: &Directory, name: &CStr);
}

/// Which part of the tree can hold a hit.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// The walk begins here, below the start.
    pub(super) from: Vec<u8>,
    /// Directories with more components than this are not entered.
    pub(super) depth: Option<usize>,
}

pub(super) struct Walk<'a> {
    root: &'a Root,
    start: BorrowedFd<'a>,
    place: &'a Place,
    search: &'a Search<'a>,
    progress: &'a Progress<'a>,
    reach: Reach,
    queue: Queue,
    unreadable: AtomicU64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        root: &'a Root,
        start: BorrowedFd<'a>,
        place: &'a Place,
        search: &'a Search<'a>,
        progress: &'a Progress<'a>,
        reach: Reach,
    ) -> Self {
        Self {
            root,
            start,
            place,
            search,
            progress,
            reach,
            queue: Queue::default(),
            unreadable: AtomicU64::new(0),
        }
    }

    /// Walks with one searcher per thread and gives them back, with the number of unreadable directories.
    pub(super) fn run<S: Searcher>(self, searcher: impl Fn() -> S) -> (Vec<S>, u64) {
        let ignores = match self.search.honour_ignore_files {
            true => Ignores::above(self.root, self.place, &self.reach.from),
            false => None,
        };
        self.queue.give([Work::Directory { path: self.reach.from.clone(), ignores }]);
        let running = Running::start();
        let cores = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let others = (cores / running.searches).max(1) - 1;
        let mut searchers: Vec<S> = (0..=others).map(|_| searcher()).collect();
        thread::scope(|scope| {
            let mut each = searchers.iter_mut();
            let own = each.next();
            for searcher in each {
                // Where no thread can be had, the rest do the work.
                let _ = thread::Builder::new()
                    .name("aegis-search".into())
                    .spawn_scoped(scope, || self.work(searcher));
            }
            if let Some(own) = own {
                self.work(own);
            }
        });
        (searchers, self.unreadable.into_inner())
    }

    fn work<S: Searcher>(&self, searcher: &mut S) {
        let mut buffer = Vec::new();
        while let Some((work, _busy)) = self.queue.take(self.progress) {
            match work {
                Work::Directory { path, ignores } => self.directory(path, ignores, searcher, &mut buffer),
                Work::Files { directory, names } => self.files(&directory, &names, searcher),
            }
        }
    }

    fn directory<S: Searcher>(
        &self,
        path: Vec<u8>,
        ignores: Option<Arc<Ignores>>,
        searcher: &mut S,
        buffer: &mut Vec<u8>,
    ) {
        let fd = match self.root.beneath(self.start, &path, DIRECTORY, Links::Refuse) {
            Ok(fd) => fd,
            // Gone, or become something else, since its name was read.
            Err(FileError::NotFound | FileError::NotADirectory | FileError::LinkRefused) => return,
            Err(_) => {
                self.unreadable.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        let ignores = match self.search.honour_ignore_files {
            true => Ignores::within(ignores, fd.as_fd(), self.place, &path),
            false => None,
        };
        let directory = Arc::new(Directory { fd, path, ignores });
        let deeper = self.reach.depth.is_none_or(|depth| components(&directory.path) < depth);
        let mut below = Vec::new();
        let mut names = Vec::new();
        let mut count = 0;
        let mut seen = 0_u32;
        let outcome = entries(directory.fd.as_fd(), buffer, |name, kind| {
            seen = seen.wrapping_add(1);
            if seen.is_multiple_of(STRIDE) && self.progress.stopped() {
                return Err(FileError::Cancelled);
            }
            match kind {
                FileType::Directory if deeper => {
                    let path = join(&directory.path, name.to_bytes());
                    if !self.left_out(&directory, &path, true) {
                        below.push(Work::Directory { path, ignores: directory.ignores.clone() });
                    }
                }
                FileType::RegularFile if searcher.wants(&directory, name) => {
                    if directory.ignores.is_some()
                        && self.left_out(&directory, &join(&directory.path, name.to_bytes()), false)
                        || is_temporary(name.to_bytes())
                    {
                        return Ok(());
                    }
                    names.extend_from_slice(name.to_bytes_with_nul());
                    count += 1;
                    if count == BATCH {
                        self.batch(&directory, &mut names, searcher);
                        count = 0;
                    }
                }
                _ => {}
            }
            Ok(())
        });
        if outcome.is_err() && !self.progress.stopped() {
            self.unreadable.fetch_add(1, Ordering::Relaxed);
        }
        if !below.is_empty() {
            self.queue.give(below);
        }
        self.files(&directory, &names, searcher);
    }

    fn batch<S: Searcher>(&self, directory: &Arc<Directory>, names: &mut Vec<u8>, searcher: &mut S) {
        if self.queue.hungry() {
            let names = std::mem::take(names);
            self.queue.give([Work::Files { directory: directory.clone(), names }]);
        } else {
            self.files(directory, names, searcher);
            names.clear();
        }
    }

    fn files<S: Searcher>(&self, directory: &Arc<Directory>, names: &[u8], searcher: &mut S) {
        let mut rest = names;
        while let Ok(name) = CStr::from_bytes_until_nul(rest) {
            rest = &rest[name.count_bytes() + 1..];
            if self.progress.stopped() {
                return;
            }
            if !rest.is_empty() && self.queue.hungry() {
                rest = self.share_half(directory, rest);
            }
            searcher.search(directory, name);
        }
    }

    fn share_half<'n>(&self, directory: &Arc<Directory>, names: &'n [u8]) -> &'n [u8] {
        let middle = names.len() / 2;
        let Some(end) = memchr::memchr(0, &names[middle..]) else { return names };
        // With one name left, all of it goes: this thread has its own file to do first.
        let cut = if middle + end + 1 == names.len() { 0 } else { middle + end + 1 };
        let (kept, given) = names.split_at(cut);
        self.queue.give([Work::Files { directory: directory.clone(), names: given.to_owned() }]);
        kept
    }

    fn left_out(&self, directory: &Directory, path: &[u8], is_directory: bool) -> bool {
        (is_directory && self.search.covered.iter().any(|covered| covered.as_bytes() == path))
            || directory
                .ignores
                .as_ref()
                .is_some_and(|ignores| ignores.ignore(self.place, path, is_directory))
    }
}

struct Running {
    searches: usize,
}

impl Running {
    fn start() -> Self {
        Self { searches: SEARCHES.fetch_add(1, Ordering::Relaxed) + 1 }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        SEARCHES.fetch_sub(1, Ordering::Relaxed);
    }
}

fn components(path: &[u8]) -> usize {
    if path.is_empty() { 0 } else { memchr::memchr_iter(b'/', path).count() + 1 }
}

pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory);
    if !directory.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}
