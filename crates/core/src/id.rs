//! Newtype identifiers. A tenant can't be passed where a user is wanted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(text.as_ref().into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id!(
    /// Whose data a call may see. Part of every key in every store.
    TenantId
);
text_id!(
    /// The person or service behind a credential.
    UserId
);
text_id!(
    /// The name of a SecurityContext.
    ContextName
);
text_id!(
    /// `name@` and the start of a digest: the same rules have the same version anywhere.
    ContextVersion
);
text_id!(
    /// A request for a person's approval: `approval:` and a UUID.
    ApprovalId
);
text_id!(
    /// The public handle of a credential (never the credential itself).
    CredentialId
);
text_id!(
    /// One client connection that outlives a call, e.g. an MCP session.
    SessionId
);
text_id!(
    /// A storage volume.
    VolumeId
);

/// One tool call. Time-ordered, so that ids sort as the calls came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(uuid::Uuid);

impl CallId {
    pub fn fresh() -> Self {
        Self(uuid::Uuid::now_v7())
    }

    pub fn as_bytes(self) -> [u8; 16] {
        self.0.into_bytes()
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether `text` can name a tenant: a DNS label.
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| inner(*b) || *b == b'-')
        && bytes.first().is_some_and(|b| inner(*b))
        && bytes.last().is_some_and(|b| inner(*b))
}
