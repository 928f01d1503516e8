//! SecurityContexts: what a caller may do. Matching lives here with the types; the order of checks is the policy
//! gate's.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{domain::DomainPattern, id::ContextName, path::PathPrefix, quantity::Size};

pub const OPERATOR_CONTEXT: &str = "aegis-system-operator";

/// A named set of rights. No capability means nothing is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecurityContext {
    #[schemars(with = "String", regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
    pub name: ContextName,
    #[serde(default)]
    pub description: String,
    /// A call passes when one capability names its tool and all that capability's limits hold.
    #[serde(default)]
    pub capabilities: Vec<Capability>,
    /// Refused whatever the capabilities say: `fs.delete`, `web.*`, or with an argument, `fs.read:/workspace/keys`.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub deny_list: Vec<DenyEntry>,
}

/// Tools that may be called, and within which limits. A limit that is left out does not limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Capability {
    /// `fs.read`, `fs.*` (every tool whose name starts with `fs.`) or `*`.
    #[schemars(with = "String")]
    pub tool_pattern: ToolPattern,
    /// Directories the tool's paths must lie in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub path_allowlist: Option<Vec<PathPrefix>>,
    /// Domains the tool may talk to: `example.org` (with subdomains), `*.example.org` (subdomains only), `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub domain_allowlist: Option<Vec<DomainPattern>>,
    /// Programs that may be run, with any arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_allowlist: Option<Vec<String>>,
    /// Programs with the first arguments allowed to each (none listed: any), or a plain list of programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subcommand_allowlist: Option<Subcommands>,
    /// Per caller and tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// The largest answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_response_size: Option<Size>,
    /// Calls in work at once, per caller and tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_concurrent: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Subcommands {
    Map(BTreeMap<String, Vec<String>>),
    List(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    #[schemars(range(min = 1, max = 100_000))]
    pub calls: u32,
    #[schemars(range(min = 1, max = 86_400))]
    pub per_seconds: u32,
}

/// `name`, `prefix.*` or `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ToolPattern {
    Any,
    /// Ends with the dot.
    Prefix(String),
    Exact(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no tool pattern: write a name such as fs.read, a prefix such as fs.*, or *")]
pub struct BadToolPattern(String);

impl ToolPattern {
    pub fn parse(text: &str) -> Result<Self, BadToolPattern> {
        let bad = || BadToolPattern(text.to_owned());
        let name_ok = |name: &str| {
            !name.is_empty()
                && name.len() <= 128
                && name.split('.').all(|part| {
                    !part.is_empty()
                        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
                })
        };
        match text {
            "*" => Ok(Self::Any),
            _ => match text.strip_suffix(".*") {
                Some(prefix) if name_ok(prefix) => Ok(Self::Prefix(format!("{prefix}."))),
                None if name_ok(text) => Ok(Self::Exact(text.to_owned())),
                _ => Err(bad()),
            },
        }
    }

    pub fn matches(&self, tool: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Prefix(prefix) => tool.len() > prefix.len() && tool.starts_with(prefix.as_str()),
            Self::Exact(name) => tool == name,
        }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Prefix(prefix) => write!(f, "{prefix}*"),
            Self::Exact(name) => f.write_str(name),
        }
    }
}

impl TryFrom<String> for ToolPattern {
    type Error = BadToolPattern;

    fn try_from(text: String) -> Result<Self, BadToolPattern> {
        Self::parse(&text)
    }
}

impl From<ToolPattern> for String {
    fn from(pattern: ToolPattern) -> Self {
        pattern.to_string()
    }
}

