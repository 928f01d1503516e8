//! Beginning and end of a node's life: what a killed one left open, and what a stopping one still has in work.

use std::time::Duration;

use aegis_core::{
    Timestamp, Violation,
    record::{Entry, NodeRecord},
};
use serde_json::Map;

use crate::{
    pipeline::{Plane, unrecordable},
    record,
};

impl Plane {
    /// Settles what a killed node left open: every intent without an outcome gets its record. A log that begins where
    /// an earlier node has been at work says so before anything else.
    pub async fn settle_interrupted(&self) -> Result<usize, Violation> {
        if self.audit().begins_anew() {
            let log = self.audit().path().display();
            tracing::warn!(%log, "the audit log begins anew, and an earlier node has been at work here");
            let key = self.audit().public_key().id().to_string();
            self.note(NodeRecord {
                time: Timestamp::now(),
                action: "audit-begun-anew".into(),
                caller: None,
                detail: Map::from_iter([("key".to_owned(), key.into())]),
            })
            .await?;
        }
        let open = self.audit().unfinished_intents();
        for intent in open {
            tracing::warn!(call = %intent.call, tool = %intent.tool, "a call was interrupted; its effect is not known");
            self.audit()
                .record_durable(&record::interrupted(intent))
                .await
                .map_err(|error| unrecordable(&error))?;
        }
        Ok(open.len())
    }

    /// Records something an operator did, or that befell the node. Durable before it returns.
    pub async fn note(&self, record: NodeRecord) -> Result<(), Violation> {
        self.audit()
            .record_durable(&Entry::Node(record))
            .await
            .map(drop)
            .map_err(|error| unrecordable(&error))
    }

    /// Work that is no call, and that a stopping node waits for all the same. It must end soon after.
    pub fn see_through(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.work.spawn(work);
    }

    /// How long calls in work may take once nothing new is let in.
    pub fn drain_time(&self) -> Duration {
        self.limits.drain_timeout.0
    }

    /// Waits for the calls in work. Doors have stopped letting calls in.
    /// What waits for a person waits on in the registry, and holds nothing up.
    pub async fn drain(&self) {
        self.approvals().stop();
        self.work.close();
        if tokio::time::timeout(self.drain_time(), self.work.wait()).await.is_err() {
            tracing::warn!(in_flight = self.meters().in_flight(), "stopped waiting for calls in work");
        }
    }

    /// Writes what is queued and signs the last head. Nothing can be recorded, so nothing can be called, after this.
    pub async fn close(&self) {
        if let Err(error) = self.audit().close().await {
            tracing::error!(%error, "the audit log did not close cleanly");
        }
    }
}
