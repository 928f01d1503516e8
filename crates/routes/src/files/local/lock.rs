use std::{
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::Stat;

const SHARDS: usize = 256;

/// One writer per file at a time, for all volumes of the node. A file is known by its directory's inode and its
/// name there, so that two paths (or two mounts) that lead to one file share a lock. Two files may share one too,
/// which costs a wait and nothing else; a writer holds one lock only.
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
        let hash = self.hasher.hash_one((directory.st_dev, directory.st_ino, name));
        let shard = usize::try_from(hash % SHARDS as u64).unwrap_or_default();
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
