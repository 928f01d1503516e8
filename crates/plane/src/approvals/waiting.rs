//! Who waits for which request, and hears what its call says. Rung, not polled.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aegis_core::{
    Approval, Caller, Event, Violation, ViolationKind,
    id::ApprovalId,
    progress::{Listener, Progress},
};
use tokio::sync::{
    Notify,
    broadcast::{self, error::RecvError},
};

use super::{Approvals, not_found, unusable};

/// The longest anybody waits in one go.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The most that wait at once.
const MOST_WAITERS: usize = 4096;
/// Words of a running call that somebody has not heard yet. The oldest is lost first.
const MOST_WORDS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Waiting {
    rooms: Mutex<Rooms>,
}

#[derive(Debug, Default)]
struct Rooms {
    by_request: HashMap<ApprovalId, Room>,
    waiters: usize,
}

#[derive(Debug)]
struct Room {
    bell: Arc<Notify>,
    words: broadcast::Sender<Progress>,
    inside: usize,
}

/// A place in a waiting room, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiter<'a> {
    waiting: &'a Waiting,
    id: ApprovalId,
    bell: Arc<Notify>,
    words: broadcast::Receiver<Progress>,
}

/// Who asked, and hears what the call says.
struct Follower<'a> {
    caller: &'a Caller,
    listener: &'a dyn Listener,
    tool: String,
    /// Whether it is noted that its session has read what such a tool says.
    noted: bool,
}

impl Approvals {
    /// Waits until nothing more will happen to a request, at most so long; returns its summary and outcome as it then
    /// stands.
    pub async fn wait(&self, id: &ApprovalId, at_most: Duration) -> Result<Approval, Violation> {
        self.until_settled(id, at_most, None).await
    }

    /// As [`Approvals::wait`]; and if the caller is who asked, it hears what the call says while it runs.
    pub async fn follow(
        &self,
        id: &ApprovalId,
        at_most: Duration,
        caller: &Caller,
        listener: &dyn Listener,
    ) -> Result<Approval, Violation> {
        let found = self.registry.find_approval(id).await.map_err(|error| unusable(&error))?;
        let Some(approval) = found else { return Err(not_found(id)) };
        let own = approval.is_of(caller);
        let follower = own.then_some(Follower { caller, listener, tool: approval.tool, noted: false });
        self.until_settled(id, at_most, follower).await
    }

    async fn until_settled(
        &self,
        id: &ApprovalId,
        at_most: Duration,
        mut follower: Option<Follower<'_>>,
    ) -> Result<Approval, Violation> {
        let Some(mut waiter) = self.waiting.enter(id) else {
            return Err(Violation::new(ViolationKind::Overloaded, "too many wait for approvals")
                .hint("ask for its state instead, or try again shortly")
                .retry_after(5));
        };
        let until = tokio::time::Instant::now() + at_most.min(LONGEST_WAIT);
        let bell = Arc::clone(&waiter.bell);
        loop {
            let rung = bell.notified();
            tokio::pin!(rung);
            // Before the look, so that what happens right after it is not missed.
            rung.as_mut().enable();
            let found = self.registry.find_approval(id).await.map_err(|error| unusable(&error))?;
            let Some(approval) = found else { return Err(not_found(id)) };
            if approval.is_settled() || self.stopping.is_cancelled() {
                return Ok(approval);
            }
            loop {
                tokio::select! {
                    // A call that never stops talking keeps nobody beyond their time; and when it has ended, its last
                    // words come before its end.
                    biased;
                    () = tokio::time::sleep_until(until) => return Ok(approval),
                    () = self.stopping.cancelled() => return Ok(approval),
                    word = waiter.word(), if follower.is_some() => {
                        if let Some(follower) = &mut follower {
                            self.tell(follower, word).await?;
                        }
                    }
                    () = &mut rung => break,
                }
            }
        }
    }

    async fn tell(&self, follower: &mut Follower<'_>, word: Progress) -> Result<(), Violation> {
        // What is shown has been read, also by who leaves before the answer.
        if !follower.noted {
            // While its server is away nobody can tell what the words are worth, and they are not told.
            let Some(tool) = self.plane()?.catalog().resolve(&follower.tool) else { return Ok(()) };
            self.policy.observe(follower.caller, &tool.label).await.map_err(|error| unusable(&error))?;
            follower.noted = true;
        }
        follower.listener.progress(word);
        Ok(())
    }
}

/// The call of a request, as it speaks to those who wait.
pub(super) struct Speaker<'a> {
    pub(super) waiting: &'a Waiting,
    pub(super) id: &'a ApprovalId,
}

impl Listener for Speaker<'_> {
    fn progress(&self, progress: Progress) {
        if let Some(room) = self.waiting.rooms().by_request.get(self.id) {
            // Fails only when the last one has just left.
            let _ = room.words.send(progress);
        }
    }

    fn event(&self, _: Event) {}
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
        let room = rooms.by_request.entry(id.clone()).or_insert_with(|| Room {
            bell: Arc::default(),
            words: broadcast::Sender::new(MOST_WORDS),
            inside: 0,
        });
        room.inside += 1;
        let (bell, words) = (Arc::clone(&room.bell), room.words.subscribe());
        drop(rooms);
        Some(Waiter { waiting: self, id: id.clone(), bell, words })
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
    /// What the call says next.
    async fn word(&mut self) -> Progress {
        loop {
            match self.words.recv().await {
                Ok(word) => return word,
                Err(RecvError::Lagged(_)) => {}
                // The room is there for as long as somebody is inside.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
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
