//! The session that the node keeps for a client of the older revisions. The client knows nothing of it; when the node
//! forgets it, because it was started again, it is begun anew without the client noticing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;

use super::node::{self, Answered, Gone, Node, Routing};
use crate::mcp::http::SESSION_HEADER;

#[derive(Debug)]
pub(super) struct Session {
    node: Node,
    state: Mutex<State>,
    /// Held while the session is begun anew, so that this happens once.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone, Default)]
struct State {
    id: Option<String>,
    revision: Option<String>,
    /// What the client began with.
    initialize: Option<Bytes>,
}

#[derive(Deserialize)]
struct Initialized {
    result: Agreed,
}

#[derive(Deserialize)]
struct Agreed {
    #[serde(rename = "protocolVersion")]
    protocol_version: String,
}

impl Session {
    pub(super) fn new(node: Node) -> Self {
        Self { node, state: Mutex::default(), renewing: tokio::sync::Mutex::new(()) }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// Whether the client has begun one.
    pub(super) fn is_open(&self) -> bool {
        self.state().initialize.is_some()
    }

    /// Sends `initialize` and remembers what it settles.
    pub(super) async fn begin(&self, line: Bytes) -> Result<Bytes, Gone> {
        let response = self.node.post(line.clone(), &Routing::default()).await?;
        let id =
            response.headers().get(SESSION_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let answer = node::body(response).await?;
        if let Ok(Initialized { result }) = serde_json::from_slice(&answer) {
            *self.state() = State { id, revision: Some(result.protocol_version), initialize: Some(line) };
        }
        Ok(answer)
    }

    /// Sends a line within the session.
    pub(super) async fn post(&self, line: Bytes) -> Result<Answered, Gone> {
        let used = self.state().clone();
        let answered = self.node.post(line.clone(), &used.routing()).await?;
        if answered.status() != StatusCode::NOT_FOUND || used.id.is_none() {
            return Ok(answered);
        }
        self.renew(&used).await?;
        let renewed = self.state().clone();
        self.node.post(line, &renewed.routing()).await
    }

    /// Opens the stream of what the node says unasked. `None` when it has none.
    pub(super) async fn listen(&self) -> Result<Option<Answered>, Gone> {
        let used = self.state().clone();
        let mut answered = self.node.get(&used.routing()).await?;
        if answered.status() == StatusCode::NOT_FOUND && used.id.is_some() {
            self.renew(&used).await?;
            let renewed = self.state().clone();
            answered = self.node.get(&renewed.routing()).await?;
        }
        Ok(Some(answered).filter(|answered| answered.status() == StatusCode::OK))
    }

    async fn renew(&self, lost: &State) -> Result<(), Gone> {
        let _renewing = self.renewing.lock().await;
        let current = self.state().clone();
        if current.id != lost.id {
            return Ok(());
        }
        if let Some(initialize) = current.initialize {
            tracing::debug!("the node forgot the session; beginning anew");
            self.begin(initialize).await?;
        }
        Ok(())
    }

    /// Tells the node that the client is done.
    pub(super) async fn end(&self) {
        let state = self.state().clone();
        if state.id.is_some()
            && let Err(gone) = self.node.delete(&state.routing()).await
        {
            tracing::debug!(error = %gone, "the session could not be ended");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn routing(&self) -> Routing {
        Routing::within(self.id.as_deref(), self.revision.as_deref())
    }
}
