//! One task that ends what nobody decided in time, and forgets what has ended long ago.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use aegis_core::{Timestamp, Violation};

use super::{Approvals, unusable};
use crate::pipeline::Plane;

/// The clock looks at least this often: the wall clock may be set, and old rows are to be forgotten.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);
/// After a look that failed.
const PAUSE: Duration = Duration::from_secs(5);

impl Approvals {
    /// The task is among the node's work, so that a stopping node waits for a look that is under way.
    pub(super) fn start_clock(&self, owner: &Plane) {
        let (plane, earlier, stopping) =
            (Weak::clone(&self.plane), Arc::clone(&self.earlier), self.stopping.clone());
        let sleeps_until = Arc::clone(&self.clock_sleeps_until);
        owner.work.spawn(async move {
            loop {
                // Until it sleeps, whoever parks something rings, and the ring is kept.
                sleeps_until.store(u64::MAX, Ordering::Release);
                let Some(sleep) = look(&plane).await else { return };
                sleeps_until.store(Timestamp::now().plus(sleep).millis(), Ordering::Release);
                tokio::select! {
                    () = tokio::time::sleep(sleep) => {}
                    () = earlier.notified() => {}
                    () = stopping.cancelled() => return,
                }
            }
        });
    }

    /// Ends the waits of this node. What waits for a person goes on waiting in the registry.
    pub(crate) fn stop(&self) {
        self.stopping.cancel();
    }

    /// When to look again.
    async fn tick(&self) -> Result<Duration, Violation> {
        self.expire_due().await?;
        let old = Timestamp::now().minus(self.config.keep.0);
        let prune = || self.registry.prune_approvals(old, self.config.max_kept);
        while prune().await.map_err(|error| unusable(&error))? > 0 {}
        self.registry.prune_standing(old).await.map_err(|error| unusable(&error))?;
        let next = self.registry.next_approval_expiry().await.map_err(|error| unusable(&error))?;
        let left = next.map(|next| next.millis().saturating_sub(Timestamp::now().millis()));
        Ok(left.map_or(LONGEST_SLEEP, Duration::from_millis).min(LONGEST_SLEEP))
    }
}

/// None when there is no plane any more.
async fn look(plane: &Weak<Plane>) -> Option<Duration> {
    let plane = plane.upgrade()?;
    Some(plane.approvals().tick().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "requests for approval could not be looked through");
        PAUSE
    }))
}
