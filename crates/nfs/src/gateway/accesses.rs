//! Looking, reading and writing go by in many small requests. Those about one place that follow each other are one
//! operation: decided and charged once (and decided again when the decision has aged), with one intent before the first
//! of them and one record after the last. Every request is still an event.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::nfs3::Status;
use aegis_core::{Caller, Event, VolumePath, id::CallId, record::CallResult};
use aegis_plane::{Operation, Plane, Wanted};
use aegis_routes::files::{Attachment, FileError, attached::Permitted};
use tokio::sync::Mutex as AsyncMutex;

use super::status;

/// After so long without a request, an access has ended.
const IDLE: Duration = Duration::from_secs(2);
/// However busy it is, there is a record of it from time to time.
const LONGEST: Duration = Duration::from_secs(60);
/// A refusal is good for so long: a client that asks again and again leaves one record, not thousands.
const REFUSED: Duration = Duration::from_secs(1);
/// Places at one time in one export.
const MOST: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Look,
    Read,
    Write,
}

impl Kind {
    fn wanted(self, path: &str) -> Wanted<'_> {
        let (tool, asked_as, hidden): (_, _, &[&str]) = match self {
            Self::Look => ("fs.list", "nfs.look", &[]),
            Self::Read => ("fs.read", "nfs.read", &[]),
            Self::Write => ("fs.write", "nfs.write", &["content"]),
        };
        Wanted { tool, asked_as, path, hidden, flags: &[] }
    }

    /// Whether the path may be accessed that way, without doing it.
    pub(super) fn allowed(self, plane: &Plane, caller: &Caller, path: &VolumePath) -> bool {
        plane.would_admit(caller, &self.wanted(path.as_str()))
    }
}

#[derive(Debug, Default)]
pub(super) struct Accesses {
    slots: Mutex<HashMap<(Kind, VolumePath), Arc<Slot>>>,
}

#[derive(Debug, Default)]
pub(super) struct Slot {
    held: AsyncMutex<Held<Operation>>,
}

#[derive(Debug)]
struct Held<O> {
    state: State<O>,
    /// Take no further requests, and wait for those in work. Each has at least one, and there are few of these.
    retiring: Vec<Box<Open<O>>>,
}

#[derive(Debug)]
enum State<O> {
    Closed,
    Open(Box<Open<O>>),
    Refused { status: Status, until: Instant },
}

impl<O> Default for Held<O> {
    fn default() -> Self {
        Self { state: State::Closed, retiring: Vec::new() }
    }
}

impl<O> Held<O> {
    /// Lets no further request into what is open; handed out when none is in work, to be ended.
    fn retire(&mut self) -> Option<Box<Open<O>>> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(open) if open.in_work == 0 => Some(open),
            State::Open(open) => {
                self.retiring.push(open);
                None
            }
            other => {
                self.state = other;
                None
            }
        }
    }

    /// What a request entered, open still or not.
    fn entered(&mut self, call: CallId) -> Option<&mut Open<O>> {
        let current = match &mut self.state {
            State::Open(open) => Some(open),
            _ => None,
        };
        current.into_iter().chain(&mut self.retiring).map(Box::as_mut).find(|open| open.call == call)
    }

    /// The one that has waited for its last request and has none left, to be ended.
    fn retired(&mut self) -> Option<Box<Open<O>>> {
        let index = self.retiring.iter().position(|open| open.in_work == 0)?;
        Some(self.retiring.swap_remove(index))
    }
}

#[derive(Debug)]
struct Open<O> {
    operation: O,
    call: CallId,
    since: Instant,
    used: Instant,
    in_work: usize,
    bytes: u64,
    failed: Option<(String, String)>,
}

impl<O> Open<O> {
    fn new(operation: O, call: CallId) -> Self {
        let now = Instant::now();
        Self { operation, call, since: now, used: now, in_work: 0, bytes: 0, failed: None }
    }

    fn result(&self) -> CallResult {
        match &self.failed {
            None => CallResult::Done { bytes: self.bytes },
            Some((kind, message)) => CallResult::Failed { kind: kind.clone(), message: message.clone() },
        }
    }

