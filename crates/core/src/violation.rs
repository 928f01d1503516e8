//! Why a call was refused. Each kind has a page under `errors/`.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

macro_rules! violation_kinds {
    ($($(#[$doc:meta])* $name:ident: $layer:ident $status:literal $code:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum ViolationKind {
            $($(#[$doc])* $name,)*
        }

        impl ViolationKind {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            pub fn layer(self) -> Layer {
                match self { $(Self::$name => Layer::$layer,)* }
            }

            pub fn http_status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            pub fn jsonrpc_code(self) -> i64 {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    Identity,
    Contract,
    Policy,
    Routing,
    Node,
}

violation_kinds! {
    /// No credential, or none that this node knows.
    Unauthenticated: Identity 401 -32000,
    /// The credential's time has run out.
    CredentialExpired: Identity 401 -32000,
    /// An operator took the credential back.
    CredentialRevoked: Identity 403 -32000,
    /// An envelope that can't be read, or names no tool.
    MalformedEnvelope: Contract 400 -32600,
    /// The signature does not verify, is stale, or was seen before.
    SignatureVerificationFailed: Identity 401 -32000,
    /// The token in the envelope was not made here, or is not this session's.
    TokenInvalid: Identity 401 -32000,
    /// The session's time has run out.
    SessionExpired: Identity 401 -32000,
    /// The session was revoked.
    SessionInactive: Identity 403 -32000,
    /// The workload is not enrolled, or not for this.
    AttestationFailed: Identity 401 -32000,
    /// What was named belongs to another tenant.
    TenantMismatch: Policy 403 -32000,
    /// A required argument is missing, an unknown one is there, or one has the wrong type.
    InvalidArguments: Contract 422 -32602,
    /// The request itself can't be read.
    MalformedRequest: Contract 400 -32600,
    /// What the request names is not there.
    UnknownName: Contract 404 -32602,
    /// The state of things does not allow it.
    Conflict: Contract 409 -32600,
    /// The request is larger than the node takes.
    RequestTooLarge: Contract 413 -32600,
    /// No tool of that name is registered.
    ToolNotFound: Routing 403 -32000,
    /// The tool's definition waits for an operator.
    ToolQuarantined: Routing 403 -32000,
    /// The caller's context or tier does not include the tool.
    ToolNotAllowed: Policy 403 -32000,
    /// The tool is on the context's deny list.
    ToolExplicitlyDenied: Policy 403 -32000,
    RateLimitExceeded: Policy 403 -32000,
    PathOutsideBoundary: Policy 403 -32000,
    PathTraversalAttempt: Policy 403 -32000,
    DomainNotAllowed: Policy 403 -32000,
    CommandNotAllowed: Policy 403 -32000,
    SubcommandNotAllowed: Policy 403 -32000,
    /// The answer is larger than the context lets through.
    OutputSizeLimitExceeded: Policy 403 -32000,
    ConcurrentExecLimitExceeded: Policy 403 -32000,
    /// A command was to run, or ran, longer than the node lets any.
    ExecTimeoutCeilingExceeded: Policy 403 -32000,
    /// A Cedar policy of the operator forbids the call.
    PolicyForbids: Policy 403 -32000,
    /// A person said no.
    ApprovalRejected: Policy 403 -32000,
    /// A file handle that the node did not give out, or gave to another export, or whose export has ended.
    UnauthorizedVolumeAccess: Policy 403 -32000,
    /// Nobody decided in time.
    ApprovalExpired: Policy 403 -32000,
    /// What was approved is no longer what would run: rules or labels have changed, or the credential is gone.
    ApprovalVoid: Policy 403 -32000,
    /// The request has been decided, or has ended, in another way.
    ApprovalDecided: Contract 409 -32000,
    /// There is no such request, or none that the caller may see.
    ApprovalNotFound: Contract 404 -32602,
    /// The caller may not decide this request: it is its own, or it is no approver here.
    NotAnApprover: Policy 403 -32000,
    /// The operation is for operators.
    OperatorOnly: Policy 403 -32000,
    /// More work is under way than the node takes on at once.
    Overloaded: Node 503 -32603,
    /// The call ran into the node's own time limit.
    DeadlineExceeded: Node 504 -32603,
    /// The tool is of an MCP server that does not run, and has not said yet what it offers.
    UpstreamUnavailable: Node 503 -32603,
    /// Commands can't be confined here as the node's floor demands, so none is run.
    SandboxUnavailable: Node 503 -32603,
    /// The node is stopping.
    ShuttingDown: Node 503 -32603,
    InternalError: Node 500 -32603,
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const LONGEST_MESSAGE: usize = 1000;

/// A refusal with everything a person or a model needs to do better: what happened, which rule, what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Violation {
    pub kind: ViolationKind,
    /// What happened, in one sentence.
    pub message: String,
    /// Which rule fired and where it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u64>,
}

impl Violation {
    pub fn new(kind: ViolationKind, message: impl Into<String>) -> Self {
        let mut message = message.into();
        // It may repeat what a caller sent, and goes into the record.
        if let Some((end, _)) = message.char_indices().nth(LONGEST_MESSAGE) {
            message.truncate(end);
            message.push('…');
        }
        Self { kind, message, rule: None, hint: None, retry_after_seconds: None }
    }

    #[must_use]
    pub fn rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// The machine-readable part, sent as `error.data`.
    pub fn data(&self) -> Value {
        let mut data = Map::new();
        data.insert("violation".into(), self.kind.as_str().into());
        for (name, text) in [("rule", &self.rule), ("hint", &self.hint)] {
            if let Some(text) = text {
                data.insert(name.into(), text.as_str().into());
            }
        }
        if let Some(seconds) = self.retry_after_seconds {
            data.insert("retry_after_seconds".into(), seconds.into());
        }
        Value::Object(data)
    }

    /// A JSON-RPC error object.
    pub fn to_jsonrpc(&self) -> Value {
        json!({"code": self.kind.jsonrpc_code(), "message": self.message, "data": self.data()})
    }
}
