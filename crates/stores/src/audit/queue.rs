//! What stands between callers and the one thread that writes: a bounded queue that hands over all it has at once.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use aegis_core::id::{ApprovalId, CallId};
use tokio::sync::{Semaphore, oneshot};

use super::{error::AuditError, head::Head};

/// How many bytes of bodies wait at most; past that, callers wait for room.
const ROOM: usize = 16 << 20;

/// The most entries in one transaction.
const BATCH: usize = 1024;

/// How long an entry that nobody waits for may stay in memory.
const FLUSH: Duration = Duration::from_millis(50);

/// While the disk syncs, as many entries are worth a commit of their own; fewer wait for the sync to end.
const WORTH_A_COMMIT: usize = 256;

/// How long callers who were answered together are given to come back, each. On most disks it is less than a sync takes.
const RETURN: Duration = Duration::from_micros(4);
const LONGEST_RETURN: Duration = Duration::from_micros(250);
/// So few are not waited for: the timer would take longer than they do.
const FEWEST_RETURNING: usize = 8;

pub(super) type Answer<T> = oneshot::Sender<Result<T, AuditError>>;

#[derive(Debug)]
pub(super) enum Request {
    Append(Append),
    Seal(Answer<Head>),
}

#[derive(Debug)]
pub(super) struct Append {
    pub(super) body: Vec<u8>,
    pub(super) mark: Mark,
    /// Whoever waits for the commit.
    pub(super) answer: Option<Answer<u64>>,
}

/// What an entry means for the list of calls that have begun and not ended, and for a person's approval. Whichever
/// entry comes first uses the approval up: the intent of the call, or the record that it never ran.
#[derive(Debug)]
pub(super) enum Mark {
    Begins(CallId, Option<ApprovalId>),
    Ends(CallId, Option<ApprovalId>),
    Neither,
}

impl Mark {
    /// Why an entry with this mark was not written.
    pub(super) fn consumed(&self) -> AuditError {
        match self {
            Self::Begins(_, Some(approval)) | Self::Ends(_, Some(approval)) => {
                AuditError::Consumed(approval.clone())
            }
            _ => AuditError::Closed,
        }
    }
}

