//! A person's approval of one exact call.

use std::{fmt, future::Future, pin::Pin};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    call::Proof,
    caller::{Caller, Tier},
    config::security_context::OPERATOR_CONTEXT,
    id::{ApprovalId, CallId, TenantId, UserId},
    label::{Label, TrustClass},
    nearest::suggestion,
    outcome::Passed,
    permit::Grant,
    redact,
    time::Timestamp,
    tool::ToolSpec,
    violation::Violation,
};

/// Why a call needs a person. A call may have several reasons; one approval answers them all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    pub by: Asker,
    /// Which rule asks and where it is set.
    pub rule: String,
    /// What the rule's author wants the approver to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Asker {
    /// The tool's own rule.
    Tool,
    /// The caller's security context.
    Context,
    /// A Cedar policy.
    Policy,
    /// What the session has read.
    Labels,
}

/// Where a request stands. Everything but `Pending` and `Approved` is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalState {
    Pending,
    /// A person agreed; it runs now, or as soon as the node is up again.
    Approved,
    Rejected,
    /// Nobody decided in time.
    Expired,
    /// The requester took it back, or what was approved is no longer what would run.
    Cancelled,
    /// It ran, and its result is there.
    Executed,
    /// It ran and failed, or nobody can know whether it ran.
    Failed,
}

impl ApprovalState {
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Approved,
        Self::Rejected,
        Self::Expired,
        Self::Cancelled,
        Self::Executed,
        Self::Failed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Executed => "executed",
            Self::Failed => "failed",
        }
    }

    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Approved)
    }
}

impl fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ApprovalState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let states = Self::ALL.map(Self::as_str);
            let close = suggestion(text, states);
            format!("`{text}` is no state of an approval (they are {}){close}", states.join(", "))
        })
    }
}

/// A request for a person's approval, with everything that person needs to see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub id: ApprovalId,
    /// What is to happen, as the assistant tools name it: `intent:` and a UUID.
    pub intent: String,
    pub state: ApprovalState,
    /// The call that runs when a person agrees; for a request without one, the call that filed it.
    pub call: CallId,
    /// Whether anything runs when a person agrees. A request filed by `tool.approval-request` only asks.
    pub runs: bool,
    pub caller: Caller,
    /// The tool's own name.
    pub tool: String,
    pub title: String,
    /// The name the caller used, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_as: Option<String>,
    /// Where one open request is shown, complete and exact: these run, or nothing does. In lists, and once it is over,
    /// as the audit log has them.
    pub arguments: Map<String, Value>,
    /// Whether these are less than what was asked.
    #[serde(default)]
    pub arguments_cut: bool,
    /// Of all of them, as JSON.
    #[serde(default)]
    pub arguments_bytes: u64,
    pub arguments_sha256: String,
    /// Of a signed call: what its signer can't deny.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<Preview>,
    /// Why a person is asked.
    pub asks: Vec<Ask>,
    /// How far what the session has read may be trusted, sorted.
    pub labels: Vec<TrustClass>,
    /// Where that came from, as far as it is remembered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<Label>,
    /// The version of the rules that decided.
    pub policy_version: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<Caller>,
    /// Why a person said no, or what they remarked when they agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ApprovalOutcome>,
    /// The requester has had the outcome.
    #[serde(default)]
    pub delivered: bool,
    /// The latest decisions about the same tool for the same user; filled where one request is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub similar: Vec<PastDecision>,
}

impl Approval {
    /// Nothing more will happen to it.
    pub fn is_settled(&self) -> bool {
        self.state.is_final() || (self.state == ApprovalState::Approved && !self.runs)
    }

    /// Whether `caller` is who asked: the same person with the same credential. A new connection of theirs is no
    /// other caller.
    pub fn is_of(&self, caller: &Caller) -> bool {
        let own = &self.caller;
        (&own.tenant, &own.user, own.tier, &own.context, &own.credential)
            == (&caller.tenant, &caller.user, caller.tier, &caller.context, &caller.credential)
    }

    /// As lists show it, and as it is kept once it is over: with what the audit log has of the arguments, and without
    /// what an approver is shown beside them.
    #[must_use]
    pub fn summary(&self) -> Self {
        let arguments = match self.arguments_cut {
            true => self.arguments.clone(),
            false => redact::arguments(&self.arguments),
        };
        Self {
            arguments_cut: self.arguments_cut || arguments != self.arguments,
            arguments,
            preview: None,
            read: Vec::new(),
            similar: Vec::new(),
            ..self.clone()
        }
    }

