use std::{borrow::Cow, net::IpAddr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    domain::DomainPattern,
    manifest::Findings,
    quantity::{Size, Span},
};

/// What an agent may reach.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Security {
    /// No network at all, when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
    #[serde(default)]
    pub filesystem: FilesystemPolicy,
    #[serde(default)]
    pub resources: Resources,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkPolicy {
    #[serde(default)]
    pub mode: NetworkMode,
    /// Domains and networks: `example.org`, `*.example.org`, `10.0.0.0/8`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowlist: Vec<NetworkTarget>,
    /// Refused even when the allowlist has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denylist: Vec<NetworkTarget>,
}

/// What the two lists mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// Only what the allowlist has.
    #[default]
    Allow,
    /// All but what the denylist has.
    Deny,
    /// No network interface.
    None,
}

/// A domain pattern, an address or a network in CIDR notation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum NetworkTarget {
    Domain(DomainPattern),
    Network { address: IpAddr, prefix: u8 },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no domain or network: write example.org, *.example.org or 10.0.0.0/8")]
pub struct BadNetworkTarget(String);

impl TryFrom<String> for NetworkTarget {
    type Error = BadNetworkTarget;

    fn try_from(text: String) -> Result<Self, BadNetworkTarget> {
        let (address, prefix) = text.split_once('/').map_or((text.as_str(), None), |(a, p)| (a, Some(p)));
        if let Ok(address) = address.parse::<IpAddr>() {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            return match prefix.map(str::parse::<u8>) {
                None => Ok(Self::Network { address, prefix: longest }),
                Some(Ok(prefix)) if prefix <= longest => Ok(Self::Network { address, prefix }),
                Some(_) => Err(BadNetworkTarget(text)),
            };
        }
        // `1.2.3.400` would pass as a name of four labels.
        let numeric = address.split('.').all(|label| label.bytes().all(|b| b.is_ascii_digit()));
        if prefix.is_some() || numeric {
            return Err(BadNetworkTarget(text));
        }
        DomainPattern::parse(&text).map(Self::Domain).map_err(|_| BadNetworkTarget(text))
    }
}

impl From<NetworkTarget> for String {
    fn from(target: NetworkTarget) -> Self {
        match target {
            NetworkTarget::Domain(domain) => domain.to_string(),
            NetworkTarget::Network { address, prefix } => format!("{address}/{prefix}"),
        }
    }
}

impl JsonSchema for NetworkTarget {
    fn schema_name() -> Cow<'static, str> {
        "NetworkTarget".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "minLength": 1, "description": "example.org, *.example.org or 10.0.0.0/8"})
    }
}

/// Which files it may touch, as globs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilesystemPolicy {
    /// What it may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// What it may write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Nothing can be written, whatever the volumes say.
    #[serde(default)]
    pub read_only: bool,
}

/// How much it may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Resources {
    /// Thousandths of a processor.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub cpu: u32,
    pub memory: Size,
    pub disk: Size,
    /// The whole run, 1 hour at most; 30 minutes when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
}

impl Default for Resources {
    fn default() -> Self {
        Self { cpu: 1000, memory: Size(512 << 20), disk: Size(1 << 30), timeout: None }
    }
}

impl Resources {
    /// How long the whole run may take.
    pub fn wall_clock(&self) -> Span {
        self.timeout.unwrap_or(Span::seconds(1800))
    }
}

impl Security {
    /// `None` when there is no network block.
    pub fn network_mode(&self) -> NetworkMode {
        self.network.as_ref().map_or(NetworkMode::None, |network| network.mode)
    }

    pub(super) fn check(&self, at: &str, findings: &mut Findings) {
        if let Some(network) = &self.network {
            let unread = match network.mode {
                NetworkMode::None if !network.allowlist.is_empty() => Some("allowlist"),
                NetworkMode::None if !network.denylist.is_empty() => Some("denylist"),
                NetworkMode::Deny if !network.allowlist.is_empty() => Some("allowlist"),
                _ => None,
            };
            if let Some(list) = unread {
                let mode = if network.mode == NetworkMode::None { "none" } else { "deny" };
                findings.warning(
                    format!("{at}/network/{list}"),
                    format!("`mode: {mode}` does not look at `{list}`"),
                );
            }
        }
        for (list, globs) in [("read", &self.filesystem.read), ("write", &self.filesystem.write)] {
            for (index, glob) in globs.iter().enumerate() {
                if let Err(error) = globset::Glob::new(glob) {
                    findings.error(
                        format!("{at}/filesystem/{list}/{index}"),
                        format!("this is no glob: {}", error.kind()),
                    );
                }
            }
        }
        for (member, size) in [("memory", self.resources.memory), ("disk", self.resources.disk)] {
            if size.0 == 0 {
                findings.error(format!("{at}/resources/{member}"), "must be more than 0");
            }
        }
        if let Some(timeout) = self.resources.timeout {
            if timeout > Span::seconds(3600) {
                findings
                    .error(format!("{at}/resources/timeout"), format!("{timeout} is too long; 1h at most"));
            } else if timeout.0.is_zero() {
                findings.error(format!("{at}/resources/timeout"), "must be more than 0");
            }
        }
    }
}
