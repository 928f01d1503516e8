//! Domain events. They tell subscribers what happens; the record of what happened is the audit log, which the
//! plane writes itself.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    id::{CallId, TenantId},
    time::Timestamp,
};

macro_rules! event_names {
    ($($variant:ident = $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        pub enum EventName {
            $(#[serde(rename = $name)] $variant,)*
        }

        impl EventName {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

event_names! {
    InvocationRequested = "MCPToolEvent::InvocationRequested",
    InvocationCompleted = "MCPToolEvent::InvocationCompleted",
    InvocationFailed = "MCPToolEvent::InvocationFailed",
    ToolPolicyViolation = "MCPToolEvent::ToolPolicyViolation",
    FileRead = "StorageEvent::FileRead",
    FileWritten = "StorageEvent::FileWritten",
    FileDeleted = "StorageEvent::FileDeleted",
    FileRenamed = "StorageEvent::FileRenamed",
    AttributesChanged = "StorageEvent::AttributesChanged",
    FileLookedAt = "StorageEvent::FileLookedAt",
    DirectoryCreated = "StorageEvent::DirectoryCreated",
    DirectoryListed = "StorageEvent::DirectoryListed",
    TreeSearched = "StorageEvent::TreeSearched",
    PathTraversalBlocked = "StorageEvent::PathTraversalBlocked",
    QuotaExceeded = "StorageEvent::QuotaExceeded",
    UnauthorizedVolumeAccess = "StorageEvent::UnauthorizedVolumeAccess",
    VolumeExported = "StorageEvent::VolumeExported",
    ExportEnded = "StorageEvent::ExportEnded",
    PolicyViolationBlocked = "SealEvent::PolicyViolationBlocked",
    SignatureVerificationFailed = "SealEvent::SignatureVerificationFailed",
    AttestationCompleted = "SealEvent::AttestationCompleted",
    AttestationFailed = "SealEvent::AttestationFailed",
    SessionRevoked = "SealEvent::SessionRevoked",
    ApprovalRequested = "ApprovalEvent::Requested",
    ApprovalDecided = "ApprovalEvent::Decided",
    ApprovalExpired = "ApprovalEvent::Expired",
    ApprovalEnded = "ApprovalEvent::Ended",
    CommandExecutionStarted = "CommandExecutionEvent::CommandExecutionStarted",
    CommandExecutionCompleted = "CommandExecutionEvent::CommandExecutionCompleted",
    CommandExecutionFailed = "CommandExecutionEvent::CommandExecutionFailed",
    CommandPolicyViolation = "CommandExecutionEvent::CommandPolicyViolation",
    EgressConnected = "EgressEvent::Connected",
    EgressRefused = "EgressEvent::Refused",
    ConfigReloaded = "NodeEvent::ConfigReloaded",
    ConfigRejected = "NodeEvent::ConfigRejected",
}

/// What a route reports. The plane adds who, when and for which call.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    pub name: EventName,
    pub detail: Map<String, Value>,
}

impl Event {
    pub fn new(name: EventName) -> Self {
        Self { name, detail: Map::new() }
    }

    #[must_use]
    pub fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(member.to_owned(), value.into());
        self
    }
}

/// An event as subscribers see it.
#[derive(Debug, Clone, Serialize)]
pub struct Announcement {
    pub time: Timestamp,
    /// `None` for events of the node itself, which only operators see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    #[serde(flatten)]
    pub event: Event,
}
