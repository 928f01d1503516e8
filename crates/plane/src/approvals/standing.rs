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

/// Which arguments a standing approval is for. Nobody covers all of them by saying nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Covered {
    Any,
    /// Those like this pattern, as [`ArgumentPattern`] reads it; arguments that it does not name may be anything.
    Like(Map<String, Value>),
    /// The same, and no arguments beside those that it names.
    Only(Map<String, Value>),
}

/// What an approver settles: this tool, with such arguments, for this user, until then.
#[derive(Debug, Clone)]
pub struct NewStanding {
    pub tenant: TenantId,
    pub user: UserId,
    /// A tool's name or alias; no pattern.
    pub tool: String,
    pub arguments: Covered,
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
            let close = plane.catalog().nearest(&new.tool);
            let close = close.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            return Err(Violation::new(
                ViolationKind::UnknownName,
                format!("there is no tool called `{}`{close}", new.tool),
            )
            .hint("`aegis tools list` shows those there are"));
        };
        let (arguments, only_named) = match new.arguments {
            Covered::Any => (Map::new(), false),
            Covered::Like(named) if named.is_empty() => {
                return Err(invalid(
                    "a pattern that names no argument covers every call of the tool: say so with any_arguments"
                        .into(),
                ));
            }
            Covered::Like(named) => (named, false),
            Covered::Only(named) => (named, true),
        };
        let pattern = ArgumentPattern::parse(&arguments).map_err(|error| invalid(error.to_string()))?;
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
            arguments,
            only_named,
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

    /// The newest first: those in force, or also those that are over or revoked and still kept.
    pub async fn standing(
        &self,
        tenant: Option<&TenantId>,
        all: bool,
        limit: usize,
    ) -> Result<Vec<Standing>, Violation> {
        self.registry.list_standing(tenant, all, limit).await.map_err(|error| unusable(&error))
    }

    /// Takes a standing approval back: the next such call asks again.
    pub async fn revoke_standing(&self, id: &str, approver: &Caller) -> Result<Standing, Violation> {
        let plane = self.plane()?;
        let known = self.registry.find_standing(id).await.map_err(|error| unusable(&error))?;
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
        // Written down first: whoever tries again after a failure may find it revoked already.
        plane.note(record("approval-standing-revoked", approver, &standing)).await?;
        let revoked =
            self.registry.revoke_standing(&standing.id, approver).await.map_err(|error| unusable(&error))?;
        self.load_standing().await?;
        Ok(revoked.unwrap_or(standing))
    }

    /// Puts the rows of the registry in force.
    pub(super) async fn load_standing(&self) -> Result<(), Violation> {
        // One at a time: an older look must not replace what a newer one found.
        let _turn = self.standing_turn.lock().await;
        let rows = self.standing(None, false, usize::MAX).await?;
        self.gate.replace(rows);
        Ok(())
    }
}

/// What a standing approval is for, so that whoever made it sees what they said.
pub fn covers(standing: &Standing) -> String {
    let Standing { tool, user, tenant, until, .. } = standing;
    let arguments = match ArgumentPattern::parse(&standing.arguments) {
        Err(error) => format!("with arguments that can't be read ({error})"),
        Ok(_) if standing.only_named && standing.arguments.is_empty() => "without arguments".to_owned(),
        Ok(_) if standing.arguments.is_empty() => "with any arguments whatever".to_owned(),
        Ok(pattern) if standing.only_named => format!("where {pattern}, and no other arguments"),
        Ok(pattern) => format!("where {pattern}, whatever the other arguments are"),
    };
    let labels = match standing.covers_labels {
        true => "also when it is asked because of what the session has read",
        false => "but not when it is asked because of what the session has read",
    };
    format!("every call of {tool} by {user} of tenant {tenant} {arguments}, until {until}, {labels}")
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
    detail.insert("only_named".into(), standing.only_named.into());
    detail.insert("covers_labels".into(), standing.covers_labels.into());
    detail.insert("until".into(), standing.until.to_string().into());
    NodeRecord { time: Timestamp::now(), action: action.to_owned(), caller: Some(by.clone()), detail }
}

fn invalid(message: String) -> Violation {
    Violation::new(ViolationKind::MalformedRequest, message)
        .hint("name a tool, arguments it has, a user and a time: see docs on standing approvals")
}
