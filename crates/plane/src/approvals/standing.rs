//! Approvals that stand for a while: made by an approver, seen and taken back by approvers.

use std::{sync::Arc, time::Duration};

use aegis_core::{
    Caller, Timestamp, Violation, ViolationKind,
    approval::Standing,
    id::{TenantId, UserId},
    record::NodeRecord,
};
use aegis_gates::approval::ArgumentPattern;
use serde_json::{Map, Value};

use super::{
    Approvals, LONGEST_REASON,
    rights::{no_approver, not_for_oneself},
    unusable,
};
use crate::pipeline::Plane;

/// The longest that one stands.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// What an approver settles: this tool, with arguments like these, for this user, until then.
#[derive(Debug, Clone)]
pub struct NewStanding {
    pub tenant: TenantId,
    pub user: UserId,
    /// A tool's name or alias; no pattern.
    pub tool: String,
    /// As [`ArgumentPattern`] reads it. Empty: any arguments.
    pub arguments: Map<String, Value>,
    pub until: Timestamp,
    /// Whether it also answers questions asked because of what a session has read. They are asked because the agent
    /// may be following a stranger's instructions, so this is off unless said.
    pub covers_labels: bool,
    pub note: Option<String>,
}

impl Approvals {
    /// Settles a question for a while: calls like it run without asking.
    pub async fn always(&self, new: NewStanding, approver: &Caller) -> Result<Standing, Violation> {
        let plane = self.plane()?;
        if !self.is_approver_of(&new.tenant, approver) {
            return Err(no_approver(approver, &new.tenant));
        }
        not_for_oneself(approver, &new.tenant, &new.user)?;
        let Some(tool) = plane.catalog().resolve(&new.tool) else {
            return Err(invalid(format!("there is no tool called `{}`", new.tool)));
        };
        let pattern = ArgumentPattern::parse(&new.arguments).map_err(|error| invalid(error.to_string()))?;
        pattern.check(&tool).map_err(|error| invalid(error.to_string()))?;
        let now = Timestamp::now();
        if new.until <= now || new.until > now.plus(LONGEST) {
            return Err(invalid("a standing approval ends in the future, within a year".into()));
        }
        if new.note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_REASON) {
            return Err(invalid(format!("a note has at most {LONGEST_REASON} characters")));
        }
        let standing = Standing {
            id: format!("standing:{}", uuid::Uuid::now_v7()),
            tenant: new.tenant,
            user: new.user,
            tool: tool.name.to_string(),
            arguments: new.arguments,
            covers_labels: new.covers_labels,
            until: new.until,
            note: new.note,
            created: now,
            created_by: approver.clone(),
            revoked: None,
            revoked_by: None,
        };
        let settling = {
            let plane = Arc::clone(&plane);
            async move { plane.approvals().settle(&plane, standing).await }
        };
        seen_through(&plane, settling).await
    }

    async fn settle(&self, plane: &Plane, standing: Standing) -> Result<Standing, Violation> {
        // Written down first: what is in force has been recorded.
        plane.note(record("approval-standing", &standing.created_by, &standing)).await?;
        self.registry.add_standing(standing.clone()).await.map_err(|error| unusable(&error))?;
        self.load_standing().await?;
        Ok(standing)
    }

    /// The newest first, with those that are over or revoked.
    pub async fn standing(
        &self,
        tenant: Option<&TenantId>,
        limit: usize,
    ) -> Result<Vec<Standing>, Violation> {
        self.registry.list_standing(tenant, limit).await.map_err(|error| unusable(&error))
    }

    /// Takes a standing approval back: the next such call asks again.
    pub async fn revoke_standing(&self, id: &str, approver: &Caller) -> Result<Standing, Violation> {
        let plane = self.plane()?;
        let all = self.standing(None, usize::MAX).await?;
        let known = all.into_iter().find(|standing| standing.id == id);
        let Some(standing) = known.filter(|standing| self.is_approver_of(&standing.tenant, approver)) else {
            let shown: String = id.chars().take(80).collect();
            return Err(Violation::new(
                ViolationKind::ApprovalNotFound,
                format!("there is no standing approval `{shown}`"),
            )
            .hint("`aegis approvals standing` shows those there are"));
        };
        let revoking = {
            let (plane, approver) = (Arc::clone(&plane), approver.clone());
            async move { plane.approvals().take_back(&plane, standing, &approver).await }
        };
        seen_through(&plane, revoking).await
    }

    async fn take_back(
        &self,
        plane: &Plane,
        standing: Standing,
        approver: &Caller,
    ) -> Result<Standing, Violation> {
        if standing.revoked.is_some() {
            // Whoever revoked it may not have come so far as to put it out of force.
            self.load_standing().await?;
            return Ok(standing);
        }
        let revoked =
            self.registry.revoke_standing(&standing.id, approver).await.map_err(|error| unusable(&error))?;
        self.load_standing().await?;
        let revoked = revoked.unwrap_or(standing);
        plane.note(record("approval-standing-revoked", approver, &revoked)).await?;
        Ok(revoked)
    }

    /// Puts the rows of the registry in force.
    pub(super) async fn load_standing(&self) -> Result<(), Violation> {
        // One at a time: an older look must not replace what a newer one found.
        let _turn = self.standing_turn.lock().await;
        let rows = self.standing(None, usize::MAX).await?;
        self.gate.replace(rows);
        Ok(())
    }
}

/// Ends what was begun, also when the connection that asked for it is gone.
async fn seen_through<T: Send + 'static>(
    plane: &Plane,
    work: impl Future<Output = Result<T, Violation>> + Send + 'static,
) -> Result<T, Violation> {
    plane
        .work
        .spawn(work)
        .await
        .unwrap_or_else(|error| Err(Violation::new(ViolationKind::InternalError, error.to_string())))
}

fn record(action: &str, by: &Caller, standing: &Standing) -> NodeRecord {
    let mut detail = Map::new();
    detail.insert("standing".into(), standing.id.as_str().into());
    detail.insert("tenant".into(), standing.tenant.as_str().into());
    detail.insert("user".into(), standing.user.as_str().into());
    detail.insert("tool".into(), standing.tool.as_str().into());
    detail.insert("arguments".into(), Value::Object(aegis_core::redact::arguments(&standing.arguments)));
    detail.insert("covers_labels".into(), standing.covers_labels.into());
    detail.insert("until".into(), standing.until.to_string().into());
    NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller: Some(by.clone()), detail }
}

fn invalid(message: String) -> Violation {
    Violation::new(ViolationKind::MalformedRequest, message)
        .hint("name a tool, arguments it has, a user and a time: see docs on standing approvals")
}