    /// Without what only approvers may see: the preview shows content that the requester may have no right to read.
    #[must_use]
    pub fn for_requester(mut self) -> Self {
        self.preview = None;
        self.similar.clear();
        self
    }

    /// The answer at once of a call that waits for a person.
    pub fn envelope(&self) -> Value {
        json!({
            "pendingApproval": true,
            "intentId": self.intent,
            "approvalRequestId": self.id,
            "state": ApprovalState::Pending,
            "toolId": self.tool,
            "expiresAt": self.expires,
            "hint": format!(
                "nothing has run: a person must agree first. Make exactly the same call again later to get its \
                 result, or look at GET /v1/approvals/{} or `aegis approvals wait {}`{}",
                self.id,
                self.id,
                self.way_out().map_or_else(String::new, |way| format!(". {way}")),
            ),
        })
    }

    /// What an operator can do about a request of their own, which nobody but another approver can decide.
    pub fn way_out(&self) -> Option<String> {
        let Caller { tier, context, .. } = &self.caller;
        (*tier == Tier::Operator && context.as_str() == OPERATOR_CONTEXT).then(|| {
            format!(
                "You asked as the operator, and whoever asks can't approve: let another approver decide, or take it \
                 back with `aegis approvals cancel {}` and make the call in an agent's context (`--context NAME`), \
                 which you may approve",
                self.id
            )
        })
    }
}

/// What came of an approved call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum ApprovalOutcome {
    /// The tool ran. `failure` is set when it could not do what was asked; `value` is then the failure object.
    Ran {
        value: Value,
        /// The answer as an object, where `value` is a text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        label: Label,
        /// The result of an MCP server, for clients of MCP.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        passed: Option<Passed>,
    },
    /// There is no answer: it did not run, or ran and its answer can't be had.
    Refused { violation: Violation },
}

/// What a call would do, in the form a person can judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Preview {
    /// A unified diff against the file as it was when the question was asked.
    Diff { path: String, text: String, cut: bool },
    /// The program and its arguments, quoted as a shell would want them.
    Command { line: String },
    /// Why there is no preview although the tool has one.
    Unavailable { reason: String },
}

/// What was decided before about something alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastDecision {
    pub id: ApprovalId,
    pub state: ApprovalState,
    pub decided: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<UserId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// It was about the very same arguments.
    pub same_arguments: bool,
}

/// A question that an approver has settled for a while. A row that people can see and take back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// `standing:` and a UUID.
    pub id: String,
    pub tenant: TenantId,
    pub user: UserId,
    pub tool: String,
    /// Argument → what its value must be.
    pub arguments: Map<String, Value>,
    /// Whether arguments that are not named must be absent. Else they may have any value.
    #[serde(default)]
    pub only_named: bool,
    /// Whether it also answers questions asked because of what the session has read.
    pub covers_labels: bool,
    pub until: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub created: Timestamp,
    pub created_by: Caller,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_by: Option<Caller>,
}

pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Shows what a call would do. What it reads, it reads within the same bounds as the call itself.
pub trait Previews: Send + Sync + fmt::Debug {
    fn preview<'a>(
        &'a self,
        caller: &'a Caller,
        grant: &'a Grant,
        tool: &'a ToolSpec,
        arguments: &'a Map<String, Value>,
    ) -> Pending<'a, Option<Preview>>;
}

/// What a tool asks of a person, with no call attached.
#[derive(Debug, Clone)]
pub struct Question {
    /// The tool call that asks.
    pub call: CallId,
    pub tool: String,
    pub title: String,
    /// An earlier request to look up instead, by its intent.
    pub intent: Option<String>,
    pub arguments: Map<String, Value>,
}

/// Where tools file questions for people. The plane answers, as with [`crate::tool::Directory`].
pub trait Desk: Send + Sync {
    /// Files the question, or finds the caller's own one of that intent. `None` when there is no such intent.
    fn ask<'a>(
        &'a self,
        caller: &'a Caller,
        question: Question,
    ) -> Pending<'a, Result<Option<Approval>, Violation>>;
}
