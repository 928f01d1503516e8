//! Where content came from and how far it may be trusted. Every outcome carries one.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TrustClass {
    /// Made by the node itself: catalogs, schemas, its own state.
    ControlTrusted,
    /// Written by the person the caller acts for.
    UserOwned,
    /// Made by a model.
    ModelGeneratedUntrusted,
    /// Came from outside: files, the web, other servers. May hold instructions that nobody here gave.
    ExternalUntrusted,
}

impl TrustClass {
    pub const ALL: [Self; 4] =
        [Self::ControlTrusted, Self::UserOwned, Self::ModelGeneratedUntrusted, Self::ExternalUntrusted];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControlTrusted => "CONTROL_TRUSTED",
            Self::UserOwned => "USER_OWNED",
            Self::ModelGeneratedUntrusted => "MODEL_GENERATED_UNTRUSTED",
            Self::ExternalUntrusted => "EXTERNAL_UNTRUSTED",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Label {
    pub trust: TrustClass,
    /// What kind of place the content came from: `filesystem`, `remote-http`, `web-search`, `node`.
    pub source: Cow<'static, str>,
    /// Which one: a path, an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl Label {
    pub const fn new(trust: TrustClass, source: &'static str) -> Self {
        Self { trust, source: Cow::Borrowed(source), origin: None }
    }

    pub const fn node() -> Self {
        Self::new(TrustClass::ControlTrusted, "node")
    }

    #[must_use]
    pub fn from(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }
}

/// The `provenance` object that assistant tools show in their own output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    pub source: Cow<'static, str>,
    pub trust_classification: TrustClass,
}

impl From<&Label> for Provenance {
    fn from(label: &Label) -> Self {
        Self { source: label.source.clone(), trust_classification: label.trust }
    }
}
