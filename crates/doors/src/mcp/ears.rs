//! The client behind a running call: it hears of progress and of the server's log, and can be asked.

use std::sync::Arc;

use aegis_core::{
    Event,
    asking::{Answering, Manner, Question, Unanswered},
    progress::{Listener, Progress},
};
use serde_json::{Value, json, value::RawValue};
use tokio::sync::mpsc;

use super::{
    era::{Era, Revision},
    held::Doubts,
    level::Level,
    questions::Questions,
};
use crate::words::Words;

/// Words that wait to be said before the answer; what is too much is lost.
pub(crate) const MOST_ASIDES: usize = 64;

/// Something to say before the answer.
#[derive(Debug)]
pub(crate) enum Aside {
    /// Told in passing.
    Word(Vec<u8>),
    /// The client is asked, and the call waits for a person.
    Question(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Ears {
    pub(crate) manner: Manner,
    pub(crate) era: Era,
    /// Where progress goes, if it was asked for.
    pub(crate) words: Option<Arc<Words>>,
    /// Where everything else goes, if the answer comes on a stream.
    pub(crate) asides: Option<mpsc::Sender<Aside>>,
    pub(crate) level: Option<Level>,
    pub(crate) asking: Asking,
}

/// How the client is asked.
#[derive(Debug)]
pub(crate) enum Asking {
    No,
    /// On the stream of its answer.
    Here(Arc<Questions>),
    /// By an answer; it repeats its request.
    Again(Arc<Doubts>),
}

impl Ears {
    fn can_be_asked(&self, method: &str) -> bool {
        let ability = match method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            "roots/list" => "roots",
            _ => return false,
        };
        self.manner.abilities.contains_key(ability)
    }

    async fn ask_here(
        &self,
        questions: &Arc<Questions>,
        question: Question,
    ) -> Result<Box<RawValue>, Unanswered> {
        let asides = self.asides.as_ref().ok_or(Unanswered::Unable)?;
        let mut asking = questions.open().ok_or(Unanswered::Unable)?;
        let mut message = json!({"jsonrpc": "2.0", "method": question.method});
        message["id"] = serde_json::from_str(asking.id()).unwrap_or_default();
        if let Some(params) = question.params {
            message["params"] = serde_json::from_str(params.get()).map_err(|_| Unanswered::Unable)?;
            // Later revisions say of what kind a question is.
            if self.era == Era::Legacy(Revision::June2025)
                && let Some(params) = message["params"].as_object_mut()
                && params.get("mode").is_some_and(|mode| mode == "form")
            {
                params.remove("mode");
            }
        }
        let said = Aside::Word(message.to_string().into_bytes());
        asides.send(said).await.map_err(|_| Unanswered::Nothing)?;
        asking.heard().await.ok_or(Unanswered::Nothing)
    }
}

impl Listener for Ears {
    fn progress(&self, progress: Progress) {
        if let Some(words) = &self.words {
            words.progress(progress);
        }
    }

    /// Subscribers have it from the bus.
    fn event(&self, _: Event) {}

    fn log(&self, message: &Value) {
        let (Some(wanted), Some(asides)) = (self.level, &self.asides) else { return };
        let level = message["level"].as_str().and_then(Level::parse);
        if level.is_some_and(|level| level >= wanted) {
            let mut message = message.clone();
            if let Some(members) = message.as_object_mut() {
                members.remove("_meta");
            }
            let notification =
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": message});
            // A client that can't keep up loses words.
            let _ = asides.try_send(Aside::Word(notification.to_string().into_bytes()));
        }
    }

    fn manner(&self) -> Option<&Manner> {
        Some(&self.manner)
    }

    fn ask(&self, question: Question) -> Answering<'_> {
        if !self.can_be_asked(&question.method) {
            return Box::pin(std::future::ready(Err(Unanswered::Unable)));
        }
        match &self.asking {
            Asking::No => Box::pin(std::future::ready(Err(Unanswered::Unable))),
            Asking::Here(questions) => Box::pin(self.ask_here(questions, question)),
            Asking::Again(doubts) => Box::pin(doubts.ask(question)),
        }
    }
}
