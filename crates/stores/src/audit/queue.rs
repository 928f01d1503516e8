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
    /// The writer sleeps until something is awaited.
    asleep: bool,
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
            wake = state.asleep;
        }
        state.requests.push_back(request);
        wake |= state.asleep && (state.awaited > 0 || state.requests.len() == BATCH);
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

    /// Sleeps until there is something to write or `due` has come, then takes a batch.
    ///
    /// It does not wait for more to come: a commit costs little, and while the disk syncs the first one, the others
    /// gather for the next sync by themselves.
    pub(super) fn take(&self, due: Option<Instant>) -> Work {
        let mut state = self.state();
        while !state.closing && !state.prodded && state.awaited == 0 && state.requests.len() < BATCH {
            state.asleep = true;
            state = match earliest(state.flush_at, due) {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let Some(left) =
                        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
                    else {
                        break;
                    };
                    self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.asleep = false;
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

fn earliest(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
