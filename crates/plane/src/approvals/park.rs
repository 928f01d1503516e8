//! Keeping a call until a person has decided.

use aegis_core::{
    Approval, ApprovalState, Ask, Asker, Caller, Gate, GateVerdict, Timestamp, Violation,
    approval::{Desk, Pending, Question},
    call::{self, Proof},
    event::EventName,
    id::ApprovalId,
    record::NodeRecord,
    redact,
};
use aegis_stores::{AuditLog, registry::Parked};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    Approvals, result_of, unusable, void,
    words::{full, too_large},
};
use crate::{
    admission::Admission,
    carry_out::{Answer, Done, recorded},
    pipeline::{Plane, unrecordable},
    record::{self, Draft},
};

impl Plane {
    /// Keeps an admitted call that a person must agree to, and answers at once. It leaves its record at its end. The
    /// very same call again finds the first one: still open, or with its result, or with a person's no.
    pub(crate) async fn park(&self, admission: Admission, mut draft: Draft, answer: Answer) {
        let approvals = self.approvals();
        let caller = admission.caller.clone();
        let parked = approvals.keep(self, &admission, draft.proof()).await;
        let parked = match parked {
            Ok(parked) => parked,
            Err(violation) => return self.refuse(draft, violation, answer).await,
        };
        let result = match parked {
            Kept::Waits(approval) => {
                // The first call's record comes at its end; one that only repeats the question ends here.
                if approval.call != draft.call()
                    && let Err(error) = self.audit().record(&draft.repeated(&approval.id)).await
                {
                    let _ = answer.send(Err(unrecordable(&error)));
                    return;
                }
                Ok(Done::waiting(approval))
            }
            Kept::Ended(approval) => {
                draft.verdict(GateVerdict::pass(Gate::Approval).by(format!("the answer of {}", approval.id)));
                match self.remembered(&caller, result_of(*approval)).await {
                    Ok(done) => self.delivered(draft, done).await,
                    Err(violation) => return self.refuse(draft, violation, answer).await,
                }
            }
            Kept::Rejected(approval) => {
                let violation = result_of(*approval).err().unwrap_or_else(|| void("a person said no"));
                draft.verdict(GateVerdict::deny(Gate::Approval, violation.clone()));
                return self.refuse(draft, violation, answer).await;
            }
        };
        // The receiver is gone when the caller stopped waiting.
        let _ = answer.send(result);
    }

    /// Records that a caller fetched what its call answered earlier.
    async fn delivered(&self, draft: Draft, done: Done) -> Result<Done, Violation> {
        let (label, result) = (done.outcome.label.clone(), Ok(done));
        let (entry, _) = draft.finish(recorded(&result), Some(label));
        match self.audit().record_durable(&entry).await {
            Ok(_) => result,
            Err(error) => Err(unrecordable(&error)),
        }
    }
}

enum Kept {
    Waits(Box<Approval>),
    Ended(Box<Approval>),
    Rejected(Box<Approval>),
}

impl Approvals {
    async fn keep(
        &self,
        plane: &Plane,
        admission: &Admission,
        proof: Option<&Proof>,
    ) -> Result<Kept, Violation> {
        let Admission { caller, tool, arguments, granted, .. } = admission;
        // Before anything is worked out for it.
        let blank = self.blank(caller, &tool.name, arguments.clone())?;
        let approval = Approval {
            runs: true,
            call: admission.call,
            title: tool.title.to_string(),
            asked_as: admission.asked_as.clone(),
            proof: proof.cloned(),
            preview: self.previews.preview(caller, &granted.grant, tool, arguments).await,
            asks: admission.asks.clone(),
            labels: admission.labels.clone(),
            policy_version: admission.version.clone(),
            ..blank
        };
        self.file(plane, approval).await
    }

