//! Being told when something changes, in the words of each version.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde_json::{json, value::RawValue};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    client::{Client, Request, exchange},
    error::Error,
    version::Version,
};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What to be told of. The lists count only for the newest version; older servers tell without being asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interests {
    pub tools: bool,
    pub prompts: bool,
    pub resources: bool,
    pub updates_of: BTreeSet<String>,
}

impl Interests {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Client {
    /// Asks to be told, for as long as the guard is held. Notices come to the connection's handler.
    pub fn listen(&self, interests: &Interests) -> DropGuard {
        let stop = CancellationToken::new();
        if self.version().stateless() && !interests.is_empty() {
            let params = json!({"notifications": {
                "toolsListChanged": interests.tools,
                "promptsListChanged": interests.prompts,
                "resourcesListChanged": interests.resources,
                "resourceSubscriptions": interests.updates_of,
            }});
            let shared = Arc::clone(&self.shared);
            let until = stop.clone();
            tokio::spawn(async move {
                let Ok(params) = RawValue::from_string(params.to_string()) else { return };
                let mut pause = FIRST_PAUSE;
                let telling = async {
                    loop {
                        let request = Request::new("subscriptions/listen").params(&params);
                        match exchange(&shared, Version::V2026_07_28, request).await {
                            // It does not know how, and will not learn.
                            Err(Error::Rpc(_)) => return,
                            Ok(_) => pause = FIRST_PAUSE,
                            Err(_) => {}
                        }
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(LONGEST_PAUSE);
                    }
                };
                tokio::select! {
                    () = telling => {}
                    () = until.cancelled() => {}
                    () = shared.stopping.cancelled() => {}
                }
            });
        }
        stop.drop_guard()
    }

    /// Asks an older server for its log from a level on. It has one log for everybody, so it is only ever asked for
    /// more; who wants less leaves out what is too much. The newest version says it with each request.
    pub async fn log_from(&self, level: &str) -> Result<(), Error> {
        const QUIETEST_FIRST: [&str; 8] =
            ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];
        let able = self.facts().is_some_and(|facts| !facts.version.stateless() && facts.can("logging", None));
        let loudness =
            QUIETEST_FIRST.iter().zip(1_u8..).find_map(|(known, number)| (*known == level).then_some(number));
        let Some(loudness) = loudness.filter(|_| able) else { return Ok(()) };
        if self.shared.loudness.fetch_max(loudness, Ordering::Relaxed) >= loudness {
            return Ok(());
        }
        let params = RawValue::from_string(json!({"level": level}).to_string())
            .map_err(|error| Error::protocol(error.to_string()))?;
        self.request(Request::new("logging/setLevel").params(&params)).await.map(drop)
    }

    /// Asks an older server to tell, or to stop telling, when a resource changes.
    pub async fn subscribe(&self, uri: &str, on: bool) -> Result<(), Error> {
        let method = if on { "resources/subscribe" } else { "resources/unsubscribe" };
        let params = RawValue::from_string(json!({"uri": uri}).to_string())
            .map_err(|error| Error::protocol(error.to_string()))?;
        self.request(Request::new(method).params(&params).about(uri)).await.map(drop)
    }
}
