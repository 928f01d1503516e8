//! The rows of requests for approval.

use std::borrow::Cow;

use aegis_core::{
    Approval, ApprovalState, Caller, Label, Timestamp,
    approval::{ApprovalOutcome, PastDecision, Preview},
    config::ApprovalsConfig,
    id::ApprovalId,
};
use rusqlite::{
    OptionalExtension, Row, TransactionBehavior, params, params_from_iter,
    types::{Type, Value as SqlValue},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    RegistryError,
    approvals::{ApprovalFilter, ApprovalPage, Decided, DecisionRow, Limit, Parked},
    store::Store,
};

const COLUMNS: &str = "request, state, decided, decided_by, reason, ended, outcome, delivered";
/// Outcomes may be large, and stand before whatever comes after them in a row.
const LISTED: &str = "request, state, decided, decided_by, reason, ended, NULL, 0";

/// The most rows one look returns.
pub(super) const MOST_ROWS: usize = 10_000;
/// And the most of what is written in them, unless the first row alone is larger.
const MOST_PAGE_BYTES: usize = 1 << 20;

/// Rows deleted in one go, so that nobody waits long for the store; fewer where their size is what counts.
const PRUNED_AT_ONCE: u64 = 100;
const LARGE_PRUNED_AT_ONCE: u64 = 10;
/// Results are kept whole, so what has ended in one tenant is bounded by its size too.
const MOST_KEPT_BYTES: u64 = 256 << 20;

/// What is kept in full only while a request is open.
#[derive(Serialize, Deserialize)]
pub(super) struct Body<'a> {
    arguments: Cow<'a, Map<String, Value>>,
    preview: Cow<'a, Option<Preview>>,
    read: Cow<'a, [Label]>,
}

impl<'a> Body<'a> {
    pub(super) fn of(approval: &'a Approval) -> Self {
        Self {
            arguments: Cow::Borrowed(&approval.arguments),
            preview: Cow::Borrowed(&approval.preview),
            read: Cow::Borrowed(approval.read.as_slice()),
        }
    }

    fn onto(self, summary: Approval) -> Approval {
        Approval {
            arguments: self.arguments.into_owned(),
            arguments_cut: false,
            preview: self.preview.into_owned(),
            read: self.read.into_owned(),
            ..summary
        }
    }
}

