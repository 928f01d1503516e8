//! Who waits for which request. Rung, not polled.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aegis_core::id::ApprovalId;
use tokio::sync::{Notify, futures::Notified};

/// The most that wait at once.
const MOST_WAITERS: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Waiting {
    rooms: Mutex<Rooms>,
}

#[derive(Debug, Default)]
struct Rooms {
    by_request: HashMap<ApprovalId, Room>,
    waiters: usize,
}

#[derive(Debug, Default)]
struct Room {
    bell: Arc<Notify>,
    inside: usize,
}

/// A place in a waiting room, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiting: &'a Waiting,
    id: ApprovalId,
    bell: Arc<Notify>,
}

impl Waiting {
    fn rooms(&self) -> MutexGuard<'_, Rooms> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None when every place is taken.
    pub(super) fn enter(&self, id: &ApprovalId) -> Option<Waiter<'_>> {
        let mut rooms = self.rooms();
        if rooms.waiters >= MOST_WAITERS {
            return None;
        }
        rooms.waiters += 1;
        let room = rooms.by_request.entry(id.clone()).or_default();
        room.inside += 1;
        let bell = Arc::clone(&room.bell);
        drop(rooms);
        Some(Waiter { waiting: self, id: id.clone(), bell })
    }

    /// Something has happened to the request.
    pub(super) fn ring(&self, id: &ApprovalId) {
        let bell = self.rooms().by_request.get(id).map(|room| Arc::clone(&room.bell));
        if let Some(bell) = bell {
            bell.notify_waiters();
        }
    }
}

impl Waiter<'_> {
    pub(super) fn rung(&self) -> Notified<'_> {
        self.bell.notified()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut rooms = self.waiting.rooms();
        rooms.waiters -= 1;
        if let Some(room) = rooms.by_request.get_mut(&self.id) {
            room.inside -= 1;
            if room.inside == 0 {
                rooms.by_request.remove(&self.id);
            }
        }
    }
}