    /// A request with nothing in it but who, what and when. Refused when nobody could be expected to read it.
    fn blank(
        &self,
        caller: &Caller,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Approval, Violation> {
        let created = Timestamp::now();
        let bytes = serde_json::to_vec(&arguments).map_or(u64::MAX, |text| text.len() as u64);
        if bytes > self.config.max_arguments.0 {
            return Err(too_large(tool, bytes, self.config.max_arguments));
        }
        Ok(Approval {
            id: ApprovalId::new(format!("approval:{}", Uuid::now_v7())),
            intent: format!("intent:{}", Uuid::now_v7()),
            state: ApprovalState::Pending,
            call: aegis_core::id::CallId::fresh(),
            runs: false,
            caller: caller.clone(),
            tool: tool.to_owned(),
            title: String::new(),
            asked_as: None,
            arguments_sha256: call::digest(&arguments),
            arguments_bytes: bytes,
            arguments_cut: false,
            arguments,
            proof: None,
            preview: None,
            asks: Vec::new(),
            labels: Vec::new(),
            read: self.policy.read_by(caller),
            policy_version: String::new(),
            created,
            expires: created.plus(self.config.expiry.0),
            decided: None,
            decided_by: None,
            reason: None,
            ended: None,
            outcome: None,
            delivered: false,
            similar: Vec::new(),
        })
    }

    /// The row first, then the record that it is there. Without the record it is taken back, so that nothing waits
    /// unrecorded.
    async fn file(&self, plane: &Plane, approval: Approval) -> Result<Kept, Violation> {
        let parked = self
            .registry
            .park_approval(approval.clone(), &self.config)
            .await
            .map_err(|error| unusable(&error))?;
        match parked {
            Parked::Same(known) => return Ok(Kept::Waits(known)),
            Parked::Ended(known) => return Ok(Kept::Ended(known)),
            Parked::Rejected(known) => return Ok(Kept::Rejected(known)),
            Parked::Full(limit) => return Err(full(limit, &self.config)),
            Parked::Fresh => {}
        }
        if let Err(violation) = plane.note(request_record(&approval, plane.audit())).await {
            let plane = self.plane()?;
            let unrecorded = void("the request could not be recorded");
            self.end_pending(&plane, &approval, ApprovalState::Cancelled, unrecorded).await?;
            return Err(violation);
        }
        self.mind(approval.expires);
        self.announce(&approval, EventName::ApprovalRequested);
        Ok(Kept::Waits(Box::new(approval)))
    }
}

impl Desk for Plane {
    fn ask<'a>(
        &'a self,
        caller: &'a Caller,
        question: Question,
    ) -> Pending<'a, Result<Option<Approval>, Violation>> {
        Box::pin(async move {
            let approvals = self.approvals();
            if let Some(intent) = &question.intent {
                let found = approvals.registry.find_approval_by_intent(intent).await;
                let own = |approval: &Approval| {
                    (&approval.caller.tenant, &approval.caller.user) == (&caller.tenant, &caller.user)
                };
                return Ok(found.map_err(|error| unusable(&error))?.filter(own).map(Approval::for_requester));
            }
            let asked =
                Ask { by: Asker::Tool, rule: format!("`{}` was called", question.tool), reason: None };
            let approval = Approval {
                call: question.call,
                title: question.title,
                asks: vec![asked],
                ..approvals.blank(caller, &question.tool, question.arguments)?
            };
            match approvals.file(self, approval).await? {
                Kept::Waits(approval) | Kept::Ended(approval) | Kept::Rejected(approval) => {
                    Ok(Some(*approval))
                }
            }
        })
    }
}

fn request_record(approval: &Approval, audit: &AuditLog) -> NodeRecord {
    let arguments = redact::arguments(&approval.arguments);
    let digest = record::told_digest(approval, &arguments, audit);
    let detail = json!({
        "approval": approval.id,
        "intent": approval.intent,
        "call": approval.call,
        "tool": approval.tool,
        "arguments": arguments,
        "arguments_sha256": digest,
        "asks": approval.asks,
        "labels": approval.labels,
        "policy_version": approval.policy_version,
        "expires": approval.expires,
    });
    NodeRecord {
        time: approval.created,
        action: "approval-requested".into(),
        caller: Some(approval.caller.clone()),
        detail: detail.as_object().cloned().unwrap_or_default(),
    }
}