impl Store {
    pub(super) fn park(
        &mut self,
        new: &Approval,
        config: &ApprovalsConfig,
        now: Timestamp,
    ) -> Result<Parked, RegistryError> {
        let (request, body) = (written(&new.summary())?, written(&Body::of(new))?);
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
                        if !known.delivered
                            && known.ended.is_some_and(|ended| now < ended.plus(config.keep.0)) =>
                    {
                        transaction
                            .prepare_cached("UPDATE approvals SET delivered = 1 WHERE id = ?1")?
                            .execute([known.id.as_str()])?;
                        return Ok(Parked::Ended(known));
                    }
                    _ => {}
                }
            }
            if let Some(limit) = reached(&transaction, new, config, request.len() + body.len())? {
                return Ok(Parked::Full(limit));
            }
            transaction
                .prepare_cached(
                    "INSERT INTO approvals
                     (id, intent, tenant, user, tool, digest, runs, state, created, expires, request, recorded, bytes,
                      credential, body_bytes)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
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
                    new.caller.credential.as_str(),
                    body.len(),
                ])?;
            transaction
                .prepare_cached(
                    "INSERT INTO approval_bodies (number, body) VALUES (last_insert_rowid(), ?1)",
                )?
                .execute([&body])?;
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

    pub(super) fn whole_approval(
        &self,
        condition: &str,
        value: &str,
    ) -> Result<Option<Approval>, RegistryError> {
        let whole = |row: &Row<'_>| -> rusqlite::Result<Approval> {
            let summary = approval(row)?;
            let body = row.get_ref(8)?.as_str_or_null()?.map(serde_json::from_str::<Body<'_>>);
            let body = body.transpose().map_err(|error| unreadable(8, error.into()))?;
            Ok(match body {
                Some(body) => body.onto(summary),
                None => summary,
            })
        };
        self.connection
            .prepare_cached(&format!(
                "SELECT {COLUMNS}, body FROM approvals LEFT JOIN approval_bodies USING (number) WHERE {condition}"
            ))
            .and_then(|mut select| select.query_row([value], whole).optional())
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

    pub(super) fn approvals(&self, filter: &ApprovalFilter) -> Result<ApprovalPage, RegistryError> {
        let mut wanted: Vec<(&str, SqlValue)> = Vec::new();
        let mut want = |column, text: &str| wanted.push((column, SqlValue::from(text.to_owned())));
        if let Some(state) = filter.state {
            want("state =", state.as_str());
        }
        if let Some(tenant) = filter.of.as_ref().map(|caller| &caller.tenant).or(filter.tenant.as_ref()) {
            want("tenant =", tenant.as_str());
        }
        if let Some(caller) = &filter.of {
            want("credential =", caller.credential.as_str());
        }
        if let Some(after) = &filter.after {
            // Ids begin with their time. Where the request is gone the list goes on with the next older one, and whether
            // it ever was there nobody learns.
            let older = self
                .connection
                .prepare_cached(
                    "SELECT number + (id <> ?1) FROM approvals WHERE id <= ?1 ORDER BY id DESC LIMIT 1",
                )
                .and_then(|mut select| {
                    select.query_row([after.as_str()], |row| row.get::<_, i64>(0)).optional()
                });
            let place = older.map_err(|error| self.failed(error))?.unwrap_or(0);
            wanted.push(("number <", place.into()));
        }
        let conditions: Vec<String> =
            wanted.iter().enumerate().map(|(index, (is, _))| format!("AND {is} ?{}", index + 1)).collect();
        let values = params_from_iter(wanted.into_iter().map(|(_, value)| value));
        let select = || -> rusqlite::Result<ApprovalPage> {
            let mut select = self.connection.prepare_cached(&format!(
                "SELECT {LISTED} FROM approvals WHERE true {} ORDER BY number DESC",
                conditions.join(" ")
            ))?;
            let mut rows = select.query(values)?;
            let mut page = ApprovalPage { approvals: Vec::new(), next: None };
            let mut bytes = 0;
            while let Some(row) = rows.next()? {
                let found = approval(row)?;
                // Of one credential, an operator's calls in another context are somebody else's.
                if filter.of.as_ref().is_some_and(|caller| !found.is_of(caller)) {
                    continue;
                }
                bytes += row.get_ref(0)?.as_str()?.len();
                let full = page.approvals.len() >= filter.limit.min(MOST_ROWS) || bytes > MOST_PAGE_BYTES;
                if let (true, Some(last)) = (full, page.approvals.last()) {
                    page.next = Some(last.id.clone());
                    break;
                }
                page.approvals.push(found);
            }
            Ok(page)
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

    pub(super) fn prune(&self, before: Timestamp, most_kept: u32, now: Timestamp) -> rusqlite::Result<usize> {
        let old = self
            .connection
            .prepare_cached(
                "DELETE FROM approvals WHERE number IN (SELECT number FROM approvals
                 WHERE ended < ?1 AND recorded = 1 AND NOT (state = 'rejected' AND expires > ?3)
                 ORDER BY ended LIMIT ?2)",
            )?
            .execute((before.millis(), PRUNED_AT_ONCE, now.millis()))?;
        let crowded: Vec<(String, u64)> = self
            .connection
            .prepare_cached(
                "SELECT tenant, count(*) FROM approvals WHERE ended IS NOT NULL GROUP BY tenant
                 HAVING count(*) > ?1 OR sum(bytes) > ?2",
            )?
            .query_map((most_kept, MOST_KEPT_BYTES), |row| row.try_into())?
            .collect::<rusqlite::Result<_>>()?;
        crowded.into_iter().try_fold(old, |pruned, (tenant, kept)| {
            let over = kept.saturating_sub(u64::from(most_kept)).min(PRUNED_AT_ONCE);
            // What nobody has fetched yet and a no that still holds go last: no flood of questions pushes an answer
            // out, whether it is a call's or a person's.
            let more = self
                .connection
                .prepare_cached(
                    "DELETE FROM approvals WHERE number IN (SELECT number FROM approvals
                     WHERE tenant = ?1 AND ended IS NOT NULL AND recorded = 1
                     ORDER BY (state IN ('executed', 'failed') AND delivered = 0)
                         OR (state = 'rejected' AND expires > ?3), ended LIMIT ?2)",
                )?
                .execute((tenant, if over > 0 { over } else { LARGE_PRUNED_AT_ONCE }, now.millis()))?;
            Ok(pruned + more)
        })
    }
}

/// Which bound one more request of this size would break.
fn reached(
    transaction: &rusqlite::Transaction<'_>,
    new: &Approval,
    config: &ApprovalsConfig,
    size: usize,
) -> rusqlite::Result<Option<Limit>> {
    let (all, all_bytes, own, own_bytes): (u64, u64, u64, u64) = transaction
        .prepare_cached(
            "SELECT count(*), coalesce(sum(bytes + body_bytes), 0), coalesce(sum(credential = ?2), 0),
                 coalesce(sum((bytes + body_bytes) * (credential = ?2)), 0)
             FROM approvals WHERE tenant = ?1 AND state = 'pending'",
        )?
        .query_row([new.caller.tenant.as_str(), new.caller.credential.as_str()], |row| row.try_into())?;
    let size = size as u64;
    let bounds = [
        (Limit::Caller, own + 1, u64::from(config.max_pending_per_caller)),
        (Limit::CallerBytes, own_bytes + size, config.max_pending_bytes_per_caller.0),
        (Limit::Tenant, all + 1, u64::from(config.max_pending)),
        (Limit::TenantBytes, all_bytes + size, config.max_pending_bytes.0),
    ];
    Ok(bounds.into_iter().find(|(_, would_be, most)| would_be > most).map(|(limit, ..)| limit))
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

pub(super) fn unreadable(index: usize, error: Box<dyn std::error::Error + Send + Sync>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, error)
}

pub(super) fn written(value: &impl Serialize) -> Result<String, RegistryError> {
    serde_json::to_string(value).map_err(|error| RegistryError::Invalid(error.to_string()))
}