impl Request {
    fn is_awaited(&self) -> bool {
        match self {
            Self::Append(append) => append.answer.is_some(),
            Self::Seal(_) => true,
        }
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Semaphore,
    /// Why nothing can be recorded at present.
    fault: Mutex<Option<AuditError>>,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Request>,
    /// How many of them somebody waits for.
    awaited: usize,
    /// When the oldest that nobody waits for must go.
    flush_at: Option<Instant>,
    /// The writer sleeps until as many are awaited.
    asleep_until: Option<usize>,
    /// Commits that are not on disk yet.
    unsynced: usize,
    /// Callers answered by the last sync, who are likely to be back at once, and until when that may be hoped for.
    returning: Option<(usize, Instant)>,
    /// The writer has something to do besides what is queued.
    prodded: bool,
    closing: bool,
    /// How it ended, once it has.
    ended: Option<Result<(), AuditError>>,
    closers: Vec<Answer<()>>,
}

/// What the writer is to do next.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) requests: Vec<Request>,
    pub(super) closing: bool,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            room: Semaphore::new(ROOM),
            fault: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn health(&self) -> Result<(), AuditError> {
        match &*self.fault.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(fault) => Err(fault.clone()),
        }
    }

    pub(super) fn set_fault(&self, fault: Option<AuditError>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Waits for room, then queues. A caller that gives up before there is room leaves nothing behind.
    pub(super) async fn append(&self, append: Append) -> Result<(), AuditError> {
        self.health()?;
        let bytes = u32::try_from(append.body.len()).unwrap_or(u32::MAX);
        let permit = self.room.acquire_many(bytes).await.map_err(|_| AuditError::Closed)?;
        // It may have been a long wait.
        self.health()?;
        self.push(Request::Append(append))?;
        permit.forget();
        Ok(())
    }

    pub(super) fn push(&self, request: Request) -> Result<(), AuditError> {
        let mut state = self.state();
        if state.closing {
            return Err(AuditError::Closed);
        }
        let mut wake = false;
        if request.is_awaited() {
            state.awaited += 1;
        } else if state.flush_at.is_none() {
            state.flush_at = Some(Instant::now() + FLUSH);
            // A sleeping writer must learn the new deadline.
            wake = state.asleep_until.is_some();
        }
        state.requests.push_back(request);
        wake |=
            state.asleep_until.is_some_and(|wanted| state.awaited == wanted || state.requests.len() == BATCH);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Gives back the room of bodies that are written, or refused.
    pub(super) fn release(&self, bytes: usize) {
        self.room.add_permits(bytes);
    }

    /// Has the writer look around although nothing is queued.
    pub(super) fn wake(&self) {
        self.state().prodded = true;
        self.wake.notify_one();
    }

    /// A commit is handed over to be synced.
    pub(super) fn begin_sync(&self) {
        self.state().unsynced += 1;
    }

    /// So many commits are on disk, or never will be, and so many callers are about to be answered.
    pub(super) fn end_sync(&self, commits: usize, answered: usize) {
        let mut state = self.state();
        state.unsynced = state.unsynced.saturating_sub(commits);
        state.returning = (answered >= FEWEST_RETURNING).then(|| {
            let patience = RETURN.saturating_mul(u32::try_from(answered).unwrap_or(u32::MAX));
            // Those who came meanwhile are not among them.
            (state.awaited + answered, Instant::now() + patience.min(LONGEST_RETURN))
        });
        // A writer that sleeps through the sync looks again when the next entry comes, or now if one has.
        let asleep = state.asleep_until.as_mut().map(|wanted| *wanted = 1).is_some();
        let wake = asleep && state.awaited > 0;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Sleeps until there is something to write or `due` has come, then takes a batch.
    ///
    /// A sync costs the same for one entry as for a hundred, and so do the pages that a commit writes anew. So what comes
    /// during a sync waits for its end, and callers who were answered together are given a moment to come back together.
    pub(super) fn take(&self, due: Option<Instant>) -> Work {
        let mut state = self.state();
        loop {
            let now = Instant::now();
            let (wanted, until) = state.waits_for(now);
            let enough = state.awaited >= wanted || state.requests.len() >= BATCH;
            if state.closing || state.prodded || enough {
                break;
            }
            state.asleep_until = Some(wanted);
            state = match earliest(until, earliest(state.flush_at, due)) {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let Some(left) = until.checked_duration_since(now).filter(|left| !left.is_zero()) else {
                        break;
                    };
                    self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.asleep_until = None;
        state.returning = None;
        state.prodded = false;
        let taken = state.requests.len().min(BATCH);
        let requests: Vec<Request> = state.requests.drain(..taken).collect();
        state.awaited -= requests.iter().filter(|request| request.is_awaited()).count();
        state.flush_at = (!state.requests.is_empty()).then(Instant::now);
        Work { requests, closing: state.closing && state.requests.is_empty() }
    }

    /// Takes no more entries. What is queued is still written.
    pub(super) fn begin_closing(&self) {
        self.room.close();
        self.state().closing = true;
        self.wake.notify_one();
    }

    /// Begins closing; the answer comes when everything is on disk.
    pub(super) fn close(&self) -> oneshot::Receiver<Result<(), AuditError>> {
        let (answer, answered) = oneshot::channel();
        self.begin_closing();
        let mut state = self.state();
        match state.ended.clone() {
            // The caller may be gone, which is no matter.
            Some(ended) => drop(answer.send(ended)),
            None => state.closers.push(answer),
        }
        drop(state);
        answered
    }

    /// The writer is gone. Whoever still waits learns it.
    pub(super) fn end(&self, ended: Result<(), AuditError>) {
        self.room.close();
        self.set_fault(Some(AuditError::Closed));
        let mut state = self.state();
        state.closing = true;
        // Dropped with their answers, which tells those who wait.
        state.requests.clear();
        let ended = state.ended.get_or_insert(ended).clone();
        let closers = std::mem::take(&mut state.closers);
        drop(state);
        for closer in closers {
            drop(closer.send(ended.clone()));
        }
    }
}

impl State {
    /// How many awaited entries are worth writing now, and when to look again although they have not come.
    fn waits_for(&mut self, now: Instant) -> (usize, Option<Instant>) {
        if self.unsynced > 0 {
            return (WORTH_A_COMMIT, None);
        }
        match self.returning {
            Some((all, until)) if now < until => (all, Some(until)),
            _ => {
                self.returning = None;
                (1, None)
            }
        }
    }
}

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn push(queue: &Queue, entries: usize) {
        for _ in 0..entries {
            let (answer, _) = oneshot::channel();
            let append = Append { body: Vec::new(), mark: Mark::Neither, answer: Some(answer) };
            queue.push(Request::Append(append)).unwrap();
        }
    }

    #[test]
    fn what_comes_during_a_sync_is_taken_together_after_it() {
        let queue = Arc::new(Queue::new());
        queue.begin_sync();
        push(&queue, 1);
        assert_eq!(queue.state().waits_for(Instant::now()), (WORTH_A_COMMIT, None));
        let taker = std::thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.take(None).requests.len()
        });
        push(&queue, 2);
        queue.end_sync(1, 1);
        assert_eq!(taker.join().unwrap(), 3);
    }

    #[test]
    fn a_sync_that_takes_long_does_not_keep_a_crowd_from_being_written() {
        let queue = Queue::new();
        queue.begin_sync();
        push(&queue, WORTH_A_COMMIT);
        assert_eq!(queue.take(None).requests.len(), WORTH_A_COMMIT);
    }

    #[test]
    fn callers_answered_together_are_waited_for_but_not_for_long() {
        let queue = Queue::new();
        queue.begin_sync();
        queue.end_sync(1, 20);
        let now = Instant::now();
        let (wanted, until) = queue.state().waits_for(now);
        assert_eq!(wanted, 20);
        assert!(until.unwrap() <= now + LONGEST_RETURN);
        // One of them has come back, the others never do.
        push(&queue, 1);
        assert_eq!(queue.take(None).requests.len(), 1);
    }

    #[test]
    fn a_few_callers_are_not_waited_for() {
        let queue = Queue::new();
        queue.begin_sync();
        queue.end_sync(1, FEWEST_RETURNING - 1);
        assert_eq!(queue.state().waits_for(Instant::now()), (1, None));
    }
}
