//! The thread that makes commits durable: while it waits for the disk, the writer goes on with the next entries.
//!
//! SQLite puts a commit into the write-ahead log and leaves the sync to us. One sync covers every commit handed over
//! before it began; whoever waits for an entry is answered after it.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use super::{
    error::AuditError,
    head::Head,
    queue::{Answer, Queue},
};

/// What a commit owes, once it is on disk.
#[derive(Debug, Default)]
pub(super) struct Owed {
    pub(super) numbers: Vec<(Answer<u64>, Result<u64, AuditError>)>,
    pub(super) heads: Vec<(Answer<Head>, Head)>,
    /// Room in the queue that its entries took.
    pub(super) bytes: usize,
}

impl Owed {
    fn pay(self, synced: &Result<(), AuditError>, queue: &Queue) {
        for (answer, number) in self.numbers {
            // A caller who went away does not undo the record.
            drop(answer.send(synced.clone().and(number)));
        }
        for (answer, head) in self.heads {
            drop(answer.send(synced.clone().map(|()| head)));
        }
        queue.release(self.bytes);
    }
}

#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Bounded by the queue's room, which is given back only after the sync.
    owed: Vec<Owed>,
    failed: Option<AuditError>,
    closing: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Syncer {
    /// The write-ahead log at `path` must be there, and must be the same file for as long as this one lives.
    pub(super) fn start(path: &Path, queue: Arc<Queue>) -> io::Result<Self> {
        let log = File::open(path)?;
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("audit-sync".into())
            .spawn(move || run(&own, &queue, || log.sync_data()))?;
        Ok(Self { shared, thread })
    }

    /// Takes over what a commit owes.
    pub(super) fn hand_over(&self, owed: Owed) {
        self.shared.state().owed.push(owed);
        self.shared.wake.notify_one();
    }

    /// Why the last sync failed, once.
    pub(super) fn failure(&self) -> Option<AuditError> {
        self.shared.state().failed.take()
    }

    /// Syncs and answers what is left. An error if that failed.
    pub(super) fn finish(self) -> Result<(), AuditError> {
        self.shared.state().closing = true;
        self.shared.wake.notify_one();
        self.thread.join().map_err(|_| AuditError::Closed)?;
        self.shared.state().failed.take().map_or(Ok(()), Err)
    }
}

fn run(shared: &Shared, queue: &Queue, sync: impl Fn() -> io::Result<()>) {
    loop {
        let mut state = shared.state();
        while state.owed.is_empty() && !state.closing {
            state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let owed = std::mem::take(&mut state.owed);
        drop(state);
        if owed.is_empty() {
            return;
        }
        let synced = sync().map_err(|error| AuditError::Unsynced(Arc::new(error)));
        if let Err(error) = &synced {
            // Before anybody is answered: from here on nothing is taken on until the writer has recovered.
            queue.set_fault(Some(error.clone()));
            shared.state().failed = Some(error.clone());
            queue.wake();
        }
        for one in owed {
            one.pay(&synced, queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::oneshot;

    use super::*;

    fn owed() -> (Owed, oneshot::Receiver<Result<u64, AuditError>>) {
        let (answer, answered) = oneshot::channel();
        (Owed { numbers: vec![(answer, Ok(7))], ..Owed::default() }, answered)
    }

    #[test]
    fn one_sync_answers_every_commit_before_it_and_none_after() {
        let (shared, queue) = (Arc::new(Shared::default()), Arc::new(Queue::new()));
        let (begun, begins) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            run(&own, &queue, || {
                begun.send(()).unwrap();
                may_go.recv().unwrap();
                Ok(())
            });
        });
        let syncer = Syncer { shared, thread };
        let (first, mut first_answered) = owed();
        syncer.hand_over(first);
        begins.recv().unwrap();
        let (second, mut second_answered) = owed();
        syncer.hand_over(second);
        go.send(()).unwrap();
        begins.recv().unwrap();
        assert_eq!(first_answered.try_recv().unwrap().unwrap(), 7);
        assert!(second_answered.try_recv().is_err());
        go.send(()).unwrap();
        syncer.finish().unwrap();
        assert_eq!(second_answered.try_recv().unwrap().unwrap(), 7);
    }

    #[test]
    fn a_sync_that_fails_tells_whoever_waits_and_stops_the_queue() {
        let (shared, queue) = (Arc::new(Shared::default()), Arc::new(Queue::new()));
        let (own, fault) = (Arc::clone(&shared), Arc::clone(&queue));
        let thread = std::thread::spawn(move || run(&own, &queue, || Err(io::Error::other("no disk"))));
        let syncer = Syncer { shared, thread };
        let (one, answered) = owed();
        syncer.hand_over(one);
        assert!(answered.blocking_recv().unwrap().unwrap_err().to_string().contains("no disk"));
        assert!(fault.health().is_err());
        assert!(matches!(syncer.failure(), Some(AuditError::Unsynced(_))));
        syncer.finish().unwrap();
    }
}
