//! What a client hears while a call runs. Most calls end before anything need be said and are answered by one JSON
//! text; a long one becomes a stream of events with the answer as its last.

use std::{convert::Infallible, time::Duration};

use aegis_core::progress::Progress;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::stream;
use serde_json::json;
use tokio::{sync::mpsc, time::Instant};

use super::{answer::Answer, call::Running, ears::Aside, http};
use crate::{driven::driven, words::Words};

/// How patient we take clients to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// When a client that asked for progress hears the first.
    pub(crate) first: Duration,
    /// And how often from then on.
    pub(crate) every: Duration,
    /// When a client that did not ask gets a sign of life, which also keeps proxies from giving up.
    pub(crate) quiet: Duration,
    /// How long a request waits for a person's decision: official clients give up after a minute.
    pub(crate) decision: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            every: Duration::from_secs(3),
            quiet: Duration::from_secs(15),
            decision: Duration::from_secs(45),
        }
    }
}

/// A running call as a client hears it.
struct Narration {
    running: Running,
    pace: Pace,
    started: Instant,
    next: Instant,
    /// The last number told.
    last: f64,
    /// Whether the call told any itself: its numbers then mean something, and ours would not go with them.
    told: bool,
    /// Whether the call is a task of its own by now.
    driven: bool,
}

enum Heard {
    /// The end. `None`: the client withdrew the request and wants no answer.
    Answer(Option<Answer>),
    Progress(Vec<u8>),
    /// Something else to say first.
    Aside(Vec<u8>),
    StillRunning,
}

impl Narration {
    fn new(running: Running, pace: Pace) -> Self {
        let started = Instant::now();
        let first = if running.progress_token.is_some() { pace.first } else { pace.quiet };
        Self { running, pace, started, next: started + first, last: -1.0, told: false, driven: false }
    }

    /// From the first thing that is said before the answer on, the call no longer goes by whether the client listens.
    async fn next(&mut self) -> Heard {
        let heard = self.listen().await;
        if !matches!(heard, Heard::Answer(_)) && !self.driven {
            self.driven = true;
            let answer = std::mem::replace(&mut self.running.answer, Box::pin(std::future::pending()));
            self.running.answer = driven(answer);
        }
        heard
    }

    async fn listen(&mut self) -> Heard {
        tokio::select! {
            biased;
            Some(aside) = next_of(&mut self.running.asides) => return match aside {
                Aside::Word(text) => Heard::Aside(text),
                Aside::Question(text) => {
                    self.running.doing = WAITING;
                    Heard::Aside(text)
                }
            },
            // Whoever asked for progress hears all of it before the answer.
            word = next_word(self.running.words.as_deref()) => return self.word(&word),
            answer = &mut self.running.answer => return Heard::Answer(answer),
            () = tokio::time::sleep_until(self.next) => {}
        }
        let now = Instant::now();
        match &self.running.progress_token {
            Some(token) if !self.told => {
                self.next = now + self.pace.every;
                // Each number must be greater than the one before.
                self.last = self.started.elapsed().as_secs().max(self.last.max(0.0) as u64 + 1) as f64;
                Heard::Progress(notification(token, self.last as u64, self.running.doing))
            }
            _ => {
                self.next = now + self.pace.quiet;
                Heard::StillRunning
            }
        }
    }
}

impl Narration {
    fn word(&mut self, word: &Progress) -> Heard {
        self.told = true;
        self.next = Instant::now() + self.pace.quiet;
        // Each number must be greater than the one before.
        let least = self.last.next_up();
        self.last = if word.progress.is_finite() { word.progress.max(least) } else { least };
        let mut params = json!({"progress": self.last});
        if let Some(total) = word.total.filter(|total| total.is_finite()) {
            params["total"] = total.into();
        }
        if let Some(message) = &word.message {
            params["message"] = message.as_str().into();
        }
        let token = self.running.progress_token.as_deref().unwrap_or("null");
        params["progressToken"] = serde_json::from_str(token).unwrap_or_default();
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        Heard::Progress(notification.to_string().into_bytes())
    }
}

