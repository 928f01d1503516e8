//! A request that the plane decides on: `tools/call`, and whatever else reads or acts.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use aegis_core::{
    Caller,
    asking::{Brought, Manner},
    progress::Listener,
};
use aegis_plane::{Done, Reply};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json, value::RawValue};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    abilities::{self, Abilities, TASKS_EXTENSION},
    answer::{self, Answer},
    carried::{self, Carried},
    conversation::Conversation,
    definitions::Names,
    ears::{Aside, Asking, Ears, MOST_ASIDES},
    era::Era,
    fault::Fault,
    held::{Doubts, Held},
    in_flight::{Entered, InFlight},
    level::Level,
    lists,
    message::{Request, string},
    parked::{self, Asked},
    progress,
    questions::Questions,
    standing::Standing,
    told::{CallMeta, Told},
    wanted::{Shape, Wanted},
};
use crate::words::Words;

/// A call in work.
pub(crate) struct Running {
    /// The answer, or nothing if the client withdrew the request and wants none.
    pub(crate) answer: BoxFuture<'static, Option<Answer>>,
    /// Under which name the client wants to hear of progress.
    pub(crate) progress_token: Option<String>,
    /// What the call says while it runs, if the client wants to hear it.
    pub(crate) words: Option<Arc<Words>>,
    /// What is to be said before the answer: questions to the client, and what a server logs.
    pub(crate) asides: Option<mpsc::Receiver<Aside>>,
    /// In a word, for progress.
    pub(crate) doing: &'static str,
}

/// The client, as far as it can be asked something.
#[derive(Clone, Copy)]
pub(crate) struct Client<'a> {
    /// What it declared for its session. A stateless request declares its own.
    pub(crate) abilities: Abilities,
    /// What servers may ask it, likewise.
    pub(crate) takes: Option<&'a Map<String, Value>>,
    /// Where its answers come in, if it can be asked while a call runs.
    pub(crate) questions: Option<&'a Arc<Questions>>,
    /// What it asked for once and for all.
    pub(crate) standing: Option<&'a Arc<Standing>>,
    /// Whether something can be said before the answer.
    pub(crate) hears: bool,
    /// Where this node's pages are, as the client writes it.
    pub(crate) origin: Option<&'a (dyn Fn() -> String + Sync)>,
    /// Whether an answer may come late.
    pub(crate) may_wait: bool,
    /// Whether it is all there is: nobody else can reach this node.
    pub(crate) alone: bool,
}

impl Client<'_> {
    /// A client that can't be asked, and has others waiting behind it.
    pub(crate) const MUTE: Self = Self {
        abilities: Abilities { form: false, page: false, tasks: false },
        takes: None,
        questions: None,
        standing: None,
        hears: false,
        origin: None,
        may_wait: false,
        alone: false,
    };
}

/// How a client takes a request back.
pub(crate) enum Withdrawal<'a> {
    /// By closing the connection.
    Disconnect,
    /// By a notification that names the id. Closing the connection means nothing.
    Notification(&'a Arc<InFlight>),
    /// Not at all: there is no session in which an id could be looked up.
    Never,
}

pub(crate) fn start(
    conversation: &Arc<Conversation>,
    caller: Caller,
    request: &Request<'_>,
    era: Era,
    names: Names,
    withdrawal: &Withdrawal<'_>,
    client: Client<'_>,
) -> Result<Running, Fault> {
    let wanted = Wanted::read(conversation, request, names)?;
    let carried = match request.params.request_state {
        Some(state) if era.is_modern() => Some(Carried::read(state, &wanted.digest)?),
        _ => None,
    };
    let responses = request.params.input_responses.filter(|_| era.is_modern()).map(ToOwned::to_owned);
    let (say, asides) = client.hears.then(|| mpsc::channel(MOST_ASIDES)).unzip();
    let progress_token = request.params.progress_token().map(str::to_owned);
    let words = progress_token.as_ref().map(|_| Arc::new(Words::default()));
    let asked = Asked::new(&caller, request, era, client, &wanted, say.as_ref(), words.as_ref());
    let mut withdrawn = CancellationToken::new();
    // Both live for as long as somebody waits.
    let (mut connection, mut entered): (Option<DropGuard>, Option<Entered>) = (None, None);
    match withdrawal {
        Withdrawal::Disconnect => connection = Some(withdrawn.clone().drop_guard()),
        Withdrawal::Notification(in_flight) => {
            let entry = in_flight.enter(request.id);
            withdrawn = entry.withdrawn.clone();
            entered = Some(entry);
        }
        Withdrawal::Never => {}
    }
    let outlives_connection = entered.is_some();
    let doubts = Arc::new(Doubts::default());
    let brought = brought(carried.as_ref(), responses.as_deref());
    let ears = ears(request, era, client, words.as_ref(), say, &doubts, brought);
    let waits = matches!(carried, Some(Carried::Approval(_)));
    let life = Life {
        conversation: Arc::clone(conversation),
        standing: client.standing.cloned(),
        caller,
        asked,
        wanted,
        withdrawn,
    };
    let answer: BoxFuture<'static, _> = Box::pin(async move {
        let _entered = entered;
        match carried {
            Some(Carried::Approval(parked)) => {
                let _waiting = connection;
                life.resume(&parked, responses.as_deref()).await
            }
            Some(Carried::Held { handle, round, .. }) => {
                let _waiting = connection;
                life.go_on(&handle, round, responses.as_deref()).await
            }
            Some(Carried::Server { .. }) | None => life.begin(ears, doubts, connection).await,
        }
    });
    let answer = if outlives_connection { Box::pin(Outliving(Some(answer))) } else { answer };
    let doing = if waits { progress::WAITING } else { progress::RUNNING };
    Ok(Running { answer, progress_token, words, asides, doing })
}

