//! Requests for a person's approval, as rows. Each change of state is one compare-and-set: of two that race, one
//! wins and the other learns how it stands.

use aegis_core::{
    Approval, ApprovalState, Caller, Timestamp,
    approval::{ApprovalOutcome, PastDecision},
    config::ApprovalsConfig,
    id::{ApprovalId, CredentialId, TenantId},
};

use super::{Registry, RegistryError, Token, approval_rows::MOST_ROWS};

/// What became of a call that asks for a person.
#[derive(Debug)]
pub enum Parked {
    /// It waits now.
    Fresh,
    /// The caller's very same call waits already, or runs at this moment.
    Same(Box<Approval>),
    /// The very same call has run. Its outcome is now delivered; the next such call asks again.
    Ended(Box<Approval>),
    /// A person said no to the very same call, and the time for asking has not passed.
    Rejected(Box<Approval>),
    /// There is no room for another one that waits.
    Full(Limit),
}

/// Which bound on requests that wait is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    Caller,
    CallerBytes,
    Tenant,
    TenantBytes,
}

#[derive(Debug)]
pub enum Decided {
    /// By this very decision.
    Now(Box<Approval>),
    /// In the same way, earlier.
    Already(Box<Approval>),
    /// It has ended, or was decided, in another way.
    Otherwise(Box<Approval>),
    /// Its time has run out.
    Late(Box<Approval>),
    Unknown,
}

/// A person's decision, ready to be written.
#[derive(Debug)]
pub struct DecisionRow {
    pub id: ApprovalId,
    pub approve: bool,
    pub by: Caller,
    pub reason: Option<String>,
    /// What the requester hears of a refusal.
    pub outcome: Option<ApprovalOutcome>,
}

/// Which requests are wanted. What is not set does not matter.
#[derive(Debug, Clone, Default)]
pub struct ApprovalFilter {
    pub state: Option<ApprovalState>,
    pub tenant: Option<TenantId>,
    /// Only what this caller asked.
    pub of: Option<Caller>,
    pub limit: usize,
    /// Those that come after this one in the list.
    pub after: Option<ApprovalId>,
}

/// A part of the list: as many as were wanted, or as fit.
#[derive(Debug)]
pub struct ApprovalPage {
    /// Each as its [`Approval::summary`], without its outcome.
    pub approvals: Vec<Approval>,
    /// Where to go on, if there are more.
    pub next: Option<ApprovalId>,
}

impl Registry {
    /// Keeps a call until a person has decided, unless the same call is known already.
    pub async fn park_approval(
        &self,
        new: Approval,
        config: &ApprovalsConfig,
    ) -> Result<Parked, RegistryError> {
        let config = config.clone();
        self.blocking(move |inner| inner.store().park(&new, &config, Timestamp::now())).await
    }

