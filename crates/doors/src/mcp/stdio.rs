//! MCP over a pipe: one JSON text per line each way. A client of either era is served, message by message.

use std::{io, sync::Arc, time::Duration};

use aegis_core::Caller;
use serde_json::{Map, Value};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::{Semaphore, broadcast::error::RecvError, mpsc},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    abilities::{self, Abilities},
    call::{Client, Withdrawal},
    conversation::{Conversation, Step},
    definitions::Names,
    era::{Era, Revision},
    fault::Fault,
    in_flight::InFlight,
    ladder,
    lines::{Line, Lines},
    listen::{self, Listening},
    message::{self, Message, Request},
    progress::{self, Pace},
    questions::Questions,
    session,
    standing::Standing,
};
use crate::Doors;

/// Requests in work at once. Further ones wait unread.
const MOST_AT_ONCE: usize = 256;
/// Answers that wait to be written.
const OUTBOX: usize = 64;
/// How long a client may take to read what is left to say, once nothing more is being done for it.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much room for answers is kept between writes.
const LARGEST_KEPT: usize = 1 << 20;

/// Serves one client until it closes its end or the node stops. `output` carries nothing but the protocol.
pub async fn serve<R, W>(doors: Arc<Doors>, caller: Caller, input: R, output: W) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    serve_as(doors, caller, Setting { names: Names::Exact, alone: false }, input, output).await
}

/// How one pipe is served.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub names: Names,
    /// The node has no other door, so no approver can reach it: what would wait for one is refused.
    pub alone: bool,
}

/// As [`serve`], with a choice of how.
pub async fn serve_as<R, W>(
    doors: Arc<Doors>,
    mut caller: Caller,
    setting: Setting,
    input: R,
    output: W,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if caller.session.is_none() {
        caller.session = Some(session::random_handle().map_err(io::Error::other)?);
    }
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let pipe = Pipe {
        longest: usize::try_from(doors.network.max_body.0).unwrap_or(usize::MAX),
        conversation: Conversation::new(&doors, Pace::default()),
        caller,
        setting,
        outbox,
        revision: Revision::NEWEST,
        abilities: Abilities::default(),
        takes: Map::new(),
        standing: Arc::default(),
        in_flight: Arc::default(),
        questions: Arc::default(),
        places: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        work: TaskTracker::new(),
        over: doors.stopping.child_token(),
    };
    let (in_flight, over) = (Arc::clone(&pipe.in_flight), pipe.over.clone());
    let reading = pipe.read(input);
    let writing = write(inbox, output);
    let plane = Arc::clone(&doors.plane);
    let too_late = async move {
        over.cancelled().await;
        tokio::time::sleep(plane.drain_time() + LAST_WORDS).await;
    };
    tokio::pin!(reading, writing, too_late);
    let mut read = None;
    loop {
        tokio::select! {
            ended = &mut reading, if read.is_none() => read = Some(ended),
            // Ends in order when everything that could send has ended, and early when the client reads no more.
            written = &mut writing => {
                in_flight.withdraw_all();
                return written.and(read.unwrap_or(Ok(())));
            }
            // A client that is there and does not read keeps nobody from stopping.
            () = &mut too_late => {
                in_flight.withdraw_all();
                return read.unwrap_or(Ok(()));
            }
        }
    }
}

pub(crate) async fn write<W: AsyncWrite + Unpin>(
    mut inbox: mpsc::Receiver<Vec<u8>>,
    mut output: W,
) -> io::Result<()> {
    let (mut waiting, mut lines) = (Vec::new(), Vec::new());
    // All that is ready goes out in one write: a pipe costs the same for one answer and for many.
    while inbox.recv_many(&mut waiting, OUTBOX).await > 0 {
        lines.clear();
        for line in waiting.drain(..) {
            lines.extend_from_slice(&line);
            lines.push(b'\n');
        }
        output.write_all(&lines).await?;
        output.flush().await?;
        lines.shrink_to(LARGEST_KEPT);
    }
    Ok(())
}

/// One client at the other end of a pipe.
struct Pipe {
    conversation: Arc<Conversation>,
    caller: Caller,
    setting: Setting,
    longest: usize,
    outbox: mpsc::Sender<Vec<u8>>,
    /// What `initialize` settled, for clients that send it.
    revision: Revision,
    abilities: Abilities,
    takes: Map<String, Value>,
    standing: Arc<Standing>,
    in_flight: Arc<InFlight>,
    questions: Arc<Questions>,
    places: Arc<Semaphore>,
    work: TaskTracker,
    /// Cancelled when no more requests are read: then only calls are waited for.
    over: CancellationToken,
}

