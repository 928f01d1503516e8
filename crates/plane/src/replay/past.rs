//! What replay reads of a record. The rest is skipped, not taken apart: there are many records.

use std::borrow::Cow;

use aegis_core::{Gate, Timestamp, TrustClass, ViolationKind, id::CallId};
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value, value::RawValue};

/// Enough of any entry to know whose it is and what it taught them.
#[derive(Debug, Deserialize)]
pub(super) struct Glance<'a> {
    #[serde(borrow)]
    pub(super) entry: Cow<'a, str>,
    pub(super) time: Timestamp,
    #[serde(borrow)]
    pub(super) caller: Option<GlanceAtCaller<'a>>,
    #[serde(borrow)]
    pub(super) result: Option<Status<'a>>,
    #[serde(borrow)]
    pub(super) label: Option<GlanceAtLabel<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GlanceAtCaller<'a> {
    #[serde(borrow)]
    pub(super) tenant: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) credential: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) session: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct GlanceAtLabel<'a> {
    pub(super) trust: TrustClass,
    #[serde(borrow)]
    pub(super) source: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Status<'a> {
    #[serde(borrow)]
    pub(super) status: Cow<'a, str>,
}

/// A call that was decided once.
#[derive(Debug, Deserialize)]
pub(super) struct Past<'a> {
    pub(super) time: Timestamp,
    pub(super) call: CallId,
    #[serde(borrow)]
    pub(super) caller: &'a RawValue,
    #[serde(borrow)]
    pub(super) tool: Cow<'a, str>,
    pub(super) arguments: Map<String, Value>,
    #[serde(borrow)]
    verdicts: Vec<PastVerdict<'a>>,
    approval: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct PastVerdict<'a> {
    gate: Gate,
    #[serde(borrow)]
    verdict: Cow<'a, str>,
    kind: Option<ViolationKind>,
    #[serde(borrow)]
    rule: Option<Cow<'a, str>>,
}

/// What was decided about a call when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Allowed,
    /// A person was asked, or had settled the question before.
    Asked,
    Denied,
    /// Something else than a rule ended it: its arguments, an unknown tool, a budget, the node's own state.
    NotByRules,
}

impl Then {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Asked => "asked",
            Self::Denied => "denied",
            Self::NotByRules => "not decided",
        }
    }
}

impl Past<'_> {
    pub(super) fn then(&self) -> Then {
        let of = |gate| self.verdicts.iter().filter(move |verdict| verdict.gate == gate);
        let refused = |verdict: &&PastVerdict<'_>| verdict.verdict == "deny";
        if let Some(denied) = of(Gate::Policy).find(refused) {
            return match denied.kind {
                Some(ViolationKind::RateLimitExceeded | ViolationKind::ConcurrentExecLimitExceeded) => {
                    Then::NotByRules
                }
                _ => Then::Denied,
            };
        }
        if of(Gate::Policy).next().is_none() {
            return Then::NotByRules;
        }
        let settled = of(Gate::Approval).any(|verdict| verdict.rule.is_some() || refused(&verdict));
        if self.approval.is_some() || settled { Then::Asked } else { Then::Allowed }
    }

    /// Whether the arguments in the record are those the tool would have seen: checked, with defaults filled in.
    pub(super) fn arguments_were_checked(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.gate == Gate::Arguments)
    }
}
