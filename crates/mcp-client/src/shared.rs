//! One connection as its tasks see it, and what happens to each message that comes in.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU8, AtomicUsize, Ordering},
};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Error, RpcError},
    handler::{Handler, ProgressUpdate},
    handshake::{Facts, Identity},
    http::{Exchange, Mailbox},
    limits::Limits,
    message::{self, Message},
    pending::{Pending, Questioned},
};

/// So much is told of what is no message.
const STRAY: usize = 512;

#[derive(derive_more::Debug)]
pub(crate) struct Shared {
    pub(crate) pending: Pending,
    #[debug(skip)]
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) limits: Limits,
    pub(crate) identity: Identity,
    pub(crate) wire: Wire,
    /// Set once the handshake is through.
    pub(crate) facts: OnceLock<Facts>,
    /// Of a child.
    pub(crate) pid: OnceLock<u32>,
    /// Cancelled when a child has been seen off.
    pub(crate) gone: CancellationToken,
    /// Cancelled when the last handle is gone, or the connection has ended.
    pub(crate) stopping: CancellationToken,
    questions: Arc<Semaphore>,
    garbage: AtomicUsize,
    /// How much of its log an older server was asked for; see `Client::log_from`.
    pub(crate) loudness: AtomicU8,
}

/// How bytes leave.
#[derive(Debug)]
pub(crate) enum Wire {
    /// The input of a child; its output is read by a task.
    Pipe(mpsc::Sender<Bytes>),
    /// Each request is an exchange of its own.
    Http(Exchange),
    /// Requests are posted, answers come on one stream.
    Mailbox(Mailbox),
}

impl Shared {
    pub(crate) fn new(
        wire: Wire,
        identity: Identity,
        limits: Limits,
        handler: Arc<dyn Handler>,
    ) -> Arc<Self> {
        Arc::new(Self {
            pending: Pending::new(limits.pending),
            questions: Arc::new(Semaphore::new(limits.questions)),
            handler,
            limits,
            identity,
            wire,
            facts: OnceLock::new(),
            pid: OnceLock::new(),
            gone: CancellationToken::new(),
            stopping: CancellationToken::new(),
            garbage: AtomicUsize::new(0),
            loudness: AtomicU8::new(0),
        })
    }

    /// Ends the connection. Whoever waits is told the reason.
    pub(crate) fn end(&self, reason: &Error) {
        self.pending.end(reason);
        self.stopping.cancel();
    }

    /// Sends a message that wants no answer.
    pub(crate) async fn send(&self, bytes: Vec<u8>) -> Result<(), Error> {
        match &self.wire {
            Wire::Pipe(queue) => {
                let closed = || Error::Closed("its input is closed".into());
                queue.send(bytes.into()).await.map_err(|_| self.pending.ended().unwrap_or_else(closed))
            }
            Wire::Http(exchange) => exchange.post_aside(self, bytes.into()).await,
            Wire::Mailbox(mailbox) => mailbox.post(self, bytes.into()).await,
        }
    }

    /// Takes one message in. `origin` is the request on whose stream it came.
    pub(crate) fn take(self: &Arc<Self>, bytes: &[u8], origin: Option<u64>) {
        match message::read(bytes) {
            Ok(Message::Batch(messages)) => {
                for message in messages {
                    // A batch in a batch is no message.
                    match message::read(message.get().as_bytes()) {
                        Ok(Message::Batch(_)) | Err(_) => self.garbage(message.get().as_bytes()),
                        Ok(message) => self.sort(message, origin),
                    }
                }
            }
            Ok(message) => {
                self.garbage.store(0, Ordering::Relaxed);
                self.sort(message, origin);
            }
            Err(_) => self.garbage(bytes),
        }
    }

    fn garbage(&self, bytes: &[u8]) {
        if self.facts.get().is_none() {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(STRAY)]);
            let text: String = text.chars().filter(|character| !character.is_control()).collect();
            self.handler.stray(&text);
        }
        // Many servers print to their output by mistake; only one that does nothing else is given up.
        if self.garbage.fetch_add(1, Ordering::Relaxed) >= self.limits.garbage {
            self.end(&Error::protocol("it sends what are no messages"));
        }
    }

    fn sort(self: &Arc<Self>, message: Message<'_>, origin: Option<u64>) {
        match message {
            Message::Answer { id, result } => {
                // On a stream of its own a request can only be answered itself.
                if origin.is_some_and(|origin| origin != id) {
                    return tracing::debug!(id, "an answer came on the stream of another request");
                }
                let result = result.map(ToOwned::to_owned).map_err(Error::Rpc);
                if !self.pending.settle(id, result) {
                    tracing::debug!(id, "an answer that nobody waits for");
                }
            }
            // Only clients greet: this is what we said ourselves.
            Message::Question { method, .. }
                if self.facts.get().is_none() && matches!(&*method, "initialize" | "server/discover") =>
            {
                self.end(&Error::protocol("it sends back what it is sent, so it speaks no MCP"));
            }
            Message::Question { id, method, params } => self.question(id, &method, params, origin),
            Message::Notice { method, params } => self.notice(&method, params, origin),
            Message::Stray | Message::Batch(_) => {}
        }
    }

    fn notice(&self, method: &str, params: Option<&RawValue>, origin: Option<u64>) {
        if method == "notifications/message"
            && let Questioned::One(taker) = self.pending.questioned(origin, false)
        {
            return taker.noticed(method, params);
        }
        if method != "notifications/progress" {
            return self.handler.noticed(method, params);
        }
        #[derive(Deserialize)]
        struct Token<'a> {
            #[serde(rename = "progressToken", borrow)]
            token: &'a RawValue,
        }
        let Some(params) = params else { return };
        let Ok(Token { token }) = serde_json::from_str(params.get()) else { return };
        let Ok(update) = serde_json::from_str::<ProgressUpdate>(params.get()) else { return };
        if let Ok(id) = token.get().trim_matches('"').parse() {
            self.pending.progress(id, update);
        }
    }

    fn question(
        self: &Arc<Self>,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        origin: Option<u64>,
    ) {
        let shared = Arc::clone(self);
        let Ok(permit) = Arc::clone(&self.questions).try_acquire_owned() else {
            // Not even an answer: one that floods us with questions would fill our own queue with refusals.
            return tracing::debug!(method, "the server asks more than it may at once");
        };
        let (id, method, params) = (id.to_owned(), method.to_owned(), params.map(ToOwned::to_owned));
        tokio::spawn(async move {
            let answer = async {
                let result = shared.answer(&method, params.as_deref(), origin).await;
                shared.send(message::reply(&id, &result)).await
            };
            tokio::select! {
                sent = answer => if let Err(error) = sent {
                    tracing::debug!(%error, "an answer to the server's question could not be sent");
                },
                () = shared.stopping.cancelled() => {}
            }
            drop(permit);
        });
    }

    pub(crate) async fn answer(
        &self,
        method: &str,
        params: Option<&RawValue>,
        origin: Option<u64>,
    ) -> Result<Box<RawValue>, RpcError> {
        if method == "ping" {
            return Ok(empty_object());
        }
        match self.pending.questioned(origin, true) {
            Questioned::One(taker) => taker.asked(method, params).await,
            Questioned::Nobody => self.handler.asked(method, params).await,
            Questioned::Several => Err(RpcError::new(
                RpcError::INTERNAL,
                "several requests are under way, and the question does not say which it belongs to",
            )),
        }
    }
}

pub(crate) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