/// What a request brings back for the server that answered it with questions.
fn brought(carried: Option<&Carried>, responses: Option<&RawValue>) -> Option<Brought> {
    let state = match carried {
        Some(Carried::Server { state, .. }) => RawValue::from_string(state.to_string()).ok(),
        Some(_) => return None,
        None => None,
    };
    (state.is_some() || responses.is_some())
        .then(|| Brought { responses: responses.map(ToOwned::to_owned), state })
}

fn ears(
    request: &Request<'_>,
    era: Era,
    client: Client<'_>,
    words: Option<&Arc<Words>>,
    asides: Option<mpsc::Sender<Aside>>,
    doubts: &Arc<Doubts>,
    brought: Option<Brought>,
) -> Ears {
    let level = match era {
        Era::Modern => request.params.meta.log_level.and_then(string).and_then(|level| Level::parse(&level)),
        Era::Legacy(_) => client.standing.and_then(|standing| standing.level()),
    };
    let (abilities, asking) = match (era, client.questions) {
        (Era::Modern, _) => {
            let declared = request.params.meta.capabilities;
            let mut takes = abilities::takes(declared);
            if Abilities::of_request(declared).tasks {
                takes.insert("extensions".to_owned(), json!({TASKS_EXTENSION: {}}));
            }
            (takes, Asking::Again(Arc::clone(doubts)))
        }
        (Era::Legacy(_), Some(questions)) => {
            (client.takes.cloned().unwrap_or_default(), Asking::Here(Arc::clone(questions)))
        }
        (Era::Legacy(_), None) => (Map::new(), Asking::No),
    };
    let manner = Manner {
        abilities,
        by_result: era.is_modern(),
        brought,
        log_level: level.map(|level| level.as_str().to_owned()),
    };
    Ears { manner, era, words: words.cloned(), asides, level, asking }
}

/// A request on its way to an answer.
struct Life {
    conversation: Arc<Conversation>,
    standing: Option<Arc<Standing>>,
    caller: Caller,
    asked: Asked,
    wanted: Wanted,
    withdrawn: CancellationToken,
}

impl Life {
    async fn begin(self, ears: Ears, doubts: Arc<Doubts>, guard: Option<DropGuard>) -> Option<Answer> {
        let call = match self.wanted.call(&self.conversation, &self.caller, self.asked.era).await {
            Ok(call) => call,
            Err(fault) => return Some(fault.answer(&self.asked.id)),
        };
        let watched = Wanted::watched(&call).map(|(server, uri)| (server.to_owned(), uri.to_owned()));
        let plane = Arc::clone(&self.conversation.doors.plane);
        let (caller, cancel) = (self.caller.clone(), self.withdrawn.child_token());
        let listener: Arc<dyn Listener> = Arc::new(ears);
        // The plane cancels its own token at the deadline, which is no withdrawal.
        let reply: BoxFuture<'static, Reply> =
            Box::pin(async move { plane.call_heard(caller, call, cancel, listener).await });
        self.wait(Held { reply, doubts, _guard: guard, round: 0 }, watched.as_ref()).await
    }

