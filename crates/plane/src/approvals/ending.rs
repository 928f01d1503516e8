//! The end of a request whose call does not run: its state, its one record in the audit log, and those who wait.

use std::sync::Arc;

use aegis_core::{Approval, ApprovalState, Violation, approval::ApprovalOutcome, event::EventName};
use aegis_stores::audit::AuditError;

use super::{Approvals, expired, resume::Pauses, unusable};
use crate::{
    pipeline::{Plane, refusal_events},
    record,
};

/// Ended in one go; the clock comes back for the rest.
const AT_ONCE: usize = 256;

impl Approvals {
    /// Ends a request that nobody has decided. False when somebody has, or it has ended otherwise.
    pub(super) async fn end_pending(
        &self,
        plane: &Arc<Plane>,
        approval: &Approval,
        to: ApprovalState,
        violation: Violation,
    ) -> Result<bool, Violation> {
        self.end(plane, approval, ApprovalState::Pending, to, violation).await
    }

    /// Ends an approved request whose call will not run. Tried until the registry has it or the node stops.
    pub(crate) async fn end_unrun(
        &self,
        plane: &Arc<Plane>,
        approval: &Approval,
        to: ApprovalState,
        violation: Violation,
    ) {
        let mut pauses = Pauses::default();
        let end = || self.end(plane, approval, ApprovalState::Approved, to, violation.clone());
        while let Err(error) = end().await {
            if !self.may_try_again(approval, &error, &mut pauses).await {
                return;
            }
        }
    }

    /// The state first: once it is final, nothing can run it, whatever happens to the record. A record that is
    /// missing then is written at the next start.
    async fn end(
        &self,
        plane: &Arc<Plane>,
        approval: &Approval,
        from: ApprovalState,
        to: ApprovalState,
        violation: Violation,
    ) -> Result<bool, Violation> {
        let outcome = ApprovalOutcome::Refused { violation };
        let ended = self
            .registry
            .end_approval(&approval.id, from, to, outcome.clone(), false)
            .await
            .map_err(|error| unusable(&error))?;
        if ended {
            let approval = Approval { state: to, outcome: Some(outcome), ..approval.clone() };
            self.ended(plane, &approval).await;
        }
        Ok(ended)
    }

    /// Tells of an end that is already kept.
    async fn ended(&self, plane: &Arc<Plane>, approval: &Approval) {
        if approval.runs {
            self.record_refusal(plane, approval).await;
        }
        self.waiting.ring(&approval.id);
        if approval.state == ApprovalState::Expired {
            self.announce(approval, EventName::ApprovalExpired);
        }
        self.announce(approval, EventName::ApprovalEnded);
    }

    /// Writes the one record of a call that did not run. It uses the approval up, so that even a row that comes back
    /// from a copy of the registry runs nothing.
    pub(super) async fn record_refusal(&self, plane: &Arc<Plane>, approval: &Approval) {
        let Some(ApprovalOutcome::Refused { violation }) = &approval.outcome else { return };
        match plane.audit().record_durable(&record::unrun(approval, violation, plane.audit())).await {
            Ok(_) => {
                plane.meters().refused(violation.kind);
                plane.meters().finished(
                    &approval.tool,
                    &record::refused(violation),
                    std::time::Duration::ZERO,
                );
                refusal_events(violation).for_each(|event| {
                    plane.bus().announce(&approval.caller.tenant, approval.call, &approval.tool, event);
                });
            }
            // It has its record.
            Err(AuditError::Consumed(_)) => {}
            Err(error) => {
                tracing::error!(%error, approval = %approval.id, "the end of a request can't be recorded yet");
                return;
            }
        }
        if let Err(error) = self.registry.mark_approval_recorded(&approval.id).await {
            tracing::warn!(%error, approval = %approval.id, "recorded, and that could not be noted");
        }
    }

    /// Ends the requests whose time has run out. Returns how many.
    pub async fn expire_due(&self) -> Result<usize, Violation> {
        let plane = self.plane()?;
        let mut count = 0;
        loop {
            let now = aegis_core::Timestamp::now();
            let due = self.registry.due_approvals(now, AT_ONCE).await.map_err(|error| unusable(&error))?;
            for approval in &due {
                let ended = self.end_pending(&plane, approval, ApprovalState::Expired, expired(approval));
                count += usize::from(ended.await?);
            }
            if due.len() < AT_ONCE {
                return Ok(count);
            }
        }
    }
}
