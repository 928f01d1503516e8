//! The node's configuration: one file per section, every field documented where it is defined.

mod approvals;
mod audit;
mod egress;
mod exec;
mod limits;
mod network;
mod nfs;
mod observability;
mod policy;
mod sandbox_choice;
mod seal;
mod search;
mod secret_ref;
pub mod security_context;
mod storage;
mod tenancy;
pub mod upstream;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use approvals::ApprovalsConfig;
pub use audit::{AuditConfig, ReadDurability};
pub use egress::{EgressConfig, IpNetwork, PrivateTarget};
pub use exec::{
    CommandCeiling, EnvironmentConfig, ExecConfig, SandboxBackend, SandboxFloor, SandboxLimits,
    is_code_variable,
};
pub use limits::LimitsConfig;
pub use network::NetworkConfig;
pub use nfs::NfsConfig;
pub use observability::{ObservabilityConfig, OtlpConfig};
pub use policy::{LabelRules, PolicyConfig};
pub use sandbox_choice::{ChosenSandbox, SandboxChoice};
pub use seal::{SealConfig, TrustedKey};
pub use search::{SearchConfig, SearchEngineKind};
pub use secret_ref::{LONGEST_SECRET_NAME, SecretRef, is_secret_store_name};
pub use security_context::{Capability, DenyEntry, RateLimit, SecurityContext, ToolPattern};
pub use storage::{AccessMode, HardLinks, StorageConfig, TtlClass, VolumeConfig};
pub use tenancy::TenancyConfig;
pub use upstream::McpServer;

use crate::{
    document::{self, Diagnostic, Parsed},
    runtimes::Runtime,
};

/// The whole node configuration. Every member but the envelope has a default that is safe and works at once.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NodeConfig {
    pub api_version: ApiVersion,
    pub kind: NodeConfigKind,
    pub metadata: NodeMetadata,
    #[serde(default)]
    pub spec: NodeSpec,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub enum ApiVersion {
    #[serde(rename = "100monkeys.ai/v1")]
    V1,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
pub enum NodeConfigKind {
    NodeConfig,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeMetadata {
    /// A name for the node, shown in logs and in `aegis.system.info`.
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// What the node does. `security_contexts`, `mcp_servers` and `policy.label_rules` take effect as soon as the file is
/// saved; the rest at the next start.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeSpec {
    pub network: NetworkConfig,
    pub tenancy: TenancyConfig,
    /// What callers may do. Laid over the contexts that ship with the node; the same name replaces.
    pub security_contexts: Vec<SecurityContext>,
    /// MCP servers that the node stands in front of. Added servers (`aegis upstream add`) come on top.
    pub mcp_servers: Vec<McpServer>,
    pub seal: SealConfig,
    pub policy: PolicyConfig,
    pub approvals: ApprovalsConfig,
    pub storage: StorageConfig,
    pub egress: EgressConfig,
    pub exec: ExecConfig,
    pub web_search: SearchConfig,
    pub audit: AuditConfig,
    pub limits: LimitsConfig,
    pub observability: ObservabilityConfig,
    /// Language runtimes in addition to the standard ones.
    pub runtimes: Vec<Runtime>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            api_version: ApiVersion::V1,
            kind: NodeConfigKind::NodeConfig,
            metadata: NodeMetadata { name: "aegis".into(), description: None },
            spec: NodeSpec::default(),
        }
    }
}

impl NodeConfig {
    /// Reads a configuration file. All mistakes are reported at once, each with its place.
    pub fn parse(text: &str) -> Result<Self, Vec<Diagnostic>> {
        Self::read(text).map(|parsed| parsed.value)
    }

    /// As [`NodeConfig::parse`], with the places that whatever else there is to say about it can point at.
    pub fn read(text: &str) -> Result<Parsed<Self>, Vec<Diagnostic>> {
        let parsed = document::parse::<Self>(text)?;
        let mistakes: Vec<Diagnostic> = parsed
            .value
            .check()
            .into_iter()
            .map(|(pointer, message)| parsed.diagnostic(&pointer, message))
            .collect();
        if mistakes.is_empty() { Ok(parsed) } else { Err(mistakes) }
    }

    /// The configuration as YAML with literal secrets masked. The contexts that ship are there too, so that one can
    /// see what to change; all but the operator's, which can't be.
    pub fn to_yaml(&self) -> String {
        let mut shown = self.clone();
        shown.spec.security_contexts = self.contexts();
        shown
            .spec
            .security_contexts
            .retain(|context| context.name.as_str() != security_context::OPERATOR_CONTEXT);
        serde_json::to_value(shown).map(|value| document::to_yaml(&value)).unwrap_or_default()
    }

    /// The shipped contexts with this file's laid over them.
    pub fn contexts(&self) -> Vec<SecurityContext> {
        let mut contexts = security_context::shipped();
        for own in &self.spec.security_contexts {
            contexts.retain(|shipped| shipped.name != own.name);
            contexts.push(own.clone());
        }
        contexts
    }

    /// Rules that the shape alone can't hold, as (JSON pointer, what is wrong).
    fn check(&self) -> Vec<(String, String)> {
        let mut mistakes = security_context::check(&self.spec.security_contexts);
        mistakes.extend(self.spec.network.check());
        mistakes.extend(self.spec.limits.check());
        mistakes.extend(self.spec.approvals.check());
        mistakes.extend(self.spec.storage.check());
        mistakes.extend(self.spec.tenancy.check());
        mistakes.extend(self.spec.egress.check());
        mistakes.extend(self.spec.exec.check());
        mistakes.extend(self.spec.web_search.check());
        mistakes.extend(self.spec.seal.check());
        mistakes.extend(upstream::check(&self.spec.mcp_servers));
        mistakes.extend(self.spec.observability.check());
        mistakes
    }
}