    /// Takes up a call that asked something of its client.
    async fn go_on(self, handle: &str, round: u32, responses: Option<&RawValue>) -> Option<Answer> {
        let held = self.conversation.held.take(&self.caller.credential, handle, round);
        let Some(held) = held else { return Some(carried::wrong().answer(&self.asked.id)) };
        held.doubts.answer(responses);
        self.wait(held, None).await
    }

    /// Waits until the call has ended, or has to ask.
    async fn wait(&self, mut held: Held, watched: Option<&(String, String)>) -> Option<Answer> {
        let reply = tokio::select! {
            biased;
            () = self.withdrawn.cancelled() => return None,
            reply = &mut held.reply => reply,
            () = held.doubts.arise() => return Some(self.hold(held)),
        };
        if let Some((server, uri)) = watched
            && reply
                .result
                .as_ref()
                .is_ok_and(|done| done.pending.is_none() && done.outcome.failure.is_none())
            && let Some(standing) = &self.standing
        {
            let plane = &self.conversation.doors.plane;
            let watch = self.conversation.watches.enter(plane, self.caller.clone(), server, uri);
            if !standing.watch(watch) {
                return Some(
                    Fault::invalid_params("no more resources can be watched in one session")
                        .answer(&self.asked.id),
                );
            }
        }
        let Ok(Done { pending: Some(approval), .. }) = &reply.result else {
            return Some(self.render(&reply));
        };
        // Whoever asks hears the outcome, also of a request that was filed over another connection.
        let settled =
            Box::pin(parked::settle(&self.conversation, &self.caller, &self.asked, reply.call, approval));
        tokio::select! {
            biased;
            () = self.withdrawn.cancelled() => {
                parked::take_back(&self.conversation, approval).await;
                None
            }
            answer = settled => Some(answer),
        }
    }

    async fn resume(self, parked: &carried::Parked, responses: Option<&RawValue>) -> Option<Answer> {
        let retry = parked::Retry::read(parked, responses);
        let resumed = Box::pin(parked::resume(&self.conversation, &self.caller, &self.asked, &retry));
        tokio::select! {
            biased;
            () = self.withdrawn.cancelled() => None,
            answer = resumed => Some(answer),
        }
    }

    /// Answers with what the call asks; it goes on when the request is repeated with the answers.
    fn hold(&self, mut held: Held) -> Answer {
        let questions = held.doubts.questions();
        held.round += 1;
        let round = held.round;
        let Some(handle) = self.conversation.held.hold(&self.caller.credential, held) else {
            return Fault::invalid_request("too many calls wait for answers already").answer(&self.asked.id);
        };
        let carried = Carried::Held { request: self.asked.digest.clone(), handle, round };
        let mut out = answer::begin_as(&self.asked.id, "input_required", 2048);
        out.extend_from_slice(b"\"inputRequests\":");
        answer::write_json(&mut out, &questions);
        out.extend_from_slice(b",\"requestState\":");
        answer::write_json(&mut out, &carried.seal());
        out.push(b',');
        self.conversation.write_meta(&mut out, self.asked.era, None::<&()>);
        answer::end(out).into()
    }

    fn render(&self, reply: &Reply) -> Answer {
        let (conversation, asked) = (&self.conversation, &self.asked);
        let told = Told::of(&reply.result, asked.shape, asked.era);
        let meta = CallMeta::of(reply.call, &reply.result, None);
        let answered = match (told, asked.shape) {
            (Ok(Told::Passed { members, .. }), Shape::List(kind)) => {
                lists::render(conversation, asked, kind, self.wanted.after.as_deref(), &members, &meta)
            }
            (Ok(told), _) => Ok(told.render(conversation, asked, &meta)),
            (Err(fault), _) => Err(fault),
        };
        answered.unwrap_or_else(|mut fault| {
            if let Some(data) = fault.data.as_mut().and_then(|data| data.as_object_mut()) {
                data.entry("call").or_insert_with(|| json!(reply.call));
            }
            fault.answer(&asked.id)
        })
    }
}

/// A call that its client can withdraw by id also after the connection broke: until it ends, somebody must remember
/// the id.
struct Outliving(Option<BoxFuture<'static, Option<Answer>>>);

impl Future for Outliving {
    type Output = Option<Answer>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.0 else { return Poll::Ready(None) };
        let answer = std::task::ready!(call.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(answer)
    }
}

impl Drop for Outliving {
    fn drop(&mut self) {
        if let Some(call) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(call);
        }
    }
}
