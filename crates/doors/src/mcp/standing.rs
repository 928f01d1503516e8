//! What a client of the older revisions has asked for once and for all: how much of the log it wants, and which
//! resources it watches.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
};

use aegis_core::secret::Principal;

use super::{level::Level, watches::Watch};

/// More than anybody looks at.
const MOST_WATCHED: usize = 200;

#[derive(Debug, Default)]
pub(crate) struct Standing {
    level: AtomicU8,
    watched: Mutex<BTreeMap<String, Arc<Watch>>>,
}

impl Standing {
    pub(crate) fn level(&self) -> Option<Level> {
        Level::of_number(self.level.load(Ordering::Relaxed))
    }

    pub(crate) fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// `false` when it watches as much as it may.
    pub(crate) fn watch(&self, watch: Watch) -> bool {
        let mut watched = self.watched();
        if watched.len() >= MOST_WATCHED && !watched.contains_key(watch.uri()) {
            return false;
        }
        watched.insert(watch.uri().to_owned(), Arc::new(watch));
        true
    }

    pub(crate) fn unwatch(&self, uri: &str) {
        let gone = self.watched().remove(uri);
        drop(gone);
    }

    pub(crate) fn watches(&self, server: &str, uri: &str, whose: Option<&Principal>) -> bool {
        self.watched().get(uri).is_some_and(|watch| watch.hears(server, uri, whose))
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Watch>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
