//! Calls that are under way and wait for answers of a client that gives them by repeating its request. Meanwhile nothing
//! of the client is open, so the call is held here, for a while, for exactly that client.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aegis_core::{
    asking::{Question, Unanswered},
    id::CredentialId,
};
use aegis_plane::Reply;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};
use tokio_util::sync::DropGuard;

use super::session;
use crate::driven::driven;

/// A call that nobody comes back to is given up.
const LONGEST: Duration = Duration::from_secs(10 * 60);
const MOST: usize = 1024;
const MOST_PER_CREDENTIAL: usize = 32;
/// Questions that a server asks at the same time are put together.
const TOGETHER: Duration = Duration::from_millis(10);

/// The questions of one call that are open.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    open: Mutex<Open>,
    there: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u32,
    by_key: BTreeMap<String, (Question, oneshot::Sender<Box<RawValue>>)>,
}

impl Doubts {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn ask(&self, question: Question) -> Result<Box<RawValue>, Unanswered> {
        let (answer, answered) = oneshot::channel();
        {
            let mut open = self.open();
            open.next += 1;
            let key = format!("question_{}", open.next);
            open.by_key.insert(key, (question, answer));
        }
        self.there.notify_one();
        answered.await.map_err(|_| Unanswered::Nothing)
    }

    /// Waits until something is asked.
    pub(crate) async fn arise(&self) {
        while self.open().by_key.is_empty() {
            self.there.notified().await;
        }
        tokio::time::sleep(TOGETHER).await;
    }

    /// As `inputRequests` has them.
    pub(crate) fn questions(&self) -> Map<String, Value> {
        let open = self.open();
        let questions = open.by_key.iter().map(|(key, (question, _))| {
            let params: Value = match &question.params {
                Some(params) => serde_json::from_str(params.get()).unwrap_or_default(),
                None => json!({}),
            };
            (key.clone(), json!({"method": question.method, "params": params}))
        });
        questions.collect()
    }

    /// Takes the answers that there are to questions that are open; others are nobody's.
    pub(crate) fn answer(&self, responses: Option<&RawValue>) {
        let responses: HashMap<String, Box<RawValue>> =
            responses.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        let mut open = self.open();
        for (key, response) in responses {
            if response.get().starts_with('{')
                && let Some((_, answer)) = open.by_key.remove(&key)
            {
                let _ = answer.send(response);
            }
        }
    }
}

/// A call that is held.
pub(crate) struct Held {
    pub(crate) reply: BoxFuture<'static, Reply>,
    pub(crate) doubts: Arc<Doubts>,
    /// Cancels the call when nobody will come back to it.
    pub(crate) _guard: Option<DropGuard>,
    pub(crate) round: u32,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("round", &self.round).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(crate) struct HeldCalls {
    calls: Mutex<HashMap<String, Place>>,
}

#[derive(Debug)]
struct Place {
    credential: CredentialId,
    since: Instant,
    call: Held,
}

impl HeldCalls {
    /// Holds a call, and gives the name by which its client finds it again. `None` when there is no room.
    pub(crate) fn hold(&self, credential: &CredentialId, call: Held) -> Option<String> {
        let handle = session::random_id().ok()?;
        let mut calls = self.calls();
        calls.retain(|_, place| place.since.elapsed() < LONGEST);
        let own = calls.values().filter(|place| place.credential == *credential).count();
        if calls.len() >= MOST || own >= MOST_PER_CREDENTIAL {
            return None;
        }
        // Nobody waits for it until its client comes back: its time runs all the same.
        let call = Held { reply: driven(call.reply), ..call };
        calls.insert(handle.clone(), Place { credential: credential.clone(), since: Instant::now(), call });
        Some(handle)
    }

    /// The call of that name, if it is this caller's. Whoever takes it holds it from then on.
    pub(crate) fn take(&self, credential: &CredentialId, handle: &str, round: u32) -> Option<Held> {
        let mut calls = self.calls();
        let place = calls.get(handle)?;
        if place.credential != *credential || place.call.round != round || place.since.elapsed() >= LONGEST {
            return None;
        }
        calls.remove(handle).map(|place| place.call)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<String, Place>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(value: &Value) -> Box<RawValue> {
        RawValue::from_string(value.to_string()).unwrap()
    }

    fn question(method: &str) -> Question {
        Question { method: method.into(), params: None }
    }

    #[tokio::test]
    async fn questions_wait_together_and_are_answered_by_key() {
        let doubts = Arc::new(Doubts::default());
        let asking = |method: &'static str| {
            let doubts = Arc::clone(&doubts);
            tokio::spawn(async move { doubts.ask(question(method)).await })
        };
        let (one, other) = (asking("roots/list"), asking("elicitation/create"));
        doubts.arise().await;
        let open = doubts.questions();
        assert_eq!(open.len(), 2);
        let key = open.iter().find(|(_, question)| question["method"] == "roots/list").unwrap().0.clone();
        doubts.answer(Some(&raw(&json!({key: {"roots": []}, "unknown": {}, "question_9": 7}))));
        assert_eq!(one.await.unwrap().unwrap().get(), r#"{"roots":[]}"#);
        assert_eq!(doubts.questions().len(), 1);
        doubts.answer(None);
        assert_eq!(doubts.questions().len(), 1);
        other.abort();
    }

    #[tokio::test]
    async fn a_held_call_is_found_by_its_own_caller_and_once() {
        let held = HeldCalls::default();
        let call = || Held {
            reply: Box::pin(std::future::pending()),
            doubts: Arc::default(),
            _guard: None,
            round: 1,
        };
        let (alice, bob) = (CredentialId::new("a"), CredentialId::new("b"));
        let handle = held.hold(&alice, call()).unwrap();
        assert!(held.take(&bob, &handle, 1).is_none());
        assert!(held.take(&alice, &handle, 2).is_none());
        assert!(held.take(&alice, &handle, 1).is_some());
        assert!(held.take(&alice, &handle, 1).is_none());
        for _ in 0..MOST_PER_CREDENTIAL {
            assert!(held.hold(&alice, call()).is_some());
        }
        assert!(held.hold(&alice, call()).is_none());
        assert!(held.hold(&bob, call()).is_some());
    }
    #[tokio::test]
    async fn a_held_call_goes_on_while_its_client_is_away() {
        let (held, ended) = (HeldCalls::default(), Arc::new(Notify::new()));
        let reply = {
            let ended = Arc::clone(&ended);
            Box::pin(async move {
                ended.notify_one();
                std::future::pending().await
            })
        };
        let call = Held { reply, doubts: Arc::default(), _guard: None, round: 1 };
        assert!(held.hold(&CredentialId::new("a"), call).is_some());
        ended.notified().await;
    }
}
