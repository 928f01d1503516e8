//! The bodies of audit entries. The store chains them; it does not look inside.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    call::Proof,
    caller::Caller,
    id::{ApprovalId, CallId},
    label::Label,
    time::Timestamp,
    verdict::GateVerdict,
};

/// One entry of the audit log. The order of members is the order on disk and never changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "lowercase")]
pub enum Entry {
    /// A mutating call is about to take effect. Durable before the effect.
    Intent(Intent),
    /// A call has ended, one way or another. Exactly one per call.
    Call(Box<CallRecord>),
    /// Something an operator did, or that befell the node.
    Node(NodeRecord),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Intent {
    pub time: Timestamp,
    pub call: CallId,
    pub caller: Caller,
    pub tool: String,
    /// As in the record of the call.
    pub arguments_sha256: String,
    /// The approval that this intent uses up, in the transaction that writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallRecord {
    pub time: Timestamp,
    pub call: CallId,
    pub caller: Caller,
    /// The tool's own name.
    pub tool: String,
    /// The name the caller used, where it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_as: Option<String>,
    /// Redacted: secrets masked, long text as digest and preview.
    pub arguments: Map<String, Value>,
    /// Over the complete arguments. Where the log does not show them whole it is keyed, as `hmac:…`: equal for the same
    /// arguments, and no help in guessing what is hidden.
    pub arguments_sha256: String,
    pub verdicts: Vec<GateVerdict>,
    pub result: CallResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Label>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    pub micros: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum CallResult {
    /// The tool did what was asked.
    Done { bytes: u64 },
    /// The tool ran and could not.
    Failed { kind: String, message: String },
    /// A gate said no, or the node could not run it.
    Refused {
        kind: String,
        message: String,
        /// Which rule fired, where there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// The node died between intent and outcome; whether the effect happened is not known.
    Unknown,
}

impl CallResult {
    pub fn status(&self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Failed { .. } => "failed",
            Self::Refused { .. } => "refused",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeRecord {
    pub time: Timestamp,
    /// `started`, `stopped`, `token-created`, `token-revoked`, `config-reloaded`, `context-applied`, …
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<Caller>,
    pub detail: Map<String, Value>,
}
