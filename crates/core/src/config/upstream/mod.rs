//! MCP servers that the node stands in front of.

mod check;
mod limits;
mod oauth;
mod sandbox;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) use check::check;
pub use check::{check_added, parse, suggested_name};
pub use limits::{HealthCheck, HealthMethod, RestartConfig, ServerLimits};
pub use oauth::{ClientAuthentication, Grant, OauthConfig, SubjectToken};
pub use sandbox::{MountSource, ResourceLimits, ServerMount, ServerSandbox};

use super::{SecretRef, ToolPattern};
use crate::{
    label::TrustClass,
    tool::{ApprovalRule, Mutability},
};

/// Variables of the node's own environment that every stdio server gets; it gets no others unless they are named.
pub const INHERITED_ENVIRONMENT: [&str; 9] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SHELL"];

/// An MCP server behind the node: a program that is started here, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpServer {
    /// How people and rules call it.
    #[schemars(regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$"), extend("patternErrorMessage" = "write letters, digits, `-` and `_`, at most 63"))]
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether it runs.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: bool,
    /// The program of a server that speaks on standard input and output: a path, or a name to look for in PATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub executable: Option<String>,
    /// Its arguments. Everybody on this machine can read them: secrets go to `credentials`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// The directory it starts in, as seen inside where it runs in a sandbox; an empty one of its own when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Variables that are no secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Variables of the node's own environment that it gets besides PATH, HOME, USER, LOGNAME, SHELL, LANG, LC_ALL,
    /// TZ and TMPDIR; in a sandbox the only ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherit_environment: Vec<String>,
    /// The address of a server that speaks HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// How it speaks HTTP.
    #[serde(default, skip_serializing_if = "is_default")]
    pub transport: HttpTransport,
    /// Headers that are no secrets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The tools it serves, by the names that agents use: `web.search`, or `web.*` for all that begin so. With none,
    /// whatever it offers, under its namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<ServerCapability>,
    /// Put before the names of its tools: `github` makes `create_issue` into `github.create_issue`. When left out, the
    /// server's name where it has no `capabilities`, and nothing where it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"), length(max = 64))]
    pub namespace: Option<String>,
    /// Secrets by reference: variables of a program, headers of an address. `env:NAME`, `file:/path`, `secret:name`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub credentials: BTreeMap<String, SecretRef>,
    /// How an access token for an address is had. It is sent as `Authorization: Bearer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oauth: Option<OauthConfig>,
    /// Whether all callers share one connection, or each has its own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub identity: Identity,
    /// What it takes for a tool's definition, or a change of one, to be used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trust: DefinitionTrust,
    /// What is known of its tools besides what it says itself, by its own names of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, ToolOverride>,
    /// How far what it answers can be trusted; `EXTERNAL_UNTRUSTED` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<TrustClass>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub health_check: HealthCheck,
    #[serde(default, skip_serializing_if = "is_default")]
    pub restart: RestartConfig,
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: ServerLimits,
    /// What the program may use of this machine; holds inside a sandbox.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resource_limits: ResourceLimits,
    /// Runs the program in a sandbox that sees the mounts and reaches the domains named here, and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<ServerSandbox>,
}

/// A tool, or all whose names begin alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ServerCapability {
    /// `web.search` or `web.*`.
    Name(#[schemars(with = "CapabilityName")] ToolPattern),
    /// With what else is to be said of it.
    Described(DescribedCapability),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribedCapability {
    /// `web.search` or `web.*`.
    #[schemars(with = "CapabilityName")]
    pub name: ToolPattern,
    /// No judge looks at calls. Every other gate does.
    #[serde(default)]
    pub skip_judge: bool,
}

/// How a capability is written, so that a mistake is told apart from an entry of another kind.
#[derive(JsonSchema)]
#[schemars(inline)]
struct CapabilityName(
    #[schemars(
        length(max = 128),
        regex(pattern = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?$"),
        extend("patternErrorMessage" = "write a name such as web.search, or a prefix such as web.*")
    )]
    #[allow(dead_code, reason = "only its schema is used")]
    String,
);

impl ServerCapability {
    pub fn pattern(&self) -> &ToolPattern {
        match self {
            Self::Name(pattern) => pattern,
            Self::Described(described) => &described.name,
        }
    }