    /// The request with all its arguments, while it is open; afterwards what is kept of it.
    pub async fn whole_approval(&self, id: &ApprovalId) -> Result<Option<Approval>, RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| inner.store().whole_approval("id = ?1", id.as_str())).await
    }

    /// Its summary and its outcome.
    pub async fn find_approval(&self, id: &ApprovalId) -> Result<Option<Approval>, RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| inner.store().approval("id = ?1", id.as_str())).await
    }

    pub async fn find_approval_by_intent(&self, intent: &str) -> Result<Option<Approval>, RegistryError> {
        let intent = intent.to_owned();
        self.blocking(move |inner| inner.store().whole_approval("intent = ?1", &intent)).await
    }

    /// The newest first.
    pub async fn list_approvals(&self, filter: &ApprovalFilter) -> Result<ApprovalPage, RegistryError> {
        let filter = filter.clone();
        self.blocking(move |inner| inner.store().approvals(&filter)).await
    }

    /// The latest decisions about the same tool for the same user.
    pub async fn past_decisions(
        &self,
        like: &Approval,
        limit: usize,
    ) -> Result<Vec<PastDecision>, RegistryError> {
        let (id, caller) = (like.id.clone(), like.caller.clone());
        let (tool, digest) = (like.tool.clone(), like.arguments_sha256.clone());
        self.blocking(move |inner| inner.store().past_decisions(&id, &caller, &tool, &digest, limit)).await
    }

    pub async fn decide_approval(&self, decision: DecisionRow) -> Result<Decided, RegistryError> {
        let decided = self.blocking(move |inner| inner.store().decide(&decision, Timestamp::now())).await?;
        self.left_traces();
        Ok(decided)
    }

    /// Ends a request that stands in `from`. False when it no longer does.
    pub async fn end_approval(
        &self,
        id: &ApprovalId,
        from: ApprovalState,
        to: ApprovalState,
        outcome: ApprovalOutcome,
        recorded: bool,
    ) -> Result<bool, RegistryError> {
        let id = id.clone();
        let ended = self
            .blocking(move |inner| inner.store().end(&id, from, to, &outcome, recorded, Timestamp::now()))
            .await?;
        self.left_traces();
        Ok(ended)
    }

    /// Those that wait and whose time has run out.
    pub async fn due_approvals(&self, now: Timestamp, limit: usize) -> Result<Vec<Approval>, RegistryError> {
        let (now, limit) = (now.millis(), limit.min(MOST_ROWS));
        let condition = format!("state = 'pending' AND expires <= {now} ORDER BY expires LIMIT {limit}");
        self.blocking(move |inner| inner.store().approvals_where(&condition)).await
    }

    /// When the next one that waits runs out of time.
    pub async fn next_approval_expiry(&self) -> Result<Option<Timestamp>, RegistryError> {
        self.blocking(|inner| {
            let store = inner.store();
            let next: Option<u64> = store
                .connection
                .query_row("SELECT min(expires) FROM approvals WHERE state = 'pending'", [], |row| row.get(0))
                .map_err(|error| store.failed(error))?;
            Ok(next.map(Timestamp::from_millis))
        })
        .await
    }

    /// Agreed to, and not known to have ended: what a killed node left.
    pub async fn approved_approvals(&self) -> Result<Vec<Approval>, RegistryError> {
        self.blocking(|inner| {
            inner.store().approvals_where("state = 'approved' AND runs = 1 ORDER BY number")
        })
        .await
    }

    /// Ended without running, and perhaps without a record in the audit log.
    pub async fn unrecorded_approvals(&self) -> Result<Vec<Approval>, RegistryError> {
        self.blocking(|inner| {
            inner.store().approvals_where("recorded = 0 AND ended IS NOT NULL ORDER BY number")
        })
        .await
    }

    pub async fn mark_approval_recorded(&self, id: &ApprovalId) -> Result<(), RegistryError> {
        self.mark(id, "recorded").await
    }

    pub async fn mark_approval_delivered(&self, id: &ApprovalId) -> Result<(), RegistryError> {
        self.mark(id, "delivered").await
    }

    async fn mark(&self, id: &ApprovalId, column: &'static str) -> Result<(), RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let store = inner.store();
            store
                .connection
                .prepare_cached(&format!("UPDATE approvals SET {column} = 1 WHERE id = ?1"))
                .and_then(|mut update| update.execute([id.as_str()]))
                .map(drop)
                .map_err(|error| store.failed(error))
        })
        .await
    }

    /// Forgets what ended before `before`, and what a tenant has more of than is kept. Returns how many; called again
    /// while that is not zero.
    pub async fn prune_approvals(&self, before: Timestamp, most_kept: u32) -> Result<usize, RegistryError> {
        self.blocking(move |inner| {
            let store = inner.store();
            store.prune(before, most_kept, Timestamp::now()).map_err(|error| store.failed(error))
        })
        .await
    }

    /// What is known of a token, by its public handle. It may be revoked or expired.
    pub async fn token(&self, id: &CredentialId) -> Result<Option<Token>, RegistryError> {
        let id = id.clone();
        self.blocking(move |inner| inner.store().by_id(&id)).await
    }
}
