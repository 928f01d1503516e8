//! Definitions of tools that an operator may decide about.

use std::collections::{BTreeMap, HashSet};

use aegis_core::{
    Caller, Timestamp,
    nearest::suggestion,
    upstream::{Definition, UpstreamError},
};
use aegis_stores::registry::{Pin, PinState};
use serde::Serialize;
use serde_json::{Value, json};

use super::{ServerError, Servers};

/// A definition that waits for a decision, or was rejected, beside the one it would replace.
#[derive(Debug, Clone, Serialize)]
pub struct Proposal {
    pub tool: String,
    pub state: PinState,
    /// Of the proposed one: what a decision is about.
    pub digest: String,
    pub seen: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Value>,
    pub proposed: Value,
    /// Line by line.
    pub diff: String,
}

impl Servers {
    /// What waits for a decision, and what was rejected of tools of which nothing waits: the last, if nothing was accepted
    /// since, and all where the server offers something else than what was accepted.
    pub async fn proposals(&self, name: &str) -> Result<Vec<Proposal>, ServerError> {
        self.show(name).await?;
        let pins = self.registry.pins(name, true).await?;
        let tools = self.live.tools(name).into_iter();
        let withheld = tools.filter(|tool| tool.withheld.is_some()).map(|tool| tool.tool).collect();
        // Thousands of definitions take a while to compare.
        let compared = tokio::task::spawn_blocking(move || open(&pins, &withheld));
        Ok(compared.await.map_err(|error| UpstreamError::Failed(error.to_string()))?)
    }

    /// Every definition that is remembered of a server.
    pub async fn pins(&self, name: &str) -> Result<Vec<Pin>, ServerError> {
        self.show(name).await?;
        Ok(self.registry.pins(name, true).await?)
    }

    /// Accepts or rejects what waits: these tools, each of this digest if one is given, or all when none is named. What
    /// was rejected is accepted after all when its tool is named; once another was accepted since, only by its digest.
    pub async fn decide(
        &self,
        name: &str,
        tools: Vec<(String, Option<String>)>,
        accept: bool,
        operator: &Caller,
    ) -> Result<Vec<Pin>, ServerError> {
        let pins = self.pins(name).await?;
        let known = || pins.iter().map(|pin| pin.definition.tool.as_str());
        if let Some((tool, _)) = tools.iter().find(|(tool, _)| !known().any(|known| known == tool)) {
            let close = suggestion(tool, known());
            return Err(ServerError::UnknownTool { server: name.to_owned(), tool: tool.clone(), close });
        }
        let meant = meant(&pins, &tools, accept);
        if meant.is_empty() {
            return Err(ServerError::NothingProposed(name.to_owned()));
        }
        let action = if accept { "upstream-accepted" } else { "upstream-rejected" };
        let detail: Value =
            meant.iter().map(|(tool, digest)| json!({"tool": tool, "digest": digest})).collect();
        self.record(action, name, [("tools", detail)], operator).await?;
        let decided = self.registry.decide_pins(name, meant, accept, &operator.user).await?;
        self.live.pins_changed(name).await;
        Ok(decided)
    }
}

/// What is known of one tool, in the order in which it was seen.
#[derive(Debug, Default)]
struct OfTool<'a> {
    accepted: Option<&'a Pin>,
    proposed: Option<&'a Pin>,
    rejected: Vec<&'a Pin>,
}

impl<'a> OfTool<'a> {
    /// What waits, or the last that was rejected. An accepted one that was decided about later has settled what was
    /// rejected before it: accepting twice must not bring that back.
    fn open(&self) -> Option<&'a Pin> {
        let decided = |pin: &Pin| (pin.decided, pin.seen);
        let is_last_word =
            |rejected: &&Pin| self.accepted.is_none_or(|accepted| decided(rejected) > decided(accepted));
        self.proposed.or_else(|| self.rejected.last().copied().filter(is_last_word))
    }
}

fn by_tool(pins: &[Pin]) -> BTreeMap<&str, OfTool<'_>> {
    let mut tools: BTreeMap<&str, OfTool<'_>> = BTreeMap::new();
    for pin in pins {
        let tool = tools.entry(&pin.definition.tool).or_default();
        match pin.state {
            PinState::Accepted => tool.accepted = Some(pin),
            PinState::Proposed => tool.proposed = Some(pin),
            PinState::Rejected => tool.rejected.push(pin),
            PinState::Superseded => {}
        }
    }
    tools
}

/// Everything open, by tool; of a tool that is withheld, what was rejected long ago, too: its server may be back at that.
/// Takes its time with thousands of tools.
fn open(pins: &[Pin], withheld: &HashSet<String>) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for (name, tool) in by_tool(pins) {
        match tool.open() {
            Some(pin) => proposals.push(proposal(pin, tool.accepted)),
            None if withheld.contains(name) => {
                proposals.extend(tool.rejected.iter().map(|pin| proposal(pin, tool.accepted)));
            }
            None => {}
        }
    }
    proposals
}

/// The definitions that a decision means: of these tools, each of this digest if one is given, or all that waits when none
/// is named. Only by its tool's name is accepted what was rejected, and only by its digest what has been settled since.
fn meant(pins: &[Pin], tools: &[(String, Option<String>)], accept: bool) -> Vec<(String, Option<String>)> {
    let named: HashSet<(&str, Option<&str>)> =
        tools.iter().map(|(tool, digest)| (tool.as_str(), digest.as_deref())).collect();
    let by_tool = by_tool(pins);
    let is_meant = |pin: &&Pin| {
        let (tool, digest) = (pin.definition.tool.as_str(), pin.definition.digest.as_str());
        let by_digest = named.contains(&(tool, Some(digest)));
        let is_named = by_digest || named.contains(&(tool, None));
        match pin.state {
            PinState::Proposed => tools.is_empty() || is_named,
            PinState::Rejected => {
                let is_open = || by_tool.get(tool).and_then(OfTool::open) == Some(*pin);
                accept && (by_digest || (is_named && is_open()))
            }
            PinState::Accepted | PinState::Superseded => false,
        }
    };
    // With the digest that is recorded: what comes in between is not what was decided.
    let told = |pin: &Pin| (pin.definition.tool.clone(), Some(pin.definition.digest.clone()));
    pins.iter().filter(is_meant).map(told).collect()
}

fn proposal(pin: &Pin, accepted: Option<&Pin>) -> Proposal {
    let value = |definition: &Definition| serde_json::from_str(&definition.text).unwrap_or_default();
    let accepted = accepted.map(|pin| &pin.definition);
    let before = accepted.map(Definition::readable).unwrap_or_default();
    let patch = diffy::create_patch(&before, &pin.definition.readable()).to_string();
    // The first two lines name the texts, which have better names.
    let diff = patch.lines().skip(2).collect::<Vec<_>>().join("\n");
    Proposal {
        tool: pin.definition.tool.clone(),
        state: pin.state,
        digest: pin.definition.digest.clone(),
        seen: pin.seen,
        accepted: accepted.map(value),
        proposed: value(&pin.definition),
        diff,
    }
}
