//! The condition that a server is in, and what is told of it.

use std::{
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use aegis_core::{
    Timestamp,
    config::upstream::Reach,
    redact,
    upstream::{ServerState, ServerStatus, ServerTool, Standing},
};
use tokio::time::Instant;

use super::{
    definition::{self, Sound},
    reason::Reason,
    server::{FAREWELL, Server},
};

/// So much of what a server said is told with its state; its log has the rest.
const LONGEST_WORDS: usize = 200;
/// After so long somebody who looks is told that a server has not answered yet.
const SLOW: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Condition {
    pub(super) state: ServerState,
    pub(super) reason: Option<Reason>,
    pub(super) since: Timestamp,
    pub(super) starts: u64,
    pub(super) last_healthy: Option<Timestamp>,
    /// Why it ended last, until it has run again.
    pub(super) ended: Option<Reason>,
    /// When it was started last.
    began: Instant,
    /// What it wrote last to its standard error, since it was started.
    words: Option<String>,
    /// What it wrote first to its output that is no MCP, since it was started.
    stray: Option<String>,
}

impl Condition {
    pub(super) fn new(state: ServerState) -> Self {
        let since = Timestamp::now();
        Self {
            state,
            reason: None,
            since,
            starts: 0,
            last_healthy: None,
            ended: None,
            began: Instant::now(),
            words: None,
            stray: None,
        }
    }

    /// Why it is in its state, for whoever looks after it.
    fn whole(&self, patience: Duration) -> Option<String> {
        let reason = self.reason.as_ref().map(|reason| reason.whole.as_str());
        match self.state {
            ServerState::Stopped => reason.map(|reason| format!("{reason}{}", self.said())),
            ServerState::Starting if reason.is_none() => self.delay(patience),
            _ => reason.map(str::to_owned),
        }
    }

    /// What a program that has ended said: often that is why.
    fn said(&self) -> String {
        let stray = self.stray.as_ref().map(|stray| format!("; it wrote what is no MCP: {stray}"));
        let words = self.words.as_ref().map(|words| format!("; the last it wrote: {words}"));
        stray.unwrap_or_default() + &words.unwrap_or_default()
    }

    /// What keeps a server that is being started, as far as that is known.
    fn delay(&self, patience: Duration) -> Option<String> {
        let waited = self.began.elapsed();
        let now = match &self.stray {
            Some(stray) => Some(format!("it writes what is no MCP: {stray}")),
            None if waited >= SLOW => {
                let (waited, most) = (waited.as_secs(), patience.as_secs_f32());
                Some(format!("it has not answered for {waited} s, of {most} s that it may take"))
            }
            None => None,
        };
        let before = self.ended.as_ref().map(|ended| format!("before that: {}", ended.whole));
        let told: Vec<String> = now.into_iter().chain(before).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// The beginning of what a server wrote, as it is told; `None` when nothing is to be seen of it.
pub(super) fn words(text: &str) -> Option<String> {
    let text = definition::shown(&definition::plain(text), LONGEST_WORDS);
    let text = text.trim();
    (!text.is_empty()).then(|| redact::message(text).into_owned())
}

impl Server {
    pub(super) fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new start: what was written before is of another.
    pub(super) fn begin(&self) {
        {
            let mut condition = self.condition();
            let said = condition.said();
            if let (ServerState::Stopped, Some(ended)) = (condition.state, &mut condition.ended) {
                ended.whole.push_str(&said);
            }
            condition.starts += 1;
            condition.began = Instant::now();
            (condition.words, condition.stray) = (None, None);
        }
        self.enter(ServerState::Starting, None);
    }

    /// Ends a start, or a life: for this reason, after which it is tried again as `next` says.
    pub(super) fn failed(&self, reason: Reason, next: &str) {
        self.condition().ended = Some(reason.clone());
        self.enter(ServerState::Stopped, Some(reason.and(next)));
    }

    /// Keeps the beginning of what it wrote where MCP is spoken: the first of it, which alone is looked at.
    pub(super) fn strayed(&self, words: impl FnOnce() -> Option<String>) {
        let mut condition = self.condition();
        if condition.stray.is_some() {
            return;
        }
        if let Some(words) = words() {
            self.logs.add(&format!("[it wrote to its output what is no MCP: {words}]"));
            condition.stray = Some(words);
        }
    }

    /// A line of its standard error.
    pub(super) fn wrote(&self, line: &str) {
        if let Some(words) = words(line) {
            self.condition().words = Some(words);
        }
    }

    pub(super) fn enter(&self, state: ServerState, reason: Option<Reason>) {
        self.turn(self.condition(), state, reason);
    }

    /// As [`Server::enter`], for somebody who has looked at the condition and found that it may change.
    fn turn(&self, mut condition: MutexGuard<'_, Condition>, state: ServerState, reason: Option<Reason>) {
        if condition.state == state && condition.reason == reason {
            return;
        }
        // Its own log has its words already.
        let noted = reason.as_ref().map(|reason| reason.whole.as_str()).unwrap_or_default();
        let colon = if noted.is_empty() { "" } else { ": " };
        self.logs.add(&format!("[{}{colon}{noted}]", state.as_str()));
        match state {
            // Many print a line before they speak MCP.
            ServerState::Running | ServerState::Quarantined => {
                (condition.ended, condition.stray) = (None, None);
            }
            _ => {}
        }
        (condition.state, condition.reason, condition.since) = (state, reason, Timestamp::now());
        let told = condition.whole(self.config.limits.start_timeout.0).unwrap_or_default();
        drop(condition);
        tracing::info!(server = %self.config.name, state = state.as_str(), reason = told, "an MCP server changed its state");
        self.turned.notify_waiters();
    }

    /// Waits until it runs or has failed to start; not longer than that may take. `false` when it was taken out of service
    /// instead, so that another may be in its place.
    pub(super) async fn started(&self) -> bool {
        let settled = async {
            loop {
                let mut turned = std::pin::pin!(self.turned.notified());
                turned.as_mut().enable();
                if self.condition().state != ServerState::Starting && !self.restart.load(Ordering::SeqCst) {
                    return;
                }
                turned.await;
            }
        };
        let patience = FAREWELL + self.config.limits.start_timeout.0;
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            _ = tokio::time::timeout(patience, settled) => true,
        }
    }

    /// Why it can't be called, for whoever would.
    pub(super) fn why_not(&self) -> String {
        let condition = self.condition();
        // One that is tried again and again says what is wrong with it, not only that it is being tried.
        let reason = match (&condition.reason, &condition.ended) {
            (Some(reason), _) => format!(": {}", reason.told),
            (None, Some(ended)) => format!("; before that: {}", ended.told),
            (None, None) => String::new(),
        };
        format!("the MCP server `{}` is {}{reason}", self.config.name, condition.state.as_str())
    }

    pub(super) fn status(&self) -> ServerStatus {
        let condition = self.condition();
        let client = self.connection.load_full();
        let offered = self.offered();
        let count = |is: fn(Standing) -> bool| offered.sound.iter().filter(|(_, one)| is(*one)).count();
        let ceded = self.ceded();
        let is_callable = |(sound, standing): &&(Arc<Sound>, Standing)| {
            *standing == Standing::Accepted && !ceded.contains_key(&*sound.spec.name)
        };
        ServerStatus {
            name: self.config.name.clone(),
            state: condition.state,
            reason: condition.whole(self.config.limits.start_timeout.0),
            since: condition.since,
            transport: match self.config.reach() {
                Some(Reach::Address { .. }) if client.as_ref().is_some_and(|client| client.is_older()) => {
                    "sse"
                }
                Some(Reach::Address { .. }) => "streamable_http",
                Some(Reach::Program { .. }) | None => "stdio",
            }
            .to_owned(),
            protocol: client.as_ref().and_then(|client| Some(client.facts()?.version.to_string())),
            pid: client.as_ref().and_then(|client| client.pid()),
            tools: offered.sound.iter().filter(is_callable).count(),
            quarantined: count(Standing::waits),
            rejected: count(|one| one == Standing::Rejected),
            unusable: offered.unsound.iter().filter(|one| !one.left_out).count(),
            ceded: ceded.len(),
            connections: usize::from(client.is_some()) + self.pool.len(),
            calls_in_work: self.in_work.load(Ordering::Relaxed),
            restarts: condition.starts.saturating_sub(1),
            failed: condition.ended.is_some(),
            last_healthy: condition.last_healthy,
        }
    }

    pub(super) fn tools(&self) -> Vec<ServerTool> {
        let (offered, ceded) = (self.offered(), self.ceded().clone());
        let sound = offered.sound.iter().map(|(sound, standing)| ServerTool {
            tool: sound.tool.clone(),
            name: Some(sound.spec.name.to_string()),
            withheld: standing
                .withheld(&self.config.name, &sound.tool)
                .or_else(|| Some(format!("it {}", ceded.get(&*sound.spec.name)?))),
            standing: Some(*standing),
            left_out: false,
        });
        let unsound = offered.unsound.iter().map(|unsound| ServerTool {
            tool: unsound.tool.clone(),
            name: unsound.name.clone(),
            withheld: Some(unsound.reason.clone()),
            standing: None,
            left_out: unsound.left_out,
        });
        sound.chain(unsound).collect()
    }

    pub(super) fn healthy(&self) {
        let mut condition = self.condition();
        condition.last_healthy = Some(Timestamp::now());
        self.stand(condition);
    }

    /// It runs, with something to call or without.
    fn stand(&self, condition: MutexGuard<'_, Condition>) {
        let offered = self.offered();
        let is_open = |(_, standing): &(_, Standing)| *standing == Standing::Accepted;
        if !offered.sound.is_empty() && !offered.sound.iter().any(is_open) {
            let name = &self.config.name;
            let reason = if offered.sound.iter().any(|(_, standing)| standing.waits()) {
                format!(
                    "all its definitions wait for an operator: `aegis upstream diff {name}`, then `aegis upstream accept {name}`"
                )
            } else {
                format!(
                    "all its definitions were rejected: `aegis upstream accept {name} TOOL` accepts one after all"
                )
            };
            return self.turn(condition, ServerState::Quarantined, Some(reason.into()));
        }
        self.turn(condition, ServerState::Running, None);
    }

    /// After a new look at what it offers: whether it is quarantined may have changed, its health has not.
    /// Whoever decided about it looks beside the task that looks after it, which may find at this moment that it ended.
    pub(super) fn healthy_if_running(&self) {
        let condition = self.condition();
        if matches!(condition.state, ServerState::Running | ServerState::Quarantined) {
            self.stand(condition);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_program_wrote_last_is_told_to_those_who_look_after_it() {
        let server = Server::new(serde_json::from_value(json!({"name": "fix", "executable": "x"})).unwrap());
        server.begin();
        server.wrote("Error: no \u{1b}[31mkey\u{202e} in /opt/x");
        server.wrote("  ");
        let reason = Reason { whole: "`/opt/x` ended".into(), told: "it ended".into() };
        server.enter(ServerState::Stopped, Some(reason));
        let told = server.status().reason.unwrap();
        assert_eq!(told, "`/opt/x` ended; the last it wrote: Error: no [31mkey in /opt/x");
        assert_eq!(server.why_not(), "the MCP server `fix` is stopped: it ended");
        server.wrote(&"x".repeat(1000));
        assert!(server.status().reason.unwrap().len() < 300);
        // The next one has not said anything yet.
        server.begin();
        server.failed("gone".into(), "");
        assert_eq!(server.status().reason.unwrap(), "gone");
        // One that is tried again is told with why it ended, and with what it writes where MCP is spoken.
        server.wrote("no key");
        server.begin();
        let told = || server.status().reason.unwrap();
        assert_eq!(told(), "before that: gone; the last it wrote: no key");
        server.strayed(|| words("\u{1b} "));
        server.strayed(|| words("\u{1b}hello"));
        server.strayed(|| panic!("only the first is looked at"));
        assert_eq!(told(), "it writes what is no MCP: hello; before that: gone; the last it wrote: no key");
        server.failed("it ended".into(), "; and again in 1 s");
        assert_eq!(told(), "it ended; and again in 1 s; it wrote what is no MCP: hello");
        assert!(server.status().failed);
    }

    #[test]
    fn one_that_has_ended_does_not_run_because_somebody_decided_about_it() {
        let server = Server::new(serde_json::from_value(json!({"name": "fix", "executable": "x"})).unwrap());
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    server.healthy_if_running();
                }
            });
            let is_stopped = || server.condition().state == ServerState::Stopped;
            let stayed = (0..20_000).all(|_| {
                server.enter(ServerState::Running, None);
                server.enter(ServerState::Stopped, None);
                std::thread::yield_now();
                is_stopped()
            });
            over.store(true, Ordering::Relaxed);
            assert!(stayed);
        });
    }

    #[test]
    fn tools_of_another_server_are_counted_apart_from_those_of_which_nothing_can_be_made() {
        let server = Server::new(serde_json::from_value(json!({"name": "fix", "executable": "x"})).unwrap());
        server.cedes((0..25).map(|number| (format!("fix.{number}"), "is theirs".to_owned())).collect());
        let status = server.status();
        assert_eq!((status.unusable, status.ceded), (0, 25));
    }
}
