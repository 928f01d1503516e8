//! Carries a client on stdio to a node that is running already. What the client writes is posted to the node's `/mcp`
//! with the headers that HTTP wants; what the node answers is written back, line by line.

use std::{io, sync::Arc, time::Duration};

use aegis_core::Secret;
use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Semaphore, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    fault::Fault,
    in_flight::{Entered, InFlight},
    ladder,
    lines::{Line, Lines},
    message::{self, Message, Request},
    stdio,
};

mod node;
mod relay;
mod session;

pub use node::BridgeError;
use node::{Node, Routing};
use session::Session;

/// A line longer than this is refused here; the node has a limit of its own.
const LONGEST_LINE: usize = 64 << 20;
const MOST_AT_ONCE: usize = 256;
const OUTBOX: usize = 64;
/// How long a node that closed the stream of its notices is left in peace.
const BETWEEN_STREAMS: Duration = Duration::from_secs(1);
/// How long requests may go on after the client closed its end.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// Carries one client until it closes its end. `url` is the node's `/mcp`, with `?names=plain` if wanted; `context` is
/// the security context that an operator chose to act in.
pub async fn run<R, W>(
    url: &str,
    token: &Secret,
    context: Option<&str>,
    input: R,
    output: W,
) -> Result<(), BridgeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let bridge = Bridge {
        side: Arc::new(Side {
            session: Session::new(Node::new(url, token, context)?),
            outbox,
            closing: CancellationToken::new(),
        }),
        in_flight: Arc::default(),
        places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        work: TaskTracker::new(),
    };
    let reading = bridge.read(input);
    let writing = stdio::write(inbox, output);
    tokio::pin!(reading, writing);
    let mut read = None;
    loop {
        tokio::select! {
            ended = &mut reading, if read.is_none() => read = Some(ended),
            written = &mut writing => return Ok(written.and(read.unwrap_or(Ok(())))?),
        }
    }
}

struct Bridge {
    side: Arc<Side>,
    in_flight: Arc<InFlight>,
    places: Arc<Semaphore>,
    work: TaskTracker,
}

/// What requests in work share.
struct Side {
    session: Session,
    outbox: mpsc::Sender<Vec<u8>>,
    /// Cancelled when the client has closed its end.
    closing: CancellationToken,
}

impl Bridge {
    async fn read<R: AsyncRead + Unpin>(self, input: R) -> io::Result<()> {
        let mut lines = Lines::new(input, LONGEST_LINE);
        let ended = loop {
            match lines.next().await {
                Ok(Some(Line::Whole(line))) => self.take(line).await,
                Ok(Some(Line::TooLong)) => {
                    let refused = Fault::invalid_request(format!(
                        "a line was longer than {LONGEST_LINE} bytes and was dropped"
                    ));
                    self.side.say(refused.render(None)).await;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.side.closing.cancel();
        self.work.close();
        if tokio::time::timeout(LAST_REQUESTS, self.work.wait()).await.is_err() {
            self.in_flight.withdraw_all();
            self.work.wait().await;
        }
        self.side.session.end().await;
        ended
    }

    async fn take(&self, line: Vec<u8>) {
        let line = Bytes::from(line);
        let text = match message::text(&line) {
            Ok(text) => text,
            Err(unreadable) => return self.side.say(unreadable.render(None)).await,
        };
        if message::is_batch(text) {
            let side = Arc::clone(&self.side);
            return self.spawn(async move { side.carry(line, None, None).await }).await;
        }
        match Message::parse(text) {
            Ok(Message::Request(request)) => self.request(line.clone(), &request).await,
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled"
                    && let Some(id) = params.cancelled()
                {
                    // Closing the connection is how a stateless request is withdrawn; with a session the node must
                    // hear of it as well.
                    self.in_flight.withdraw(id);
                }
                if self.side.session.is_open() {
                    let listens = method == "notifications/initialized";
                    let side = Arc::clone(&self.side);
                    self.spawn(async move { side.notify(line.clone()).await }).await;
                    if listens {
                        let side = Arc::clone(&self.side);
                        self.spawn(async move { side.listen().await }).await;
                    }
                }
            }
            // An answer to a question that came on the stream of a request.
            Ok(Message::Response { .. }) => {
                if self.side.session.is_open() {
                    let side = Arc::clone(&self.side);
                    self.spawn(async move { side.notify(line.clone()).await }).await;
                }
            }
            Err(unreadable) => self.side.say(unreadable.render()).await,
        }
    }

    async fn request(&self, line: Bytes, request: &Request<'_>) {
        let modern = ladder::is_modern(request, None);
        if request.method == "initialize" && !modern {
            // What comes next needs the session that this begins.
            return self.side.initialize(line, request.id.as_str()).await;
        }
        let id = request.id.as_str().to_owned();
        let routing = modern.then(|| Routing::of(request));
        let entered = self.in_flight.enter(request.id);
        let side = Arc::clone(&self.side);
        let carrying = async move {
            let Entered { withdrawn, .. } = &entered;
            tokio::select! {
                () = side.carry(line, Some(&id), routing) => {}
                () = withdrawn.cancelled() => {}
            }
        };
        self.spawn(carrying).await;
    }

    async fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let place = Arc::clone(&self.places).acquire_owned().await;
        self.work.spawn(async move {
            let _place = place;
            work.await;
        });
    }
}

impl Side {
    /// Takes one line to the node and what it answers back to the client.
    async fn carry(&self, line: Bytes, id: Option<&str>, routing: Option<Routing>) {
        let answered = match &routing {
            Some(routing) => self.session.node().post(line, routing).await,
            None => self.session.post(line).await,
        };
        match answered {
            Ok(response) => relay::answer(response, id, &self.outbox).await,
            Err(gone) => self.say(gone.fault().render(id)).await,
        }
    }

    async fn initialize(&self, line: Bytes, id: &str) {
        match self.session.begin(line).await {
            Ok(answer) => self.say(relay::addressed(&answer, Some(id))).await,
            Err(gone) => self.say(gone.fault().render(Some(id))).await,
        }
    }

    async fn notify(&self, line: Bytes) {
        if let Err(gone) = self.session.post(line).await {
            tracing::debug!(error = %gone, "a notification did not reach the node");
        }
    }

    /// Passes on what the node says unasked, for as long as the client is there.
    async fn listen(&self) {
        let listening = async {
            loop {
                match self.session.listen().await {
                    Ok(Some(stream)) => drop(relay::events(stream, &self.outbox).await),
                    Ok(None) => return,
                    Err(gone) => tracing::debug!(error = %gone, "the node's notices can't be heard"),
                }
                // A node that is gone may be back in a moment.
                tokio::time::sleep(BETWEEN_STREAMS).await;
            }
        };
        tokio::select! {
            () = listening => {}
            () = self.closing.cancelled() => {}
        }
    }

    async fn say(&self, line: Vec<u8>) {
        // Fails only when the client reads no more; the writing side has seen that too.
        let _ = self.outbox.send(line).await;
    }
}

#[cfg(test)]
mod tests;
