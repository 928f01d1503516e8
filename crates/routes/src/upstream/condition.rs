//! The condition that a server is in, and what is told of it.

use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering};

use aegis_core::{
    Timestamp,
    config::upstream::Reach,
    redact,
    upstream::{ServerState, ServerStatus, ServerTool, Standing},
};

use super::{
    definition::{self, Sound},
    reason::Reason,
    server::{FAREWELL, Server},
};

/// So much of what a server said last is told with its state; its log has the rest.
const LONGEST_WORDS: usize = 200;

#[derive(Debug)]
pub(super) struct Condition {
    pub(super) state: ServerState,
    pub(super) reason: Option<Reason>,
    pub(super) since: Timestamp,
    pub(super) starts: u64,
    pub(super) last_healthy: Option<Timestamp>,
    /// Why it ended last, until it has run again.
    pub(super) ended: Option<Reason>,
    /// What it wrote last to its standard error, since it was started.
    words: Option<String>,
}

impl Condition {
    pub(super) fn new(state: ServerState) -> Self {
        let since = Timestamp::now();
        Self { state, reason: None, since, starts: 0, last_healthy: None, ended: None, words: None }
    }

    /// Why it is in its state, for whoever looks after it. A program that has ended often said why.
    fn whole(&self) -> Option<String> {
        let reason = &self.reason.as_ref()?.whole;
        Some(match &self.words {
            Some(words) if self.state == ServerState::Stopped => {
                format!("{reason}; the last it wrote: {words}")
            }
            _ => reason.clone(),
        })
    }
}

impl Server {
    pub(super) fn condition(&self) -> MutexGuard<'_, Condition> {
        self.condition.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new start: what was written before is of another.
    pub(super) fn begin(&self) {
        self.enter(ServerState::Starting, None);
        let mut condition = self.condition();
        condition.starts += 1;
        condition.words = None;
    }

    /// A line of its standard error.
    pub(super) fn wrote(&self, line: &str) {
        let line = definition::shown(&definition::plain(line), LONGEST_WORDS);
        if !line.trim().is_empty() {
            self.condition().words = Some(redact::message(line.trim()).into_owned());
        }
    }

    pub(super) fn enter(&self, state: ServerState, reason: Option<Reason>) {
        let mut condition = self.condition();
        if condition.state == state && condition.reason == reason {
            return;
        }
        // Its own log has its words already.
        let noted = reason.as_ref().map(|reason| reason.whole.as_str()).unwrap_or_default();
        let colon = if noted.is_empty() { "" } else { ": " };
        self.logs.add(&format!("[{}{colon}{noted}]", state.as_str()));
        match state {
            ServerState::Stopped => condition.ended.clone_from(&reason),
            ServerState::Running | ServerState::Quarantined => condition.ended = None,
            _ => {}
        }
        (condition.state, condition.reason, condition.since) = (state, reason, Timestamp::now());
        let told = condition.whole().unwrap_or_default();
        drop(condition);
        tracing::info!(server = %self.config.name, state = state.as_str(), reason = told, "an MCP server changed its state");
        self.turned.notify_waiters();
    }

    /// Waits until it runs or has failed to start; not longer than that may take.
    pub(super) async fn started(&self) {
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
        let _ = tokio::time::timeout(patience, settled).await;
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
            reason: condition.whole(),
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
            unusable: offered.unsound.iter().filter(|one| !one.left_out).count() + ceded.len(),
            connections: usize::from(client.is_some()) + self.pool.len(),
            calls_in_work: self.in_work.load(Ordering::Relaxed),
            restarts: condition.starts.saturating_sub(1),
            last_healthy: condition.last_healthy,
        }
    }

    pub(super) fn tools(&self) -> Vec<ServerTool> {
        let (offered, ceded) = (self.offered(), self.ceded().clone());
        let sound = offered.sound.iter().map(|(sound, standing)| ServerTool {
            tool: sound.tool.clone(),
            name: Some(sound.spec.name.to_string()),
            withheld: standing
                .withheld(&self.config.name)
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
        self.condition().last_healthy = Some(Timestamp::now());
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
            return self.enter(ServerState::Quarantined, Some(reason.into()));
        }
        self.enter(ServerState::Running, None);
    }

    /// After a new look at what it offers: whether it is quarantined may have changed, its health has not.
    pub(super) fn healthy_if_running(&self) {
        let state = self.condition().state;
        if matches!(state, ServerState::Running | ServerState::Quarantined) {
            self.healthy();
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
        server.enter(ServerState::Stopped, Some("gone".into()));
        assert_eq!(server.status().reason.unwrap(), "gone");
    }
}
