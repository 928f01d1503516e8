//! Questions of ours to one client that wait for its answer. Only that client can answer them: each session has its
//! own, and a session is found only with its credential.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::message::Id;

/// A client that leaves this many unanswered is asked no more.
const MOST_OPEN: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The client is gone: nothing is asked any more.
    closed: bool,
    next: u64,
    by_id: HashMap<String, oneshot::Sender<Option<Box<RawValue>>>>,
}

/// What a client's user said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    Accept,
    Decline,
    /// The user looked away.
    Dismiss,
    /// There is no answer that could be read, or the client could not ask.
    Nothing,
}

#[derive(Deserialize)]
struct Elicited<'a> {
    action: &'a str,
}

impl Said {
    /// Reads the result of an elicitation. `None` is an error in its place.
    pub(crate) fn read(result: Option<&RawValue>) -> Self {
        let Some(text) = result.map(RawValue::get).filter(|text| text.starts_with('{')) else {
            return Self::Nothing;
        };
        match serde_json::from_str::<Elicited<'_>>(text) {
            Ok(Elicited { action: "accept" }) => Self::Accept,
            Ok(Elicited { action: "decline" }) => Self::Decline,
            Ok(Elicited { action: "cancel" }) => Self::Dismiss,
            _ => Self::Nothing,
        }
    }
}

impl Questions {
    /// Opens a question, unless too many wait already. It is closed when dropped.
    pub(crate) fn open(self: &Arc<Self>) -> Option<Question> {
        let (answer, answered) = oneshot::channel();
        let mut open = self.lock();
        if open.closed || open.by_id.len() >= MOST_OPEN {
            return None;
        }
        open.next += 1;
        let id = format!("\"aegis-{}\"", open.next);
        open.by_id.insert(id.clone(), answer);
        drop(open);
        Some(Question { id, answered, home: Arc::clone(self) })
    }

    /// Takes the client's answer. One to a question that is not open says nothing.
    pub(crate) fn answer(&self, id: Id<'_>, result: Option<&RawValue>) {
        let waiting = self.lock().by_id.remove(&id.key());
        if let Some(waiting) = waiting {
            let _ = waiting.send(result.map(ToOwned::to_owned));
        }
    }

    /// No answer can come any more: whoever waits for one learns it, and nothing more is asked.
    pub(crate) fn close(&self) {
        let mut open = self.lock();
        open.closed = true;
        open.by_id.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Question {
    /// As JSON.
    id: String,
    answered: oneshot::Receiver<Option<Box<RawValue>>>,
    home: Arc<Questions>,
}

impl Question {
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// What the user said to an elicitation.
    pub(crate) async fn answered(&mut self) -> Said {
        Said::read(self.heard().await.as_deref())
    }

    /// The answer as it came; nothing if that is an error.
    pub(crate) async fn heard(&mut self) -> Option<Box<RawValue>> {
        (&mut self.answered).await.ok().flatten()
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.home.lock().by_id.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::{super::message::Message, *};

    fn answer(home: &Questions, text: &str) {
        let Ok(Message::Response { id: Some(id), result }) = Message::parse(text) else { panic!("{text}") };
        home.answer(id, result);
    }

    #[tokio::test]
    async fn a_client_that_left_is_asked_nothing_and_keeps_nobody_waiting() {
        let home = Arc::new(Questions::default());
        let mut question = home.open().unwrap();
        home.close();
        assert_eq!(question.answered().await, Said::Nothing);
        assert!(home.open().is_none());
    }

    #[tokio::test]
    async fn an_answer_reaches_its_question() {
        let home = Arc::new(Questions::default());
        let (mut one, mut other) = (home.open().unwrap(), home.open().unwrap());
        assert_eq!((one.id(), other.id()), ("\"aegis-1\"", "\"aegis-2\""));
        answer(&home, r#"{"jsonrpc":"2.0","id":"aegis-2","result":{"action":"decline"}}"#);
        answer(&home, r#"{"jsonrpc":"2.0","id":"aegis-2","result":{"action":"accept"}}"#);
        answer(&home, r#"{"jsonrpc":"2.0","id":"aegis-1","result":{"action":"accept","content":{}}}"#);
        answer(&home, r#"{"jsonrpc":"2.0","id":"aegis-7","result":{"action":"accept"}}"#);
        assert_eq!((one.answered().await, other.answered().await), (Said::Accept, Said::Decline));
    }

    #[tokio::test]
    async fn what_says_nothing_counts_as_nothing() {
        for text in [
            r#"{"jsonrpc":"2.0","id":"aegis-1","error":{"code":-32601,"message":"no"}}"#,
            r#"{"jsonrpc":"2.0","id":"aegis-1","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"aegis-1","result":["accept"]}"#,
            r#"{"jsonrpc":"2.0","id":"aegis-1","result":{"action":"ACCEPT"}}"#,
            r#"{"jsonrpc":"2.0","id":"aegis-1","result":{"action":"accept"},"error":{}}"#,
        ] {
            let home = Arc::new(Questions::default());
            let mut question = home.open().unwrap();
            answer(&home, text);
            assert_eq!(question.answered().await, Said::Nothing, "{text}");
        }
    }

    #[test]
    fn open_questions_are_few_and_leave_nothing_behind() {
        let home = Arc::new(Questions::default());
        let open: Vec<_> = std::iter::from_fn(|| home.open()).collect();
        assert_eq!(open.len(), MOST_OPEN);
        drop(open);
        assert!(home.lock().by_id.is_empty());
        assert!(home.open().is_some());
    }
}
