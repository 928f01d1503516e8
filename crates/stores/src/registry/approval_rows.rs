//! The rows of requests for approval.

use std::time::Duration;

use aegis_core::{
    Approval, ApprovalState, Caller, Timestamp,
    approval::{ApprovalOutcome, PastDecision},
    id::{ApprovalId, TenantId, UserId},
};
use rusqlite::{OptionalExtension, Row, TransactionBehavior, params, types::Type};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    RegistryError,
    approvals::{ApprovalFilter, Decided, DecisionRow, Parked},
    store::Store,
};

const COLUMNS: &str = "request, state, decided, decided_by, reason, ended, outcome, delivered";

/// The most rows one look returns.
pub(super) const MOST_ROWS: usize = 10_000;

/// Arguments are kept whole, so what waits in one tenant is bounded by its size too.
const MOST_PENDING_BYTES: u64 = 256 << 20;

impl Store {
    pub(super) fn park(
        &mut self,
        new: &Approval,
        most_pending: u32,
        keep: Duration,
        now: Timestamp,
    ) -> Result<Parked, RegistryError> {
        let request = written(new)?;
        let path = self.path.clone();
        let failed = |source| RegistryError::Database { path: path.clone(), source };
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let park = || -> rusqlite::Result<Parked> {
            let known = if new.runs { newest_same(&transaction, new)? } else { None };
            if let Some(known) = known {
                match known.state {
                    ApprovalState::Pending if now < known.expires => return Ok(Parked::Same(known)),
                    ApprovalState::Approved => return Ok(Parked::Same(known)),
                    ApprovalState::Rejected if now < known.expires => return Ok(Parked::Rejected(known)),
                    ApprovalState::Executed | ApprovalState::Failed
                        if !known.delivered && known.ended.is_some_and(|ended| now < ended.plus(keep)) =>
                    {
                        transaction
                            .prepare_cached("UPDATE approvals SET delivered = 1 WHERE id = ?1")?
                            .execute([known.id.as_str()])?;
                        return Ok(Parked::Ended(known));
                    }
                    _ => {}
                }
            }
            let (pending, bytes): (u64, u64) = transaction
                .prepare_cached(
                    "SELECT count(*), coalesce(sum(bytes), 0) FROM approvals WHERE tenant = ?1 AND state = 'pending'",
                )?
                .query_row([new.caller.tenant.as_str()], |row| row.try_into())?;
            if pending >= u64::from(most_pending) || bytes + request.len() as u64 > MOST_PENDING_BYTES {
                return Ok(Parked::Full);
            }
            transaction
                .prepare_cached(
                    "INSERT INTO approvals
                     (id, intent, tenant, user, tool, digest, runs, state, created, expires, request, recorded, bytes)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8, ?9, ?10, ?11, ?12)",
                )?
                .execute(params![
                    new.id.as_str(),
                    new.intent,
                    new.caller.tenant.as_str(),
                    new.caller.user.as_str(),
                    new.tool,
                    new.arguments_sha256,
                    new.runs,
                    new.created.millis(),
                    new.expires.millis(),
                    request,
                    // Where nothing runs, the call that asked has left its record already.
                    !new.runs,
                    request.len(),
                ])?;
            Ok(Parked::Fresh)
        };
        let parked = park().map_err(failed)?;
        transaction.commit().map_err(failed)?;
        Ok(parked)
    }

    pub(super) fn approval(&self, condition: &str, value: &str) -> Result<Option<Approval>, RegistryError> {
        self.connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM approvals WHERE {condition}"))
            .and_then(|mut select| select.query_row([value], approval).optional())
            .map_err(|error| self.failed(error))
    }

    pub(super) fn approvals_where(&self, condition: &str) -> Result<Vec<Approval>, RegistryError> {
        let select = || -> rusqlite::Result<Vec<Approval>> {
            self.connection
                .prepare(&format!("SELECT {COLUMNS} FROM approvals WHERE {condition}"))?
                .query_map([], approval)?
                .collect()
        };
        select().map_err(|error| self.failed(error))
    }

    pub(super) fn approvals(&self, filter: &ApprovalFilter) -> Result<Vec<Approval>, RegistryError> {
        let select = || -> rusqlite::Result<Vec<Approval>> {
            self.connection
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM approvals
                     WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR tenant = ?2) AND (?3 IS NULL OR user = ?3)
                     ORDER BY number DESC LIMIT ?4"
                ))?
                .query_map(
                    params![
                        filter.state.map(ApprovalState::as_str),
                        filter.tenant.as_ref().map(TenantId::as_str),
                        filter.user.as_ref().map(UserId::as_str),
                        filter.limit.min(MOST_ROWS),
                    ],
                    approval,
                )?
                .collect()
        };
        select().map_err(|error| self.failed(error))
    }

    pub(super) fn past_decisions(
        &self,
        but: &ApprovalId,
        caller: &Caller,
        tool: &str,
        digest: &str,
        limit: usize,
    ) -> Result<Vec<PastDecision>, RegistryError> {
        let select = || -> rusqlite::Result<Vec<PastDecision>> {
            self.connection
                .prepare_cached(
                    "SELECT id, state, decided, decided_by, reason, digest FROM approvals
                     WHERE tenant = ?1 AND user = ?2 AND tool = ?3 AND decided IS NOT NULL AND id <> ?4
                     ORDER BY decided DESC LIMIT ?5",
                )?
                .query_map(
                    params![caller.tenant.as_str(), caller.user.as_str(), tool, but.as_str(), limit],
                    |row| {
                        Ok(PastDecision {
                            id: ApprovalId::new(row.get_ref(0)?.as_str()?),
                            state: state(row, 1)?,
                            decided: Timestamp::from_millis(row.get(2)?),
                            decided_by: read::<Caller>(row, 3)?.map(|caller| caller.user),
                            reason: row.get(4)?,
                            same_arguments: row.get_ref(5)?.as_str()? == digest,
                        })
                    },
                )?
                .collect()
        };
        select().map_err(|error| self.failed(error))
    }

    pub(super) fn decide(
        &mut self,
        decision: &DecisionRow,
        now: Timestamp,
    ) -> Result<Decided, RegistryError> {
        let by = written(&decision.by)?;
        let outcome = decision.outcome.as_ref().map(written).transpose()?;
        let state = if decision.approve { ApprovalState::Approved } else { ApprovalState::Rejected };
        let changed = self
            .connection
            .prepare_cached(
                // Where nothing runs, a yes is the end.
                "UPDATE approvals SET state = ?2, decided = ?3, decided_by = ?4, reason = ?5, outcome = ?6,
                     ended = CASE WHEN ?2 = 'rejected' OR runs = 0 THEN ?3 END
                 WHERE id = ?1 AND state = 'pending' AND expires > ?3",
            )
            .and_then(|mut update| {
                update.execute(params![
                    decision.id.as_str(),
                    state.as_str(),
                    now.millis(),
                    by,
                    decision.reason,
                    outcome
                ])
            })
            .map_err(|error| self.failed(error))?;
        let Some(row) = self.approval("id = ?1", decision.id.as_str())?.map(Box::new) else {
            return Ok(Decided::Unknown);
        };
        let approved = row.decided.is_some() && row.state != ApprovalState::Rejected;
        Ok(match row.state {
            _ if changed == 1 => Decided::Now(row),
            ApprovalState::Pending | ApprovalState::Expired => Decided::Late(row),
            _ if row.decided.is_some() && approved == decision.approve => Decided::Already(row),
            _ => Decided::Otherwise(row),
        })
    }

    pub(super) fn end(
        &self,
        id: &ApprovalId,
        from: ApprovalState,
        to: ApprovalState,
        outcome: &ApprovalOutcome,
        recorded: bool,
        now: Timestamp,
    ) -> Result<bool, RegistryError> {
        let outcome = written(outcome)?;
        self.connection
            .prepare_cached(
                "UPDATE approvals SET state = ?3, outcome = ?4, ended = ?5, recorded = max(recorded, ?6),
                     bytes = bytes + ?7
                 WHERE id = ?1 AND state = ?2",
            )
            .and_then(|mut update| {
                update.execute(params![
                    id.as_str(),
                    from.as_str(),
                    to.as_str(),
                    outcome,
                    now.millis(),
                    recorded,
                    outcome.len()
                ])
            })
            .map(|changed| changed == 1)
            .map_err(|error| self.failed(error))
    }
}

