//! Looking, reading and writing go by in many small requests. Those about one place that follow each other are one
//! operation: decided and charged once (and decided again when the decision has aged), with one intent before the first
//! of them and one record after the last. Every request is still an event.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::nfs3::Status;
use aegis_core::{Caller, Event, VolumePath, record::CallResult};
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
    state: AsyncMutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    Open(Box<Open>),
    Refused {
        status: Status,
        until: Instant,
    },
}

#[derive(Debug)]
struct Open {
    operation: Operation,
    since: Instant,
    used: Instant,
    in_work: usize,
    bytes: u64,
    failed: Option<(String, String)>,
}

impl Open {
    fn result(&self) -> CallResult {
        match &self.failed {
            None => CallResult::Done { bytes: self.bytes },
            Some((kind, message)) => CallResult::Failed { kind: kind.clone(), message: message.clone() },
        }
    }

    fn is_over(&self, idle: Duration) -> bool {
        self.in_work == 0 && (self.used.elapsed() >= idle || self.since.elapsed() >= LONGEST)
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
        let permitted = slot.enter(site, kind, key, path).await?;
        let done = work(permitted).await;
        slot.leave(site.plane, &done, told).await;
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
    ) -> Result<Permitted, Status> {
        let mut state = self.state.lock().await;
        if let State::Refused { status, until } = &*state
            && *until > Instant::now()
        {
            return Err(*status);
        }
        if let State::Open(open) = &mut *state
            && !site.plane.still_admits(&mut open.operation)
        {
            Self::end(site.plane, &mut state).await?;
        }
        if !matches!(*state, State::Open(_)) {
            *state = match site.plane.begin(site.caller, &kind.wanted(key.as_str())).await {
                Ok(operation) => {
                    let now = Instant::now();
                    let open = Open { operation, since: now, used: now, in_work: 0, bytes: 0, failed: None };
                    State::Open(Box::new(open))
                }
                Err(violation) => {
                    let status = status::of_violation(&violation);
                    State::Refused { status, until: Instant::now() + REFUSED }
                }
            };
        }
        match &mut *state {
            State::Open(open) => {
                let permitted = site.attachment.permitted(&[(open.operation.permit(), path)]);
                let permitted = permitted.map_err(|error| status::of_error(&error))?;
                open.in_work += 1;
                open.used = Instant::now();
                Ok(permitted)
            }
            State::Refused { status, .. } => Err(*status),
            State::Closed => Err(Status::ServerFault),
        }
    }

    async fn leave<T>(
        &self,
        plane: &Plane,
        done: &Result<T, FileError>,
        told: impl FnOnce(&T) -> (Event, u64),
    ) {
        let mut state = self.state.lock().await;
        let State::Open(open) = &mut *state else { return };
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
    }

    async fn close(&self, plane: &Plane, idle: Duration) -> Result<(), Status> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Open(open) if open.is_over(idle) => Self::end(plane, &mut state).await,
            State::Refused { until, .. } if *until <= Instant::now() => {
                *state = State::Closed;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn end(plane: &Plane, state: &mut State) -> Result<(), Status> {
        let State::Open(open) = std::mem::take(state) else { return Ok(()) };
        let result = open.result();
        plane.end(open.operation, result).await.map_err(|violation| status::of_violation(&violation))
    }

    fn is_quiet(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| !matches!(*state, State::Open(_)))
    }

    fn is_unused(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| matches!(*state, State::Closed))
    }
}