    fn is_over(&self, idle: Duration) -> bool {
        self.in_work == 0 && (self.used.elapsed() >= idle || self.is_old())
    }

    /// A client that always has a request in work must not keep its record from being written.
    fn is_old(&self) -> bool {
        self.since.elapsed() >= LONGEST
    }
}

/// Who works where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) plane: &'a Plane,
    pub(super) caller: &'a Caller,
    pub(super) attachment: &'a Attachment,
}

impl Accesses {
    /// Does one request's work as part of the access to `key`, at `path`. `told` makes the event of it, and says how
    /// many bytes it moved.
    pub(super) async fn work<T>(
        &self,
        site: Site<'_>,
        kind: Kind,
        key: &VolumePath,
        path: &VolumePath,
        work: impl AsyncFnOnce(Permitted) -> Result<T, FileError>,
        told: impl FnOnce(&T) -> (Event, u64),
    ) -> Result<T, Status> {
        let slot = self.slot(site.plane, kind, key).await;
        let (call, permitted) = slot.enter(site, kind, key, path).await?;
        let done = work(permitted).await;
        slot.leave(site.plane, call, &done, told).await;
        done.map_err(|error| status::of_error(&error))
    }

    /// Ends the access to a path now, with its record, unless requests of it are still in work.
    pub(super) async fn end(&self, plane: &Plane, kind: Kind, key: &VolumePath) -> Result<(), Status> {
        let slot = self.slots().get(&(kind, key.clone())).cloned();
        match slot {
            Some(slot) => slot.close(plane, Duration::ZERO).await,
            None => Ok(()),
        }
    }

    /// Ends what has been idle.
    pub(super) async fn sweep(&self, plane: &Plane) {
        self.close_all(plane, IDLE).await;
    }

    /// Ends everything that no request is working on; answers whether that is all.
    pub(super) async fn finish(&self, plane: &Plane) -> bool {
        self.close_all(plane, Duration::ZERO).await;
        self.slots().values().all(|slot| slot.is_quiet())
    }

    async fn close_all(&self, plane: &Plane, idle: Duration) {
        let slots: Vec<Arc<Slot>> = self.slots().values().cloned().collect();
        for slot in slots {
            // What can't be recorded was said in the log, and the audit log refuses further work by itself.
            let _ = slot.close(plane, idle).await;
        }
        // Whoever holds a slot may be about to use it.
        self.slots().retain(|_, slot| Arc::strong_count(slot) > 1 || !slot.is_unused());
    }

