//! Conversation modes: which tools a chat client shows its model. A filter for clients, never a right: what a caller
//! may call is its security context's business, in every mode and without one.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool that offers the user another mode. It is listed only where there are modes.
pub const SWITCH_MODE: &str = "zaru.switch_mode";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Chat,
    Agentic,
    Architect,
    Operator,
    Execute,
}

impl Mode {
    pub const ALL: [Self; 5] = [Self::Chat, Self::Agentic, Self::Architect, Self::Operator, Self::Execute];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Agentic => "agentic",
            Self::Architect => "architect",
            Self::Operator => "operator",
            Self::Execute => "execute",
        }
    }

    /// Whether a list in this mode has the tool. Names of tools that a node does not have mean nothing.
    pub fn shows(self, tool: &str) -> bool {
        tool == SWITCH_MODE
            || match self {
                Self::Chat => false,
                Self::Agentic => AGENTIC.contains(&tool),
                Self::Architect => ARCHITECT.contains(&tool),
                Self::Operator => true,
                Self::Execute => EXECUTE.contains(&tool),
            }
    }
}

const AGENTIC: [&str; 11] = [
    "aegis.agent.generate",
    "aegis.agent.wait",
    "aegis.agent.list",
    "aegis.agent.logs",
    "aegis.task.execute",
    "aegis.task.wait",
    "aegis.task.list",
    "aegis.task.logs",
    "aegis.task.cancel",
    "aegis.tools.list",
    "aegis.tools.search",
];

const ARCHITECT: [&str; 12] = [
    "aegis.workflow.generate",
    "aegis.workflow.list",
    "aegis.workflow.logs",
    "aegis.agent.generate",
    "aegis.agent.wait",
    "aegis.agent.list",
    "aegis.agent.logs",
    "aegis.schema.get",
    "aegis.schema.validate",
    "aegis.task.execute",
    "aegis.task.wait",
    "aegis.workflow.wait",
];

const EXECUTE: [&str; 4] =
    ["aegis.execute.intent", "aegis.execute.status", "aegis.execute.wait", "aegis.workflow.wait"];

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("`{shown}` is no mode: use one of {known}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_by_name() {
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
            assert!(mode.shows(SWITCH_MODE));
        }
        let refused = "Chat".parse::<Mode>().unwrap_err();
        assert_eq!(refused, "`Chat` is no mode: use one of chat, agentic, architect, operator, execute");
    }

    #[test]
    fn sets_are_as_documented() {
        assert!(!Mode::Chat.shows("aegis.tools.list"));
        assert!(Mode::Agentic.shows("aegis.tools.list") && !Mode::Agentic.shows("aegis.schema.get"));
        assert!(Mode::Architect.shows("aegis.schema.get") && !Mode::Architect.shows("aegis.task.list"));
        assert!(Mode::Execute.shows("aegis.workflow.wait") && !Mode::Execute.shows("fs.read"));
        assert!(Mode::Operator.shows("fs.read"));
    }
}
