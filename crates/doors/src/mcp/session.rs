//! Sessions of clients that speak 2025-11-25 or older. A session remembers what was negotiated; it is no credential,
//! and is found only with the credential that began it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aegis_core::{
    Caller, Violation, ViolationKind,
    call::hex,
    id::{CredentialId, SessionId},
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    abilities::Abilities, era::Revision, in_flight::InFlight, questions::Questions, standing::Standing,
};

/// A session that was not used for this long has ended.
const LONGEST_IDLE: Duration = Duration::from_secs(24 * 60 * 60);
/// How much of its id a session shows in the audit record: enough to tell sessions apart, too little to guess the
/// rest.
const HANDLE_LENGTH: usize = 12;

#[derive(Debug)]
pub(crate) struct Session {
    id: String,
    credential: CredentialId,
    pub(crate) revision: Revision,
    pub(crate) abilities: Abilities,
    /// What servers may ask the client.
    pub(crate) takes: Map<String, Value>,
    pub(crate) standing: Arc<Standing>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) questions: Arc<Questions>,
    /// Cancelled when the session ends.
    pub(crate) ended: CancellationToken,
    /// The one stream that is open for messages from us.
    stream: Mutex<CancellationToken>,
    /// In milliseconds since the table was made.
    last_used: AtomicU64,
}

impl Session {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The session's name in records.
    pub(crate) fn handle(&self) -> SessionId {
        SessionId::new(&self.id[..HANDLE_LENGTH])
    }

    /// Opens the session's stream, in place of one that was open before: its client may have gone without our
    /// noticing yet.
    pub(crate) fn open_stream(&self) -> CancellationToken {
        let fresh = self.ended.child_token();
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stream, fresh.clone()).cancel();
        fresh
    }
}

/// All sessions of a node.
#[derive(Debug)]
pub(crate) struct Sessions {
    most: usize,
    /// No credential holds more than this: one client that begins sessions without end pushes out its own.
    most_per_credential: usize,
    born: Instant,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_id: HashMap<String, Filed>,
    /// By when each was last known to be used, longest ago first.
    idle: BTreeSet<(u64, String)>,
    idle_by_credential: HashMap<CredentialId, BTreeSet<(u64, String)>>,
}

#[derive(Debug)]
struct Filed {
    session: Arc<Session>,
    /// Under which time the session stands in the idle lists. It may have been used since.
    under: u64,
}

impl Sessions {
    pub(crate) fn new(most: u32) -> Self {
        let most = (most as usize).max(1);
        Self {
            most,
            most_per_credential: (most / 8).max(16).min(most),
            born: Instant::now(),
            table: Mutex::default(),
        }
    }

    /// Begins a session. The longest idle one ends if there is no room.
    pub(crate) fn begin(
        &self,
        caller: &Caller,
        revision: Revision,
        abilities: Abilities,
        takes: Map<String, Value>,
    ) -> Result<Arc<Session>, Violation> {
        let id = random_id()?;
        Ok(self.begin_at(self.now(), id, &caller.credential, revision, abilities, takes))
    }

    fn begin_at(
        &self,
        now: u64,
        id: String,
        credential: &CredentialId,
        revision: Revision,
        abilities: Abilities,
        takes: Map<String, Value>,
    ) -> Arc<Session> {
        let ended = CancellationToken::new();
        let session = Arc::new(Session {
            id,
            credential: credential.clone(),
            revision,
            abilities,
            takes,
            standing: Arc::default(),
            in_flight: Arc::default(),
            questions: Arc::default(),
            stream: Mutex::new(ended.child_token()),
            ended,
            last_used: AtomicU64::new(now),
        });
        let mut table = self.lock();
        while table.by_id.len() >= self.most {
            table.end_longest_idle(None);
        }
        while table.held_by(credential) >= self.most_per_credential {
            table.end_longest_idle(Some(credential));
        }
        table.end_forgotten(now);
        table.file(Arc::clone(&session), now);
        session
    }

    /// The session of that id, if this caller began it.
    pub(crate) fn find(&self, caller: &Caller, id: &str) -> Option<Arc<Session>> {
        self.find_at(self.now(), &caller.credential, id)
    }

    fn find_at(&self, now: u64, credential: &CredentialId, id: &str) -> Option<Arc<Session>> {
        let table = self.lock();
        let session = &table.by_id.get(id)?.session;
        let used = session.last_used.load(Ordering::Relaxed);
        if session.credential != *credential || now.saturating_sub(used) > millis(LONGEST_IDLE) {
            return None;
        }
        session.last_used.fetch_max(now, Ordering::Relaxed);
        Some(Arc::clone(session))
    }

    pub(crate) fn end(&self, session: &Session) {
        self.lock().remove(&session.id);
    }

