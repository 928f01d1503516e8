//! What a client hears unasked: that a list changed, that a resource it watches was updated.

use std::sync::Arc;

use aegis_core::Caller;
use aegis_routes::upstream::Notice;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::{
    answer,
    conversation::Conversation,
    era::Era,
    fault::Fault,
    message::Request,
    standing::Standing,
    wanted::{self, Wanted},
    watches::{SUBSCRIBE, Watch},
};

/// Resources that one stream may watch.
const MOST_WATCHED: usize = 64;

/// `subscriptions/listen`: one stream that tells what was asked for, until one side closes it.
pub(crate) struct Listening {
    conversation: Arc<Conversation>,
    caller: Caller,
    /// As JSON. It also names the subscription.
    id: String,
    notices: broadcast::Receiver<Notice>,
    wants: Wants,
    watched: Vec<Watch>,
    /// What was missed, to be told at once.
    missed: Vec<&'static str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wants {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
    resource_subscriptions: Vec<String>,
}

const TOOLS: &str = "notifications/tools/list_changed";
const PROMPTS: &str = "notifications/prompts/list_changed";
const RESOURCES: &str = "notifications/resources/list_changed";
const UPDATED: &str = "notifications/resources/updated";

impl Listening {
    pub(crate) fn open(
        conversation: &Arc<Conversation>,
        caller: Caller,
        request: &Request<'_>,
    ) -> Result<Self, Fault> {
        let wants = match request.params.notifications {
            Some(raw) if raw.get().starts_with('{') => serde_json::from_str::<Wants>(raw.get())
                .map_err(|error| Fault::invalid_params(format!("`params.notifications`: {error}")))?,
            _ => return Err(Fault::invalid_params("`params.notifications` must be an object")),
        };
        if wants.resource_subscriptions.len() > MOST_WATCHED {
            return Err(Fault::invalid_params(format!("one stream can watch {MOST_WATCHED} resources")));
        }
        Ok(Self {
            conversation: Arc::clone(conversation),
            caller,
            id: request.id.as_str().to_owned(),
            notices: conversation.doors.offers.notices(),
            wants,
            watched: Vec::new(),
            missed: Vec::new(),
        })
    }

    /// Settles what can be honoured, and says so. Watching a resource is decided like reading it.
    pub(crate) async fn acknowledge(&mut self) -> Vec<u8> {
        let offered = |method| wanted::offered(&self.conversation, &self.caller, method);
        self.wants.prompts_list_changed &= offered("prompts/list");
        self.wants.resources_list_changed &= offered("resources/list");
        let mut honoured = Map::new();
        for (name, wanted) in [
            ("toolsListChanged", self.wants.tools_list_changed),
            ("promptsListChanged", self.wants.prompts_list_changed),
            ("resourcesListChanged", self.wants.resources_list_changed),
        ] {
            if wanted {
                honoured.insert(name.to_owned(), true.into());
            }
        }
        for uri in std::mem::take(&mut self.wants.resource_subscriptions) {
            if let Some(watch) = self.watch(&uri).await {
                self.watched.push(watch);
            }
        }
        if !self.watched.is_empty() {
            let uris: Vec<&str> = self.watched.iter().map(Watch::uri).collect();
            honoured.insert("resourceSubscriptions".to_owned(), json!(uris));
        }
        self.notification("notifications/subscriptions/acknowledged", json!({"notifications": honoured}))
    }

    async fn watch(&self, uri: &str) -> Option<Watch> {
        let doors = &self.conversation.doors;
        let call = wanted::resource(&self.conversation, &self.caller, uri, SUBSCRIBE).await.ok().flatten()?;
        let server = Wanted::watched(&call)?.0.to_owned();
        let reply = doors.plane.call(self.caller.clone(), call, CancellationToken::new()).await;
        let done = reply.result.ok().filter(|done| done.pending.is_none() && done.outcome.failure.is_none());
        done.map(|_| self.conversation.watches.enter(&doors.plane, self.caller.clone(), &server, uri))
    }

    /// The next notification. `None` when there will be none.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(method) = self.missed.pop() {
                return Some(self.notification(method, json!({})));
            }
            let (method, params) = match self.notices.recv().await {
                Ok(Notice::ToolsChanged) if self.wants.tools_list_changed => (TOOLS, json!({})),
                Ok(Notice::PromptsChanged { .. }) if self.wants.prompts_list_changed => (PROMPTS, json!({})),
                Ok(Notice::ResourcesChanged { .. }) if self.wants.resources_list_changed => {
                    (RESOURCES, json!({}))
                }
                Ok(Notice::ResourceUpdated { server, uri, whose })
                    if self.watched.iter().any(|watch| watch.hears(&server, &uri, whose.as_ref())) =>
                {
                    (UPDATED, json!({"uri": uri}))
                }
                Ok(_) => continue,
                // Nobody knows what was missed, so all of it may have changed.
                Err(RecvError::Lagged(_)) => {
                    let all = [
                        (TOOLS, self.wants.tools_list_changed),
                        (PROMPTS, self.wants.prompts_list_changed),
                        (RESOURCES, self.wants.resources_list_changed),
                    ];
                    self.missed =
                        all.into_iter().filter_map(|(method, wanted)| wanted.then_some(method)).collect();
                    continue;
                }
                Err(RecvError::Closed) => return None,
            };
            return Some(self.notification(method, params));
        }
    }

    /// The answer, when it is the node that closes the stream.
    pub(crate) fn end(&self) -> Vec<u8> {
        let mut out = answer::begin(&self.id, Era::Modern, 512);
        let meta = self.subscription();
        self.conversation.write_meta(&mut out, Era::Modern, Some(&meta));
        answer::end(out)
    }

    fn subscription(&self) -> Value {
        let id: Value = serde_json::from_str(&self.id).unwrap_or_default();
        json!({"io.modelcontextprotocol/subscriptionId": id})
    }

    fn notification(&self, method: &str, mut params: Value) -> Vec<u8> {
        params["_meta"] = self.subscription();
        json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string().into_bytes()
    }
}

/// A notice for a client of the older revisions, which has asked for nothing but the resources it watches.
pub(crate) fn plainly(notice: Result<Notice, RecvError>, standing: &Standing) -> Option<Vec<u8>> {
    let (method, params) = match notice {
        Ok(Notice::ToolsChanged) | Err(RecvError::Lagged(_)) => (TOOLS, None),
        Ok(Notice::PromptsChanged { .. }) => (PROMPTS, None),
        Ok(Notice::ResourcesChanged { .. }) => (RESOURCES, None),
        Ok(Notice::ResourceUpdated { server, uri, whose })
            if standing.watches(&server, &uri, whose.as_ref()) =>
        {
            (UPDATED, Some(json!({"uri": uri})))
        }
        // A message that belongs to no call could be anybody's.
        Ok(Notice::ResourceUpdated { .. } | Notice::Log { .. }) | Err(RecvError::Closed) => return None,
    };
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    if let Some(params) = params {
        message["params"] = params;
    }
    Some(message.to_string().into_bytes())
}