/// What a call does while progress is told.
pub(crate) const RUNNING: &str = "running";
pub(crate) const WAITING: &str = "waiting for an approver";

async fn next_word(words: Option<&Words>) -> Progress {
    match words {
        Some(words) => words.next().await,
        None => std::future::pending().await,
    }
}

async fn next_of(asides: &mut Option<mpsc::Receiver<Aside>>) -> Option<Aside> {
    match asides {
        Some(asides) => asides.recv().await,
        None => None,
    }
}

fn notification(token: &str, seconds: u64, doing: &str) -> Vec<u8> {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{seconds},"message":"{doing} for {seconds} s"}}}}"#
    )
    .into_bytes()
}

/// Answers over HTTP: as JSON, or as events if it takes long and the client takes those.
pub(crate) async fn respond(mut running: Running, takes_events: bool, pace: Pace) -> Response {
    if !takes_events {
        return match (&mut running.answer).await {
            Some(answer) => http::answer(answer),
            None => http::nothing(),
        };
    }
    let mut narration = Narration::new(running, pace);
    let first = match narration.next().await {
        Heard::Answer(Some(answer)) => return http::answer(answer),
        Heard::Answer(None) => return http::events(Body::empty()),
        Heard::Progress(text) | Heard::Aside(text) => event(&text),
        Heard::StillRunning => comment(),
    };
    let events = stream::unfold((Some(first), Some(narration)), |(ready, narration)| async move {
        if let Some(ready) = ready {
            return Some((Ok::<_, Infallible>(ready), (None, narration)));
        }
        let mut narration = narration?;
        match narration.next().await {
            Heard::Answer(answer) => answer.map(|answer| (Ok(event(&answer.text)), (None, None))),
            Heard::Progress(text) | Heard::Aside(text) => Some((Ok(event(&text)), (None, Some(narration)))),
            Heard::StillRunning => Some((Ok(comment()), (None, Some(narration)))),
        }
    });
    http::events(Body::from_stream(events))
}

/// Answers over a pipe: progress if it was asked for, then the answer.
pub(crate) async fn narrate(running: Running, pace: Pace, outbox: &mpsc::Sender<Vec<u8>>) {
    let mut narration = Narration::new(running, pace);
    loop {
        let line = match narration.next().await {
            Heard::Answer(answer) => {
                if let Some(answer) = answer {
                    // Fails only when the pipe is gone, and with it whoever waits.
                    let _ = outbox.send(answer.text).await;
                }
                return;
            }
            Heard::Progress(text) | Heard::Aside(text) => text,
            Heard::StillRunning => continue,
        };
        if outbox.send(line).await.is_err() {
            return;
        }
    }
}

/// One event. The text is compact JSON, so it has no line breaks.
pub(crate) fn event(text: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(text.len() + 8);
    frame.extend_from_slice(b"data: ");
    frame.extend_from_slice(text);
    frame.extend_from_slice(b"\n\n");
    frame.into()
}