    fn now(&self) -> u64 {
        millis(self.born.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn file(&mut self, session: Arc<Session>, under: u64) {
        let place = (under, session.id.clone());
        self.idle.insert(place.clone());
        self.idle_by_credential.entry(session.credential.clone()).or_default().insert(place);
        self.by_id.insert(session.id.clone(), Filed { session, under });
    }

    /// Takes a session out of every list.
    fn unfile(&mut self, id: &str) -> Option<Arc<Session>> {
        let Filed { session, under } = self.by_id.remove(id)?;
        let place = (under, session.id.clone());
        self.idle.remove(&place);
        if let Some(own) = self.idle_by_credential.get_mut(&session.credential) {
            own.remove(&place);
            if own.is_empty() {
                self.idle_by_credential.remove(&session.credential);
            }
        }
        Some(session)
    }

    fn remove(&mut self, id: &str) {
        if let Some(session) = self.unfile(id) {
            session.ended.cancel();
        }
    }

    fn held_by(&self, credential: &CredentialId) -> usize {
        self.idle_by_credential.get(credential).map_or(0, BTreeSet::len)
    }

    /// Ends the session that was unused for longest, among all or among those of one credential. Lists are brought up
    /// to date only here: a session found at the front that was used since moves back, so the first that was not is
    /// the longest idle one.
    fn end_longest_idle(&mut self, credential: Option<&CredentialId>) {
        loop {
            let list = match credential {
                None => Some(&self.idle),
                Some(credential) => self.idle_by_credential.get(credential),
            };
            let Some((under, id)) = list.and_then(BTreeSet::first).cloned() else { return };
            match self.used_since(under, &id) {
                Some(used) => self.move_back(&id, used),
                None => return self.remove(&id),
            }
        }
    }

    /// Ends what nobody came back to. A few at a time, so that no client waits for a long clean-up.
    fn end_forgotten(&mut self, now: u64) {
        for _ in 0..8 {
            let Some((under, id)) = self.idle.first().cloned() else { return };
            if now.saturating_sub(under) <= millis(LONGEST_IDLE) {
                return;
            }
            match self.used_since(under, &id) {
                Some(used) => self.move_back(&id, used),
                None => self.remove(&id),
            }
        }
    }

    fn used_since(&self, under: u64, id: &str) -> Option<u64> {
        let used = self.by_id.get(id)?.session.last_used.load(Ordering::Relaxed);
        (used > under).then_some(used)
    }

    fn move_back(&mut self, id: &str, used: u64) {
        if let Some(session) = self.unfile(id) {
            self.file(session, used);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// 160 bits that nobody can guess.
pub(crate) fn random_id() -> Result<String, Violation> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| {
        Violation::new(ViolationKind::InternalError, format!("the system gave no random bytes: {error}"))
    })?;
    Ok(hex(&bytes))
}

/// A name for a connection that has no id on the wire.
pub(crate) fn random_handle() -> Result<SessionId, Violation> {
    random_id().map(|id| SessionId::new(&id[..HANDLE_LENGTH]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: Revision = Revision::NEWEST;

    fn begin(sessions: &Sessions, now: u64, id: &str, credential: &str) -> Arc<Session> {
        sessions.begin_at(
            now,
            format!("{id:_<12}"),
            &credential.into(),
            NEWEST,
            Abilities::default(),
            Map::new(),
        )
    }

    fn finds(sessions: &Sessions, now: u64, id: &str, credential: &str) -> bool {
        sessions.find_at(now, &credential.into(), &format!("{id:_<12}")).is_some()
    }

    #[test]
    fn a_session_is_found_only_with_its_credential() {
        let sessions = Sessions::new(10);
        begin(&sessions, 0, "a", "alice");
        assert!(finds(&sessions, 1, "a", "alice"));
        assert!(!finds(&sessions, 1, "a", "mallory"));
        assert!(!finds(&sessions, 1, "b", "alice"));
    }

    #[test]
    fn the_longest_idle_one_makes_room() {
        let sessions = Sessions::new(3);
        for (now, id) in [(1, "a"), (2, "b"), (3, "c")] {
            begin(&sessions, now, id, id);
        }
        assert!(finds(&sessions, 4, "a", "a"));
        begin(&sessions, 5, "d", "d");
        assert!(!finds(&sessions, 6, "b", "b"));
        for id in ["a", "c", "d"] {
            assert!(finds(&sessions, 6, id, id), "{id}");
        }
    }

    #[test]
    fn who_begins_without_end_pushes_out_his_own() {
        let sessions = Sessions::new(160);
        begin(&sessions, 0, "quiet", "alice");
        for round in 0..1000 {
            begin(&sessions, 1 + round, &format!("m{round}"), "mallory");
        }
        assert!(finds(&sessions, 2000, "quiet", "alice"));
        assert!(finds(&sessions, 2000, "m999", "mallory"));
        assert!(!finds(&sessions, 2000, "m0", "mallory"));
        let table = sessions.lock();
        assert_eq!(table.held_by(&"mallory".into()), 20);
        assert_eq!((table.by_id.len(), table.idle.len()), (21, 21));
    }

    #[test]
    fn ending_leaves_nothing_behind() {
        let sessions = Sessions::new(10);
        let session = begin(&sessions, 0, "a", "alice");
        let stream = session.open_stream();
        sessions.end(&session);
        assert!(stream.is_cancelled() && session.ended.is_cancelled());
        assert!(!finds(&sessions, 1, "a", "alice"));
        let table = sessions.lock();
        assert!(table.by_id.is_empty() && table.idle.is_empty() && table.idle_by_credential.is_empty());
    }

    #[test]
    fn a_forgotten_session_has_ended() {
        let sessions = Sessions::new(10);
        begin(&sessions, 0, "a", "alice");
        let late = millis(LONGEST_IDLE) + 1;
        assert!(!finds(&sessions, late, "a", "alice"));
        begin(&sessions, late, "b", "alice");
        assert_eq!(sessions.lock().by_id.len(), 1);
    }

    #[test]
    fn a_new_stream_takes_the_place_of_the_old() {
        let sessions = Sessions::new(10);
        let session = begin(&sessions, 0, "a", "alice");
        let first = session.open_stream();
        let second = session.open_stream();
        assert!(first.is_cancelled() && !second.is_cancelled() && !session.ended.is_cancelled());
    }

    #[test]
    fn ids_are_visible_ascii_and_never_alike() {
        let (one, other) = (random_id().unwrap(), random_id().unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 40 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
