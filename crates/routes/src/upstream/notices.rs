//! What servers say unasked, for whoever listens.

use aegis_core::secret::{Principal, Redactor};
use serde_json::{Value, value::RawValue};
use tokio::sync::broadcast;

/// Notices that a slow listener may fall behind by; it then hears that it missed some.
const QUEUE: usize = 256;

#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// The node's list of tools is another.
    ToolsChanged,
    ResourcesChanged {
        server: String,
    },
    PromptsChanged {
        server: String,
    },
    ResourceUpdated {
        server: String,
        uri: String,
        /// On whose connection it was said, where each principal has their own.
        whose: Option<Principal>,
    },
    /// A server's log message: the parameters of `notifications/message`, text from outside.
    Log {
        server: String,
        message: Value,
    },
}

impl Notice {
    pub(super) fn read(
        server: &str,
        whose: Option<&Principal>,
        method: &str,
        params: Option<&RawValue>,
        redactor: &Redactor,
    ) -> Option<Self> {
        let server = server.to_owned();
        let params = || params.and_then(|params| serde_json::from_str::<Value>(params.get()).ok());
        match method {
            "notifications/resources/list_changed" => Some(Self::ResourcesChanged { server }),
            "notifications/prompts/list_changed" => Some(Self::PromptsChanged { server }),
            "notifications/resources/updated" => {
                let uri = params()?.get("uri")?.as_str()?.to_owned();
                Some(Self::ResourceUpdated { server, uri, whose: whose.cloned() })
            }
            "notifications/message" => {
                let mut message = params()?;
                redactor.value(&mut message);
                Some(Self::Log { server, message })
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Notices(broadcast::Sender<Notice>);

impl Default for Notices {
    fn default() -> Self {
        Self(broadcast::channel(QUEUE).0)
    }
}

impl Notices {
    pub(super) fn tell(&self, notice: Notice) {
        // Nobody may be listening.
        let _ = self.0.send(notice);
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<Notice> {
        self.0.subscribe()
    }
}
