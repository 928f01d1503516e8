//! What each session had read by the time of a call, rebuilt from the records before it.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use aegis_core::{Label, Timestamp, TrustClass};
use aegis_gates::policy::{SESSION_MEMORY, SessionLabels};

use super::past::{Glance, GlanceAtCaller, GlanceAtLabel};

/// Sessions remembered at once; those that were quiet for longest make room.
const MOST_SESSIONS: usize = 200_000;
/// Classes and sources told apart for one session.
const MOST_LABELS: usize = 32;

/// Walks along with the records.
#[derive(Debug)]
pub(super) struct Memory {
    hasher: RandomState,
    sessions: HashMap<u64, Session>,
    nothing: Arc<SessionLabels>,
    /// How long a caller without a session keeps its labels after the last of them.
    keeps: Duration,
}

#[derive(Debug)]
struct Session {
    entries: Vec<Label>,
    labels: Arc<SessionLabels>,
    read: Timestamp,
    touched: Timestamp,
}

impl Session {
    fn new(at: Timestamp) -> Self {
        Self { entries: Vec::new(), labels: Arc::default(), read: at, touched: at }
    }

    fn add(&mut self, label: &GlanceAtLabel<'_>) {
        let known = |entry: &Label| entry.trust == label.trust && entry.source == label.source;
        if self.entries.iter().any(known) || self.entries.len() >= MOST_LABELS {
            return;
        }
        let source = label.source.clone().into_owned().into();
        self.entries.push(Label { trust: label.trust, source, origin: None });
        self.labels = Arc::new(SessionLabels::of(&self.entries));
    }
}

impl Memory {
    pub(super) fn new(keeps: Duration) -> Self {
        Self { hasher: RandomState::new(), sessions: HashMap::new(), nothing: Arc::default(), keeps }
    }

    /// What the caller had read before this record, which is then remembered.
    pub(super) fn pass(&mut self, entry: &Glance<'_>) -> Arc<SessionLabels> {
        let Some(caller) = &entry.caller else { return Arc::clone(&self.nothing) };
        let key = self.key(caller);
        let (keeps, now) = (self.keeps, entry.time);
        let known = self.sessions.get_mut(&key).filter(|session| match caller.session {
            Some(_) => now < session.touched.plus(SESSION_MEMORY),
            None => now < session.read.plus(keeps),
        });
        let lives = known.is_some();
        let labels = known.map_or_else(
            || Arc::clone(&self.nothing),
            |session| {
                session.touched = session.touched.max(now);
                Arc::clone(&session.labels)
            },
        );
        let ran = entry.result.as_ref().is_some_and(|result| matches!(&*result.status, "done" | "failed"));
        // What the node itself says taints nobody.
        let read = entry.label.as_ref().filter(|label| ran && label.trust != TrustClass::ControlTrusted);
        if let Some(label) = read {
            self.make_room();
            let session = self.sessions.entry(key).or_insert_with(|| Session::new(now));
            if !lives {
                *session = Session::new(now);
            }
            session.read = session.read.max(now);
            session.add(label);
        }
        labels
    }

    fn key(&self, caller: &GlanceAtCaller<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        caller.tenant.hash(&mut hasher);
        match &caller.session {
            Some(session) => (0, session).hash(&mut hasher),
            None => (1, &caller.credential).hash(&mut hasher),
        }
        hasher.finish()
    }

    fn make_room(&mut self) {
        if self.sessions.len() < MOST_SESSIONS {
            return;
        }
        let mut seen: Vec<Timestamp> = self.sessions.values().map(|session| session.touched).collect();
        let middle = seen.len() / 2;
        let (_, middle, _) = seen.select_nth_unstable(middle);
        let middle = *middle;
        self.sessions.retain(|_, session| session.touched > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: u64, credential: &str, session: Option<&str>, trust: Option<&str>, status: &str) -> String {
        let session = session.map_or_else(String::new, |id| format!(r#","session":"{id}""#));
        let label =
            trust.map_or_else(String::new, |trust| format!(r#","label":{{"trust":"{trust}","source":"x"}}"#));
        format!(
            r#"{{"entry":"call","time":"{}","caller":{{"tenant":"local","credential":"{credential}"{session}}},"result":{{"status":"{status}"}}{label}}}"#,
            Timestamp::from_millis(at * 1000)
        )
    }

    #[test]
    fn labels_stick_to_the_session_or_for_a_while_to_the_credential() {
        let mut memory = Memory::new(Duration::from_secs(100));
        let mut pass = |text: String| {
            let glance: Glance<'_> = serde_json::from_str(&text).unwrap();
            memory.pass(&glance).classes().to_vec()
        };
        let outside = Some("EXTERNAL_UNTRUSTED");
        let tainted = [TrustClass::ExternalUntrusted];
        assert_eq!(pass(entry(1, "tok_a", None, outside, "done")), []);
        assert_eq!(pass(entry(2, "tok_a", None, None, "done")), tainted);
        assert_eq!(pass(entry(2, "tok_b", None, outside, "refused")), []);
        assert_eq!(pass(entry(3, "tok_b", None, Some("CONTROL_TRUSTED"), "done")), []);
        assert_eq!(pass(entry(4, "tok_b", None, None, "done")), []);
        assert_eq!(pass(entry(102, "tok_a", None, None, "done")), []);
        assert_eq!(pass(entry(102, "tok_a", Some("s"), outside, "failed")), []);
        assert_eq!(pass(entry(900, "tok_c", Some("s"), Some("USER_OWNED"), "done")), tainted);
        assert_eq!(
            pass(entry(901, "tok_a", Some("s"), None, "done")),
            [TrustClass::UserOwned, TrustClass::ExternalUntrusted]
        );
    }
}
