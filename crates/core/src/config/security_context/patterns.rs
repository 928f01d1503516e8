//! How contexts name tools, and what is denied of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{domain::DomainPattern, path::PathPrefix};

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

    /// Whether there could be a tool that both name.
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) | (_, Self::Any) => true,
            (pattern, Self::Exact(name)) | (Self::Exact(name), pattern) => pattern.matches(name),
            (Self::Prefix(one), Self::Prefix(other)) => one.starts_with(other) || other.starts_with(one),
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
            // An entry that could never be about a call would close nothing, without a word.
            Some(name) if name.contains('/') || text.starts_with("fs.") => {
                let place = name.trim().trim_start_matches(['.', '/']).trim_start_matches("workspace/");
                return Err(bad(format!("paths begin with `/`, as in `{tool}:/workspace/{place}`")));
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
            Some(target) => write!(f, "{}:{target}", self.tool),
        }
    }
}

impl fmt::Display for DenyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Name(name) => name.fmt(f),
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
        for text in
            ["*:workspace/secret", "*:./secret", "*: /workspace/secret", "fs.*:secret", "fs.read:secret"]
        {
            let mistake = DenyEntry::parse(text).unwrap_err().to_string();
            assert!(mistake.contains(":/workspace/secret`"), "{mistake}");
        }
        assert!(DenyEntry::parse("cmd.run:git").is_ok() && DenyEntry::parse("web.*:intranet").is_ok());
        assert_eq!(DenyEntry::parse("fs.read:/etc/*").unwrap().to_string(), "fs.read:/etc");
    }
}