/// A line that clients skip.
pub(crate) fn comment() -> Bytes {
    Bytes::from_static(b": still here\n\n")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use aegis_core::progress::Listener;
    use http_body_util::BodyExt;
    use serde_json::Value;

    use super::*;

    fn running(ends_after: Duration, token: Option<&str>) -> Running {
        Running {
            answer: Box::pin(async move {
                tokio::time::sleep(ends_after).await;
                Some(b"{\"answer\":1}".to_vec().into())
            }),
            progress_token: token.map(str::to_owned),
            words: token.map(|_| Arc::default()),
            asides: None,
            doing: RUNNING,
        }
    }

    async fn answered(running: Running, takes_events: bool) -> (String, String) {
        let response = respond(running, takes_events, Pace::default()).await;
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_call_is_one_json_text() {
        for token in [None, Some("1")] {
            let (kind, body) = answered(running(Duration::from_millis(900), token), true).await;
            assert_eq!((kind.as_str(), body.as_str()), ("application/json", "{\"answer\":1}"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_events_gets_none() {
        let (kind, _) = answered(running(Duration::from_secs(100), Some("1")), false).await;
        assert_eq!(kind, "application/json");
    }

    #[tokio::test(start_paused = true)]
    async fn progress_grows_and_the_answer_comes_last() {
        let (kind, body) = answered(running(Duration::from_secs(9), Some("\"t\"")), true).await;
        assert_eq!(kind, "text/event-stream");
        let events: Vec<Value> = body
            .split_terminator("\n\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect();
        let (answer, progress) = events.split_last().unwrap();
        assert_eq!(answer["answer"], 1);
        let numbers: Vec<_> =
            progress.iter().map(|event| event["params"]["progress"].as_u64().unwrap()).collect();
        assert!(numbers.len() >= 3, "{numbers:?}");
        assert_eq!(numbers, numbers.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
        assert!(progress.iter().all(|event| event["params"]["progressToken"] == "t"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_said_aside_makes_it_a_stream() {
        let (say, asides) = mpsc::channel(1);
        let asking = Running {
            answer: Box::pin(async move {
                say.send(Aside::Question(b"{\"id\":\"q\"}".to_vec())).await.unwrap();
                tokio::time::sleep(Duration::from_secs(2)).await;
                Some(b"{\"answer\":1}".to_vec().into())
            }),
            progress_token: Some("1".to_owned()),
            words: None,
            asides: Some(asides),
            doing: RUNNING,
        };
        let (kind, body) = answered(asking, true).await;
        assert_eq!(kind, "text/event-stream");
        let events: Vec<&str> = body.split_terminator("\n\n").collect();
        assert_eq!(events.first(), Some(&"data: {\"id\":\"q\"}"));
        assert!(events[1].contains("waiting for an approver for 1 s"), "{body}");
        assert_eq!(events.last(), Some(&"data: {\"answer\":1}"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_call_says_takes_the_place_of_our_own_words() {
        let call = running(Duration::from_secs(20), Some("7"));
        let words = Arc::clone(call.words.as_ref().unwrap());
        tokio::spawn(async move {
            for (seconds, progress) in [(2, 10.0), (3, 4.0), (9, 30.0)] {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                words.progress(Progress { progress, total: Some(40.0), message: Some("line\n".into()) });
            }
        });
        let (kind, body) = answered(call, true).await;
        assert_eq!(kind, "text/event-stream");
        let events: Vec<Value> = body
            .split_terminator("\n\n")
            .filter_map(|event| serde_json::from_str(event.strip_prefix("data: ")?).ok())
            .collect();
        let numbers: Vec<f64> =
            events.iter().filter_map(|event| event["params"]["progress"].as_f64()).collect();
        assert_eq!((numbers[0], numbers[1], numbers.len()), (1.0, 10.0, 4), "{body}");
        assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
        assert_eq!(events[1]["params"]["message"], "line\n");
        assert_eq!(events[1]["params"]["progressToken"], 7);
        assert_eq!(events.last().unwrap()["answer"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_short_call_says_is_heard_before_its_answer() {
        let call = running(Duration::from_millis(500), Some("7"));
        for progress in [0.0, 50.0, 100.0] {
            let word = Progress { progress, total: Some(100.0), message: None };
            call.words.as_ref().unwrap().progress(word);
        }
        let (kind, body) = answered(call, true).await;
        assert_eq!(kind, "text/event-stream");
        assert_eq!(body.matches("notifications/progress").count(), 3, "{body}");
        assert!(body.ends_with("data: {\"answer\":1}\n\n"), "{body}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_silence_is_broken_by_comments() {
        let (_, body) = answered(running(Duration::from_secs(40), None), true).await;
        assert_eq!(body, ": still here\n\n: still here\n\ndata: {\"answer\":1}\n\n");
    }
    #[tokio::test(start_paused = true)]
    async fn a_call_does_not_wait_for_a_client_that_stops_reading() {
        let ended = Arc::new(tokio::sync::Notify::new());
        let mut call = running(Duration::ZERO, Some("1"));
        let tells = Arc::clone(&ended);
        call.answer = Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(30)).await;
            tells.notify_one();
            None
        });
        let response = respond(call, true, Pace::default()).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        ended.notified().await;
    }
}
