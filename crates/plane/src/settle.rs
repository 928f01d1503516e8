//! Beginning and end of a node's life: what a killed one left open, and what a stopping one still has in work.

use std::{sync::OnceLock, time::Duration};

use aegis_core::{
    Violation,
    record::{Entry, NodeRecord},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    pipeline::{Plane, unrecordable},
    record,
};

/// What a call may take to end that was asked to stop because the time was up.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The end of a node, which several wait for one after the other: they share one time.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    began: OnceLock<Instant>,
    begun: CancellationToken,
}

impl Drain {
    fn begin(&self) {
        self.began.get_or_init(Instant::now);
        self.begun.cancel();
    }

    fn left(&self, whole: Duration) -> Duration {
        self.began.get().map_or(whole, |began| whole.saturating_sub(began.elapsed()))
    }

    /// Ends when the node stops and the time of its calls is up.
    pub(crate) async fn up(&self, whole: Duration) {
        self.begun.cancelled().await;
        tokio::time::sleep(self.left(whole)).await;
    }
}

impl Plane {
    /// Settles what a killed node left open: every intent without an outcome gets its record.
    pub async fn settle_interrupted(&self) -> Result<usize, Violation> {
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

    /// The node stops: from now on its calls in work have `spec.limits.drain_timeout`, whoever waits for them.
    pub fn begin_drain(&self) {
        self.drain.begin();
    }

    /// How long calls in work may still take: all of the time, as long as the node does not stop.
    pub fn drain_time(&self) -> Duration {
        self.drain.left(self.limits.drain_timeout.0)
    }

    /// Waits for the calls in work. Doors have stopped letting calls in.
    /// What waits for a person waits on in the registry, and holds nothing up.
    pub async fn drain(&self) {
        self.approvals().stop();
        self.work.close();
        self.begin_drain();
        // Those that were asked to stop when the time was up can still say how they ended.
        let patience = self.drain_time().max(LAST_WORDS.min(self.limits.drain_timeout.0));
        if tokio::time::timeout(patience, self.work.wait()).await.is_err() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_second_gets_what_the_first_left() {
        let (drain, whole) = (Drain::default(), Duration::from_secs(30));
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(drain.left(whole), whole, "nothing has begun to stop");
        drain.begin();
        assert_eq!(drain.left(whole), whole);
        tokio::time::advance(Duration::from_secs(20)).await;
        drain.begin();
        assert_eq!(drain.left(whole), Duration::from_secs(10));
        drain.up(whole).await;
        assert_eq!(drain.left(whole), Duration::ZERO);
    }
}