    async fn slot(&self, plane: &Plane, kind: Kind, key: &VolumePath) -> Arc<Slot> {
        let crowded = {
            let slots = self.slots();
            if let Some(slot) = slots.get(&(kind, key.clone())) {
                return Arc::clone(slot);
            }
            slots.len() >= MOST
        };
        if crowded {
            self.close_all(plane, Duration::ZERO).await;
        }
        Arc::clone(self.slots().entry((kind, key.clone())).or_default())
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<(Kind, VolumePath), Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    async fn enter(
        &self,
        site: Site<'_>,
        kind: Kind,
        key: &VolumePath,
        path: &VolumePath,
    ) -> Result<(CallId, Permitted), Status> {
        let mut held = self.held.lock().await;
        if let State::Refused { status, until } = &held.state
            && *until > Instant::now()
        {
            return Err(*status);
        }
        if let State::Open(open) = &mut held.state
            && (open.is_old() || !site.plane.still_admits(&mut open.operation))
            && let Some(open) = held.retire()
        {
            end(site.plane, open).await?;
        }
        if !matches!(held.state, State::Open(_)) {
            held.state = match site.plane.begin(site.caller, &kind.wanted(key.as_str())).await {
                Ok(operation) => {
                    let call = operation.permit().call();
                    State::Open(Box::new(Open::new(operation, call)))
                }
                Err(violation) => {
                    let status = status::of_violation(&violation);
                    State::Refused { status, until: Instant::now() + REFUSED }
                }
            };
        }
        match &mut held.state {
            State::Open(open) => {
                let permitted = site.attachment.permitted(&[(open.operation.permit(), path)]);
                let permitted = permitted.map_err(|error| status::of_error(&error))?;
                open.in_work += 1;
                open.used = Instant::now();
                Ok((open.call, permitted))
            }
            State::Refused { status, .. } => Err(*status),
            State::Closed => Err(Status::ServerFault),
        }
    }

    async fn leave<T>(
        &self,
        plane: &Plane,
        call: CallId,
        done: &Result<T, FileError>,
        told: impl FnOnce(&T) -> (Event, u64),
    ) {
        let mut held = self.held.lock().await;
        let Some(open) = held.entered(call) else { return };
        open.in_work = open.in_work.saturating_sub(1);
        open.used = Instant::now();
        match done {
            Ok(value) => {
                let (event, bytes) = told(value);
                open.bytes = open.bytes.saturating_add(bytes);
                plane.announce(&open.operation, event);
            }
            // Whether something is there is a question like any other, and no failure.
            Err(FileError::NotFound) => {}
            Err(error) => {
                open.failed.get_or_insert_with(|| (error.kind().as_str().to_owned(), error.to_string()));
            }
        }
        if let Some(open) = held.retired() {
            // The request is done; what can't be recorded was said in the log, and keeps the next from beginning.
            let _ = end(plane, open).await;
        }
    }

    async fn close(&self, plane: &Plane, idle: Duration) -> Result<(), Status> {
        let mut held = self.held.lock().await;
        match &held.state {
            State::Open(open) if open.is_over(idle) => match held.retire() {
                Some(open) => end(plane, open).await,
                None => Ok(()),
            },
            State::Refused { until, .. } if *until <= Instant::now() => {
                held.state = State::Closed;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_quiet(&self) -> bool {
        let quiet =
            |held: &Held<Operation>| held.retiring.is_empty() && !matches!(held.state, State::Open(_));
        self.held.try_lock().is_ok_and(|held| quiet(&held))
    }

    fn is_unused(&self) -> bool {
        let unused = |held: &Held<Operation>| held.retiring.is_empty() && matches!(held.state, State::Closed);
        self.held.try_lock().is_ok_and(|held| unused(&held))
    }
}

async fn end(plane: &Plane, open: Box<Open<Operation>>) -> Result<(), Status> {
    let result = open.result();
    plane.end(open.operation, result).await.map_err(|violation| status::of_violation(&violation))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(held: &mut Held<()>, in_work: usize) -> CallId {
        let call = CallId::fresh();
        held.state = State::Open(Box::new(Open { in_work, ..Open::new((), call) }));
        call
    }

    #[test]
    fn one_with_requests_in_work_is_ended_by_the_last_of_them() {
        let mut held = Held::default();
        let first = begun(&mut held, 2);
        assert!(held.retire().is_none() && held.retired().is_none());
        let second = begun(&mut held, 1);
        for left in [1, 0] {
            held.entered(first).unwrap().in_work -= 1;
            assert_eq!(held.retired().map(|open| open.call), (left == 0).then_some(first));
            assert_eq!(held.entered(second).unwrap().in_work, 1);
        }
        assert!(held.entered(first).is_none() && held.retiring.is_empty());
        held.entered(second).unwrap().in_work = 0;
        assert_eq!(held.retire().unwrap().call, second);
        assert!(matches!(held.state, State::Closed));
    }

    #[test]
    fn a_refusal_is_not_retired() {
        let mut held = Held::<()> {
            state: State::Refused { status: Status::Access, until: Instant::now() + REFUSED },
            retiring: Vec::new(),
        };
        assert!(held.retire().is_none());
        assert!(matches!(held.state, State::Refused { .. }));
    }

    #[test]
    fn age_counts_however_busy_it_is() {
        let mut open = Open { in_work: 1, ..Open::new((), CallId::fresh()) };
        assert!(!open.is_old() && !open.is_over(Duration::ZERO));
        open.since = Instant::now().checked_sub(LONGEST).unwrap();
        assert!(open.is_old() && !open.is_over(IDLE));
        open.in_work = 0;
        assert!(open.is_over(IDLE));
    }
}
