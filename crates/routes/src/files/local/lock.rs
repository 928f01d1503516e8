use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::Stat;

const SHARDS: usize = 256;

/// One writer per file at a time, for all volumes of the node. A file is known by its directory's inode and its
/// name there, so that two paths (or two mounts) that lead to one file share a lock. Two files may share one too,
/// which costs a wait and nothing else; a writer holds one lock only, a rename two.
#[derive(Debug)]
pub(crate) struct FileLocks {
    shards: Box<[Mutex<()>]>,
    hasher: RandomState,
}

impl Default for FileLocks {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::new() }
    }
}

impl FileLocks {
    pub(super) fn lock(&self, directory: &Stat, name: &str) -> MutexGuard<'_, ()> {
        self.hold(self.shard(directory, name))
    }

    /// Both files of a rename, in an order that is the same for everybody who wants two.
    pub(super) fn lock_both(
        &self,
        one: (&Stat, &str),
        other: (&Stat, &str),
    ) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (one, other) = (self.shard(one.0, one.1), self.shard(other.0, other.1));
        let first = self.hold(one.min(other));
        (first, (one != other).then(|| self.hold(one.max(other))))
    }

    fn shard(&self, directory: &Stat, name: &str) -> usize {
        let hash = self.hasher.hash_one((directory.st_dev, directory.st_ino, name));
        usize::try_from(hash % SHARDS as u64).unwrap_or_default()
    }

    fn hold(&self, shard: usize) -> MutexGuard<'_, ()> {
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
