//! The thread that makes commits durable: while it waits for the disk, entries gather for the writer's next commit.
//!
//! SQLite puts a commit into the write-ahead log and leaves the sync to us. One sync covers every commit handed over
//! before it began; whoever waits for an entry is answered after it.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    thread::JoinHandle,
};

use super::{
    error::AuditError,
    files::Files,
    head::Head,
    queue::{Answer, Queue},
    writer::Marks,
};

/// What a commit owes, once it is on disk.
#[derive(Debug, Default)]
pub(super) struct Owed {
    pub(super) numbers: Vec<(Answer<u64>, Result<u64, AuditError>)>,
    pub(super) heads: Vec<(Answer<Head>, Head)>,
    /// Room in the queue that its entries took.
    pub(super) bytes: usize,
    /// How far the log goes with it: entries, and of these how many a head covers.
    pub(super) reaches: (u64, u64),
}

impl Owed {
    fn pay(self, synced: &Result<(), AuditError>, queue: &Queue, marks: &Marks) {
        if synced.is_ok() {
            marks.size.store(self.reaches.0, Ordering::Release);
            marks.sealed.store(self.reaches.1, Ordering::Release);
        }
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
    /// Why a sync failed. Until the writer has brought everything to the disk another way, no later sync counts: the
    /// kernel reports a lost page once, and what comes after it in the log is worth nothing without it.
    failed: Option<AuditError>,
    /// Whether the writer has been told.
    told: bool,
    closing: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Syncer {
    pub(super) fn start(files: Files, queue: Arc<Queue>, marks: Arc<Marks>) -> io::Result<Self> {
        let log = files.open_ahead()?;
        let sync = move || {
            log.sync_data().map_err(|error| AuditError::Unsynced(Arc::new(error)))?;
            files.check()
        };
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("audit-sync".into())
            .spawn(move || run(&own, &queue, &marks, sync))?;
        Ok(Self { shared, thread })
    }

    /// Takes over what a commit owes.
    pub(super) fn hand_over(&self, owed: Owed) {
        self.shared.state().owed.push(owed);
        self.shared.wake.notify_one();
    }

    /// Why a sync failed, told once.
    pub(super) fn failure(&self) -> Option<AuditError> {
        let mut state = self.shared.state();
        if std::mem::replace(&mut state.told, true) { None } else { state.failed.clone() }
    }

    /// Whether a sync failed and nothing has made up for it yet.
    pub(super) fn is_broken(&self) -> bool {
        self.shared.state().failed.is_some()
    }

    /// Everything committed so far is on disk after all.
    pub(super) fn recovered(&self) {
        self.shared.state().failed = None;
    }

    /// Syncs and answers what is left. An error if that failed.
    pub(super) fn finish(self) -> Result<(), AuditError> {
        self.shared.state().closing = true;
        self.shared.wake.notify_one();
        self.thread.join().map_err(|_| AuditError::Closed)?;
        self.shared.state().failed.take().map_or(Ok(()), Err)
    }
}

fn run(shared: &Shared, queue: &Queue, marks: &Marks, sync: impl Fn() -> Result<(), AuditError>) {
    loop {
        let mut state = shared.state();
        while state.owed.is_empty() && !state.closing {
            state = shared.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let owed = std::mem::take(&mut state.owed);
        let broken = state.failed.clone();
        drop(state);
        if owed.is_empty() {
            return;
        }
        let synced = match broken {
            Some(error) => Err(error),
            None => sync(),
        };
        if let Err(error) = &synced {
            // Before anybody is answered: from here on nothing is taken on until the writer has recovered.
            queue.set_fault(Some(error.clone()));
            let mut state = shared.state();
            state.told = false;
            state.failed = Some(error.clone());
            drop(state);
            queue.wake();
        }
        queue.end_sync(owed.len(), owed.iter().map(|one| one.numbers.len()).sum());
        for one in owed {
            one.pay(&synced, queue, marks);
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
            run(&own, &queue, &Marks::default(), || {
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
    fn after_a_sync_that_failed_no_later_one_counts_until_the_writer_has_recovered() {
        let (shared, queue) = (Arc::new(Shared::default()), Arc::new(Queue::new()));
        let (own, fault) = (Arc::clone(&shared), Arc::clone(&queue));
        let (begun, begins) = mpsc::channel();
        let (outcome, outcomes) = mpsc::channel::<Result<(), AuditError>>();
        let marks = Arc::new(Marks::default());
        let reached = Arc::clone(&marks);
        let thread = std::thread::spawn(move || {
            run(&own, &queue, &reached, || {
                begun.send(()).unwrap();
                outcomes.recv().unwrap()
            });
        });
        let syncer = Syncer { shared, thread };
        let (first, first_answered) = owed();
        syncer.hand_over(first);
        begins.recv().unwrap();
        let (second, second_answered) = owed();
        syncer.hand_over(second);
        let lost = AuditError::Unsynced(Arc::new(io::Error::other("no disk")));
        outcome.send(Err(lost)).unwrap();
        for answered in [first_answered, second_answered] {
            assert!(answered.blocking_recv().unwrap().unwrap_err().to_string().contains("no disk"));
        }
        assert!(fault.health().is_err() && syncer.is_broken());
        assert!(matches!(syncer.failure(), Some(AuditError::Unsynced(_))));
        assert_eq!(marks.size.load(Ordering::Acquire), 0);

        syncer.recovered();
        let (mut third, third_answered) = owed();
        third.reaches = (3, 0);
        syncer.hand_over(third);
        begins.recv().unwrap();
        outcome.send(Ok(())).unwrap();
        assert_eq!(third_answered.blocking_recv().unwrap().unwrap(), 7);
        assert_eq!(marks.size.load(Ordering::Acquire), 3);
        syncer.finish().unwrap();
    }
}
