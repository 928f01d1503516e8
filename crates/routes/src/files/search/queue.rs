use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{Progress, ignores::Ignores};

/// An open directory on the walk.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) fd: OwnedFd,
    /// Relative to the start of the search, empty for the start itself.
    pub(super) path: Vec<u8>,
    pub(super) ignores: Option<Arc<Ignores>>,
}

#[derive(Debug)]
pub(super) enum Work {
    /// A directory still to be opened, by its path from the start: what waits holds no descriptor.
    Directory { path: Vec<u8>, ignores: Option<Arc<Ignores>> },
    /// Files of one directory: their names, each ended by NUL.
    Files { directory: Arc<Directory>, names: Vec<u8> },
}

/// Work for several threads, last in first out: depth first, so that little waits.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    idle: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    work: Vec<Work>,
    busy: usize,
}

impl Queue {
    pub(super) fn give(&self, work: impl IntoIterator<Item = Work>) {
        let mut state = self.state();
        state.work.extend(work);
        if self.idle.load(Ordering::Relaxed) > 0 {
            self.ready.notify_all();
        }
    }

    /// Waits for work; `None` when all of it is done, or the search has stopped. The work counts as under way
    /// until the guard goes.
    pub(super) fn take(&self, progress: &Progress<'_>) -> Option<(Work, Busy<'_>)> {
        let mut state = self.state();
        loop {
            if progress.stopped() {
                return None;
            }
            if let Some(work) = state.work.pop() {
                state.busy += 1;
                return Some((work, Busy(self)));
            }
            if state.busy == 0 {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether a thread waits: a busy one then shares what it has.
    pub(super) fn hungry(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Busy<'a>(&'a Queue);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        if state.busy == 0 {
            self.0.ready.notify_all();
        }
    }
}
