//! What a gate said.

use serde::{Deserialize, Serialize};

use crate::violation::Violation;

/// The gates in the order a call meets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    Identity,
    /// The catalog: does the tool exist at all.
    Catalog,
    Arguments,
    Policy,
    /// A person, where some rule asks for one.
    Approval,
}

impl Gate {
    /// Gates that must have passed before anything may take effect.
    pub const REQUIRED: [Self; 5] =
        [Self::Identity, Self::Catalog, Self::Arguments, Self::Policy, Self::Approval];
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Verdict {
    /// The gate has no objection; `rule` says by which rule, in the operator's words.
    Pass {
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    Deny(Violation),
}

/// One line of the record: a gate, its verdict, and the version of the rules it went by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GateVerdict {
    pub gate: Gate,
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Which version of the rules was in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What rules that are only being tried out would have said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_have: Vec<Shadow>,
}

/// What a rule in shadow mode would have done, had it been in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    pub effect: ShadowEffect,
    pub rule: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShadowEffect {
    Deny,
    AskApproval,
}

impl GateVerdict {
    pub fn pass(gate: Gate) -> Self {
        Self { gate, verdict: Verdict::Pass { rule: None }, version: None, would_have: Vec::new() }
    }

    pub fn deny(gate: Gate, violation: Violation) -> Self {
        Self { gate, verdict: Verdict::Deny(violation), version: None, would_have: Vec::new() }
    }

    #[must_use]
    pub fn under(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    #[must_use]
    pub fn by(mut self, name: impl Into<String>) -> Self {
        if let Verdict::Pass { rule } = &mut self.verdict {
            *rule = Some(name.into());
        }
        self
    }

    pub fn passed(&self) -> bool {
        matches!(self.verdict, Verdict::Pass { .. })
    }
}