    pub fn skip_judge(&self) -> bool {
        matches!(self, Self::Described(described) if described.skip_judge)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HttpTransport {
    /// Streamable HTTP, or the older way with server-sent events where the server has no other.
    #[default]
    Auto,
    StreamableHttp,
    Sse,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// One connection with one set of credentials serves every caller.
    #[default]
    Shared,
    /// Each tenant and user has a connection, with credentials of their own where references hold `{user}` or
    /// `{tenant}`, or tokens are exchanged.
    PerPrincipal,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionTrust {
    /// The definitions of the first listing are pinned as they are seen; changed ones, and tools that join later, wait for
    /// an operator.
    #[default]
    FirstUse,
    /// Those of the first listing wait for an operator as well.
    Approve,
}

/// What an operator says of one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ToolOverride {
    /// Whether it can be called at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The name that agents use instead of the server's: `web.fetch`.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"), length(max = 128))]
    pub public_name: Option<String>,
    /// What a call can change. Where the server says it, the stricter of the two holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutability: Option<ToolMutability>,
    /// Whether a person must agree to each call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<ToolApproval>,
    /// How far what it answers can be trusted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<TrustClass>,
    /// No judge looks at calls. Every other gate does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_judge: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolMutability {
    ReadOnly,
    /// Adds or changes.
    Mutating,
    /// Removes or overwrites.
    Destructive,
}

impl From<ToolMutability> for Mutability {
    fn from(said: ToolMutability) -> Self {
        match said {
            ToolMutability::ReadOnly => Self::ReadOnly,
            ToolMutability::Mutating => Self::Mutating,
            ToolMutability::Destructive => Self::Destructive,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolApproval {
    Required,
    /// Unless the capability that grants the tool says `approval: not_required`.
    RequiredByDefault,
    NotRequired,
}

impl From<ToolApproval> for ApprovalRule {
    fn from(said: ToolApproval) -> Self {
        match said {
            ToolApproval::Required => Self::Required,
            ToolApproval::RequiredByDefault => Self::RequiredByDefault,
            ToolApproval::NotRequired => Self::NotRequired,
        }
    }
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach<'a> {
    Program { executable: &'a str, args: &'a [String] },
    Address { url: &'a str, transport: HttpTransport },
}

impl McpServer {
    /// A server with nothing but a name; the rest is as it is when left out.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: String::new(),
            enabled: true,
            executable: None,
            args: Vec::new(),
            working_directory: None,
            environment: BTreeMap::new(),
            inherit_environment: Vec::new(),
            url: None,
            transport: HttpTransport::Auto,
            headers: BTreeMap::new(),
            capabilities: Vec::new(),
            namespace: None,
            credentials: BTreeMap::new(),
            oauth: None,
            identity: Identity::Shared,
            trust: DefinitionTrust::FirstUse,
            tools: BTreeMap::new(),
            label: None,
            health_check: HealthCheck::default(),
            restart: RestartConfig::default(),
            limits: ServerLimits::default(),
            resource_limits: ResourceLimits::default(),
            sandbox: None,
        }
    }

    /// `None` for a server that names neither, which no checked configuration holds.
    pub fn reach(&self) -> Option<Reach<'_>> {
        match (&self.executable, &self.url) {
            (Some(executable), _) => Some(Reach::Program { executable, args: &self.args }),
            (None, Some(url)) => Some(Reach::Address { url, transport: self.transport }),
            (None, None) => None,
        }
    }

    pub fn namespace(&self) -> Option<&str> {
        match &self.namespace {
            Some(namespace) => Some(namespace),
            None if self.capabilities.is_empty() => Some(&self.name),
            None => None,
        }
    }

    /// The names of tools that belong to it, whether or not it offers them.
    pub fn claims(&self) -> Vec<ToolPattern> {
        let mut claims: Vec<ToolPattern> =
            self.capabilities.iter().map(|capability| capability.pattern().clone()).collect();
        if claims.is_empty()
            && let Some(namespace) = self.namespace()
        {
            claims.push(ToolPattern::Prefix(format!("{namespace}.")));
        }
        for name in self.tools.values().filter_map(|said| said.public_name.as_ref()) {
            if !self.capabilities.iter().any(|capability| capability.pattern().matches(name)) {
                claims.push(ToolPattern::Exact(name.clone()));
            }
        }
        claims
    }

    /// What agents call a tool that the server calls `tool`; `None` when the node does not pass it on.
    pub fn public_name(&self, tool: &str) -> Option<String> {
        let said = self.tools.get(tool);
        if said.is_some_and(|said| said.enabled == Some(false)) {
            return None;
        }
        if let Some(name) = said.and_then(|said| said.public_name.as_ref()) {
            return Some(name.clone());
        }
        let name = match self.namespace() {
            Some(namespace) => format!("{namespace}.{tool}"),
            None => tool.to_owned(),
        };
        let is_claimed = self.capabilities.is_empty()
            || self.capabilities.iter().any(|capability| capability.pattern().matches(&name));
        is_claimed.then_some(name)
    }

    /// Whether the judge leaves calls of this tool alone.
    pub fn skips_judge(&self, tool: &str, public_name: &str) -> bool {
        let said = self.tools.get(tool).and_then(|said| said.skip_judge);
        said.unwrap_or_else(|| {
            let named = self.capabilities.iter().filter(|one| one.pattern().matches(public_name));
            // The most exact word on the tool is the last.
            named.max_by_key(|one| specificity(one.pattern())).is_some_and(ServerCapability::skip_judge)
        })
    }

    /// What a call of the tool can change. `annotated` is what the server says, which an operator can only make
    /// stricter; of a tool that nobody speaks for, the worst is assumed.
    pub fn mutability(&self, tool: &str, annotated: Option<Mutability>) -> Mutability {
        let said = self.tools.get(tool).and_then(|said| said.mutability).map(Mutability::from);
        match (said, annotated) {
            (Some(said), Some(annotated)) => said.max(annotated),
            (None, Some(Mutability::ReadOnly)) => Mutability::SaidReadOnly,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => Mutability::Destructive,
        }
    }

    /// Whether a person must agree before the tool runs.
    pub fn approval(&self, tool: &str) -> ApprovalRule {
        let said = self.tools.get(tool).and_then(|said| said.approval);
        said.map_or(ApprovalRule::MayRequire, ApprovalRule::from)
    }

    /// How far an answer of the tool can be trusted.
    pub fn trust_class(&self, tool: &str) -> TrustClass {
        let said = self.tools.get(tool).and_then(|said| said.label);
        said.or(self.label).unwrap_or(TrustClass::ExternalUntrusted)
    }

    /// Every secret that it is given.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        self.credentials.values().chain(self.oauth.iter().flat_map(OauthConfig::references))
    }
}

/// Exact names before prefixes, longer prefixes before shorter ones.
pub fn specificity(pattern: &ToolPattern) -> usize {
    match pattern {
        ToolPattern::Any => 0,
        ToolPattern::Prefix(prefix) => prefix.len(),
        ToolPattern::Exact(_) => usize::MAX,
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_yes(enabled: &bool) -> bool {
    *enabled
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
