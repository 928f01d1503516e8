//! Who is asking. Built by a door from a credential, never from arguments.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{ContextName, ContextVersion, CredentialId, SessionId, TenantId, UserId};

/// What class of tools a credential can reach at all. A SecurityContext narrows it further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    User,
    /// Agents that an operator registered to run the platform itself.
    System,
    Operator,
}

impl Tier {
    pub const ALL: [Self; 3] = [Self::User, Self::System, Self::Operator];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::System => "system",
            Self::Operator => "operator",
        }
    }

    /// Operators reach everything; a system agent reaches user and system tools, a user only user tools.
    pub fn reaches(self, needed: Self) -> bool {
        self >= needed
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|tier| tier.as_str() == text)
            .ok_or_else(|| format!("`{text}` is no tier: use user, system or operator"))
    }
}

/// Whom a credential stands for when nobody says, and an operator who acts as a user of some context.
pub const AGENT_USER: &str = "agent";

/// Which door a call came through. Recorded, and a fact policies may use; never a right by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Door {
    McpHttp,
    McpStdio,
    Rest,
    /// Signed envelopes.
    Seal,
    /// A volume mounted over NFS.
    Nfs,
    Cli,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    pub tenant: TenantId,
    pub user: UserId,
    pub tier: Tier,
    pub context: ContextName,
    pub credential: CredentialId,
    pub door: Door,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The version of the context that the session was opened under, and keeps. Without one, whatever is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<ContextVersion>,
}