impl Pipe {
    async fn read<R: AsyncRead + Unpin>(mut self, input: R) -> io::Result<()> {
        let mut lines = Lines::new(input, self.longest);
        let stopping = self.conversation.doors.stopping.clone();
        let ended = loop {
            let line = tokio::select! {
                line = lines.next() => line,
                () = stopping.cancelled() => break Ok(()),
            };
            match line {
                Ok(Some(Line::Whole(line))) => tokio::select! {
                    biased;
                    // It may wait for a place, or for the client to read.
                    () = self.take(&line) => {}
                    () = stopping.cancelled() => break Ok(()),
                },
                Ok(Some(Line::TooLong)) => {
                    let refused = Fault::invalid_request(format!(
                        "a line was longer than {} bytes (spec.network.max_body) and was dropped",
                        self.longest
                    ));
                    self.say(refused.render(None)).await;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if self.setting.alone {
            // With its one conversation the node ends, too, and then waits only for what is left of the time.
            self.conversation.doors.plane.begin_drain();
        }
        self.over.cancel();
        self.questions.close();
        self.work.close();
        // A moment longer than the plane, so that whatever it ends is answered. Afterwards nobody waits for them any more:
        // those that only read are dropped, and the plane sees those through that change something.
        let patience = self.conversation.doors.plane.drain_time() + LAST_WORDS / 2;
        if tokio::time::timeout(patience, self.work.wait()).await.is_err() {
            self.in_flight.withdraw_all();
            self.work.wait().await;
        }
        ended
    }

    async fn take(&mut self, line: &[u8]) {
        let text = match message::text(line) {
            Ok(text) => text,
            Err(unreadable) => return self.say(unreadable.render(None)).await,
        };
        if message::is_batch(text) {
            return self.batch(text).await;
        }
        match Message::parse(text) {
            Ok(Message::Request(request)) => self.request(&request).await,
            Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
                if let Some(id) = params.cancelled() {
                    self.in_flight.withdraw(id);
                }
            }
            Ok(Message::Notification { method, .. }) if method == "notifications/initialized" => self.tell(),
            Ok(Message::Response { id: Some(id), result }) => self.questions.answer(id, result),
            Ok(Message::Notification { .. } | Message::Response { .. }) => {}
            Err(unreadable) => self.say(unreadable.render()).await,
        }
    }

    async fn request(&mut self, request: &Request<'_>) {
        let step = if ladder::is_modern(request, None) {
            ladder::climb(request, None).and_then(|()| self.step(request, Era::Modern))
        } else if request.method == "initialize" {
            self.conversation.initialize(&self.caller, request).map(|(revision, answer)| {
                self.revision = revision;
                self.abilities = Abilities::of_session(request.params.capabilities, revision);
                self.takes = abilities::takes_in(request.params.capabilities, revision);
                Step::Answer(answer)
            })
        } else {
            self.step(request, Era::Legacy(self.revision))
        };
        match step {
            Ok(Step::Answer(answer)) => self.say(answer).await,
            Ok(Step::Running(running)) => {
                let (outbox, pace) = (self.outbox.clone(), self.conversation.pace);
                self.spawn(async move { progress::narrate(running, pace, &outbox).await }).await;
            }
            Ok(Step::Listening(listening)) => self.listen(*listening, request).await,
            Err(refused) => self.say(refused.render(Some(request.id.as_str()))).await,
        }
    }

    /// Tells a stateless client what it asked to hear, until it withdraws the request.
    async fn listen(&self, mut listening: Listening, request: &Request<'_>) {
        let entered = self.in_flight.enter(request.id);
        let (outbox, over) = (self.outbox.clone(), self.over.clone());
        let telling = async move {
            let telling = async {
                let mut line = Some(listening.acknowledge().await);
                while let Some(ready) = line {
                    if outbox.send(ready).await.is_err() {
                        return;
                    }
                    line = listening.next().await;
                }
                let _ = outbox.send(listening.end()).await;
            };
            tokio::select! {
                // What is ready to be said is said, also to a client that asked and closed its end at once.
                biased;
                () = telling => {}
                () = entered.withdrawn.cancelled() => {}
                () = over.cancelled() => {}
            }
        };
        self.spawn(telling).await;
    }

    /// Tells a client of the older revisions what changes, for as long as it is there.
    fn tell(&self) {
        let mut notices = self.conversation.doors.offers.notices();
        let (outbox, standing) = (self.outbox.downgrade(), Arc::downgrade(&self.standing));
        tokio::spawn(async move {
            loop {
                let notice = notices.recv().await;
                let over = matches!(notice, Err(RecvError::Closed));
                let (Some(outbox), Some(standing)) = (outbox.upgrade(), standing.upgrade()) else { return };
                if let Some(line) = listen::plainly(notice, &standing)
                    && outbox.send(line).await.is_err()
                {
                    return;
                }
                if over {
                    return;
                }
            }
        });
    }

    fn step(&self, request: &Request<'_>, era: Era) -> Result<Step, Fault> {
        let withdrawal = Withdrawal::Notification(&self.in_flight);
        let client = Client {
            abilities: self.abilities,
            takes: Some(&self.takes),
            standing: Some(&self.standing),
            hears: true,
            questions: Some(&self.questions),
            // Whoever is at the other end of a pipe has no address of ours.
            origin: None,
            may_wait: true,
            alone: self.setting.alone,
        };
        let names = self.setting.names;
        self.conversation.request(self.caller.clone(), request, era, names, &withdrawal, client)
    }

    async fn batch(&self, text: &str) {
        let answers = self.conversation.batch(
            &self.caller,
            text,
            self.revision,
            self.setting.names,
            Some(&self.in_flight),
        );
        match answers {
            Ok(answers) => {
                let outbox = self.outbox.clone();
                let saying = async move {
                    if let Some(answers) = answers.await {
                        let _ = outbox.send(answers).await;
                    }
                };
                self.spawn(saying).await;
            }
            Err(refused) => self.say(refused.render(None)).await,
        }
    }

    async fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let place = Arc::clone(&self.places).acquire_owned().await;
        self.work.spawn(async move {
            let _place = place;
            work.await;
        });
    }

    async fn say(&self, line: Vec<u8>) {
        // Fails only when the client reads no more; the writing side has seen that too.
        let _ = self.outbox.send(line).await;
    }
}
