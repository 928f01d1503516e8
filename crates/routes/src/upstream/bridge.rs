//! Between a request to a server and whoever waits for its answer: progress, log messages and questions.
//!
//! The connection speaks from a task of its own and may not wait; the call's listener lives no longer than the call. So
//! words go through a queue, which loses what is too much, and are passed on by the call itself, rid of secrets that the
//! server was given.

use std::sync::Arc;

use aegis_core::{
    asking::{Question, Unanswered},
    progress::{Listener, Progress},
    secret::{Redactor, SecretSource},
};
use aegis_mcp_client::{Handler, ProgressUpdate, RpcError};
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, value::RawValue};
use tokio::sync::{mpsc, oneshot};

const QUEUE: usize = 64;

enum Word {
    Progress(ProgressUpdate),
    Log(Value),
    Question(Question, oneshot::Sender<Result<Box<RawValue>, Unanswered>>),
}

/// The end that the connection holds.
pub(super) struct Mouth {
    words: mpsc::Sender<Word>,
    can_be_asked: bool,
}

/// The end that the call holds.
pub(super) struct Ear {
    words: mpsc::Receiver<Word>,
    /// Asked for each word: a secret may be given out while the call runs.
    secrets: Arc<dyn SecretSource>,
}

pub(super) fn between(listener: &dyn Listener, secrets: &Arc<dyn SecretSource>) -> (Arc<Mouth>, Ear) {
    let (sender, words) = mpsc::channel(QUEUE);
    let can_be_asked = listener.manner().is_some_and(|manner| !manner.abilities.is_empty());
    (Arc::new(Mouth { words: sender, can_be_asked }), Ear { words, secrets: Arc::clone(secrets) })
}

impl aegis_mcp_client::Progress for Mouth {
    fn progress(&self, update: ProgressUpdate) {
        let _ = self.words.try_send(Word::Progress(update));
    }
}

impl Handler for Mouth {
    fn can_be_asked(&self) -> bool {
        self.can_be_asked
    }

    fn asked<'a>(
        &'a self,
        method: &'a str,
        params: Option<&'a RawValue>,
    ) -> BoxFuture<'a, Result<Box<RawValue>, RpcError>> {
        Box::pin(async move {
            let question = Question { method: method.to_owned(), params: params.map(ToOwned::to_owned) };
            let (answer, answered) = oneshot::channel();
            let put = self.words.send(Word::Question(question, answer)).await;
            let answer = match put {
                Ok(()) => answered.await.unwrap_or(Err(Unanswered::Nothing)),
                Err(_) => Err(Unanswered::Nothing),
            };
            answer.map_err(|unanswered| {
                let code = match unanswered {
                    Unanswered::Unable => RpcError::METHOD_NOT_FOUND,
                    Unanswered::Nothing => RpcError::INTERNAL,
                };
                RpcError::new(code, unanswered.to_string())
            })
        })
    }

    fn noticed(&self, method: &str, params: Option<&RawValue>) {
        if method == "notifications/message"
            && let Some(message) = params.and_then(|params| serde_json::from_str(params.get()).ok())
        {
            let _ = self.words.try_send(Word::Log(message));
        }
    }
}

impl Ear {
    /// Passes words on until `work` is done; what was said before its end is heard.
    pub(super) async fn during<T>(mut self, listener: &dyn Listener, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut questions = FuturesUnordered::new();
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                Some(()) = questions.next(), if !questions.is_empty() => {}
                Some(word) = self.words.recv() => match word {
                    Word::Question(question, answer) => {
                        let question = cleaned(&self.secrets.redactor(), question);
                        questions.push(async {
                            let answered = listener.ask(question).await;
                            let _ = answer.send(answered);
                        });
                    }
                    other => tell(listener, &self.secrets.redactor(), other),
                },
            }
        };
        while let Ok(word) = self.words.try_recv() {
            tell(listener, &self.secrets.redactor(), word);
        }
        done
    }
}

/// Unreadable parameters are left out: nobody could say what is in them.
fn cleaned(redactor: &Redactor, question: Question) -> Question {
    let params = question.params.and_then(|params| {
        // The text itself is not searched: JSON can write any letter in another way.
        let said: Value = serde_json::from_str(params.get()).ok()?;
        let mut kept = said.clone();
        redactor.value(&mut kept);
        if kept == said { Some(params) } else { RawValue::from_string(kept.to_string()).ok() }
    });
    Question { params, ..question }
}

fn tell(listener: &dyn Listener, redactor: &Redactor, word: Word) {
    match word {
        Word::Progress(ProgressUpdate { progress, total, message }) => {
            let message = message.map(|message| redactor.text(&message).into_owned());
            listener.progress(Progress { progress, total, message });
        }
        Word::Log(mut message) => {
            redactor.value(&mut message);
            listener.log(&message);
        }
        Word::Question(..) => {}
    }
}