/// The newest request of this very caller for this very call.
fn newest_same(
    transaction: &rusqlite::Transaction<'_>,
    new: &Approval,
) -> rusqlite::Result<Option<Box<Approval>>> {
    let mut select = transaction.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM approvals
         WHERE tenant = ?1 AND user = ?2 AND tool = ?3 AND digest = ?4 AND runs = 1 ORDER BY number DESC"
    ))?;
    let mut rows = select.query_map(
        params![new.caller.tenant.as_str(), new.caller.user.as_str(), new.tool, new.arguments_sha256],
        approval,
    )?;
    // Another credential of the same person may have asked for the same in between.
    rows.find(|row| row.as_ref().map_or(true, |row| row.is_of(&new.caller)))
        .transpose()
        .map(|row| row.map(Box::new))
}

fn approval(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let time = |index| -> rusqlite::Result<Option<Timestamp>> {
        Ok(row.get::<_, Option<u64>>(index)?.map(Timestamp::from_millis))
    };
    let request: Approval = read(row, 0)?.ok_or_else(|| unreadable(0, "there is no request".into()))?;
    Ok(Approval {
        state: state(row, 1)?,
        decided: time(2)?,
        decided_by: read(row, 3)?,
        reason: row.get(4)?,
        ended: time(5)?,
        outcome: read(row, 6)?,
        delivered: row.get(7)?,
        ..request
    })
}

fn state(row: &Row<'_>, index: usize) -> rusqlite::Result<ApprovalState> {
    row.get_ref(index)?.as_str()?.parse().map_err(|error: String| unreadable(index, error.into()))
}

pub(super) fn read<T: DeserializeOwned>(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<T>> {
    let text = row.get_ref(index)?.as_str_or_null()?;
    text.map(serde_json::from_str).transpose().map_err(|error| unreadable(index, error.into()))
}

fn unreadable(index: usize, error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, error)
}

pub(super) fn written(value: &impl Serialize) -> Result<String, RegistryError> {
    serde_json::to_string(value).map_err(|error| RegistryError::Invalid(error.to_string()))
}