/// A tool pattern, optionally with the path, domain or program it is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DenyEntry {
    pub tool: ToolPattern,
    pub target: Option<DenyTarget>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DenyTarget {
    Path(PathPrefix),
    /// A domain or a program: which of the two, the tool's own targets say.
    Name(DomainPattern),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no deny entry: {reason}")]
pub struct BadDenyEntry {
    text: String,
    reason: String,
}

impl DenyEntry {
    pub fn parse(text: &str) -> Result<Self, BadDenyEntry> {
        let bad = |reason: String| BadDenyEntry { text: text.to_owned(), reason };
        let (tool, target) = match text.split_once(':') {
            Some((tool, target)) => (tool, Some(target)),
            None => (text, None),
        };
        let tool = ToolPattern::parse(tool).map_err(|error| bad(error.to_string()))?;
        let target = match target {
            None => None,
            Some(path) if path.starts_with('/') => {
                Some(DenyTarget::Path(PathPrefix::parse(path).map_err(|error| bad(error.to_string()))?))
            }
            Some(name) => {
                Some(DenyTarget::Name(DomainPattern::parse(name).map_err(|error| bad(error.to_string()))?))
            }
        };
        Ok(Self { tool, target })
    }
}

impl fmt::Display for DenyEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            None => self.tool.fmt(f),
            Some(DenyTarget::Path(path)) => write!(f, "{}:{path}", self.tool),
            Some(DenyTarget::Name(name)) => write!(f, "{}:{name}", self.tool),
        }
    }
}

impl TryFrom<String> for DenyEntry {
    type Error = BadDenyEntry;

    fn try_from(text: String) -> Result<Self, BadDenyEntry> {
        Self::parse(&text)
    }
}

impl From<DenyEntry> for String {
    fn from(entry: DenyEntry) -> Self {
        entry.to_string()
    }
}

impl Capability {
    pub fn of(tool_pattern: &str) -> Result<Self, BadToolPattern> {
        Ok(Self {
            tool_pattern: ToolPattern::parse(tool_pattern)?,
            path_allowlist: None,
            domain_allowlist: None,
            command_allowlist: None,
            subcommand_allowlist: None,
            rate_limit: None,
            max_response_size: None,
            max_concurrent: None,
        })
    }
}

/// The contexts every node has. They are written as a configuration would be, and read by the same parser.
pub fn shipped() -> Vec<SecurityContext> {
    const TEXT: &str = include_str!("shipped_contexts.yaml");
    crate::document::parse::<Vec<SecurityContext>>(TEXT).map(|parsed| parsed.value).unwrap_or_default()
}

pub(super) fn check(contexts: &[SecurityContext]) -> Vec<(String, String)> {
    let mut mistakes = Vec::new();
    for (index, context) in contexts.iter().enumerate() {
        let pointer = format!("/spec/security_contexts/{index}/name");
        if context.name.as_str() == OPERATOR_CONTEXT {
            mistakes.push((pointer, format!("`{OPERATOR_CONTEXT}` is the node's own and can't be replaced")));
        } else if contexts[..index].iter().any(|earlier| earlier.name == context.name) {
            mistakes.push((pointer, format!("the context `{}` is defined twice", context.name)));
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_need_the_dot() {
        let pattern = ToolPattern::parse("fs.*").unwrap();
        assert!(pattern.matches("fs.read"));
        assert!(!pattern.matches("fsx.read"));
        assert!(!pattern.matches("fs"));
        assert!(!pattern.matches("fs."));
    }

    #[test]
    fn unknown_syntax_is_an_error_at_load() {
        for text in ["fs*", "f?.read", "", ".*", "fs..read", "*.read", "fs.*.x", "fs read"] {
            assert!(ToolPattern::parse(text).is_err(), "{text}");
        }
        for text in ["fs.read:", "fs.read:a*b", "fs*:/etc", "fs.read:/etc/../x"] {
            assert!(DenyEntry::parse(text).is_err(), "{text}");
        }
        assert_eq!(DenyEntry::parse("fs.read:/etc/*").unwrap().to_string(), "fs.read:/etc");
    }

    #[test]
    fn shipped_contexts_parse() {
        let names: Vec<String> = shipped().iter().map(|context| context.name.to_string()).collect();
        assert_eq!(names, [OPERATOR_CONTEXT, "aegis-system-agent-runtime", "workspace", "read-only"]);
    }
}
