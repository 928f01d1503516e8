//! Patterns for arguments: some options of harmless programs run others, e.g. `git -c core.pager=…`.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{line::CommandLine, rules::ANY_PROGRAM};

const LONGEST_PATTERN: usize = 1024;

/// Literal text in which `*` stands for any characters, none included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ArgumentPattern(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadArgumentPattern {
    #[error("an empty pattern matches no argument that could be meant")]
    Empty,
    #[error("the pattern has {0} bytes; {LONGEST_PATTERN} is the limit")]
    TooLong(usize),
}

impl ArgumentPattern {
    pub fn parse(text: &str) -> Result<Self, BadArgumentPattern> {
        match text.len() {
            0 => Err(BadArgumentPattern::Empty),
            length if length > LONGEST_PATTERN => Err(BadArgumentPattern::TooLong(length)),
            _ => Ok(Self(text.to_owned())),
        }
    }

    pub fn matches(&self, argument: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|start| argument.strip_prefix(start)) else {
            return false;
        };
        let mut parts: Vec<&str> = parts.collect();
        let Some(end) = parts.pop() else { return rest.is_empty() };
        // The earliest place for each part leaves the most for those after it.
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(end)
    }
}

impl fmt::Display for ArgumentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ArgumentPattern {
    type Error = BadArgumentPattern;

    fn try_from(text: String) -> Result<Self, BadArgumentPattern> {
        Self::parse(&text)
    }
}

impl From<ArgumentPattern> for String {
    fn from(pattern: ArgumentPattern) -> Self {
        pattern.0
    }
}

/// What may stand among the arguments of one program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ArgumentRules {
    /// Refused wherever they stand: `-c`, `--upload-pack*`. `*` stands for any characters.
    #[schemars(with = "Vec<String>")]
    pub deny: Vec<ArgumentPattern>,
    /// When given, every argument after the first must match one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub allow: Option<Vec<ArgumentPattern>>,
}

/// Rules by program; those of `*` hold for every program.
pub type ArgumentPatterns = BTreeMap<String, ArgumentRules>;

/// An argument that may not stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentObjection<'a> {
    Denied { program: &'a str, argument: &'a str, pattern: &'a ArgumentPattern },
    NotAllowed { program: &'a str, argument: &'a str },
}

/// The first argument that the patterns object to. A program that is named by its path falls under the rules of its
/// bare name too.
pub fn check<'a>(patterns: &'a ArgumentPatterns, line: &'a CommandLine) -> Result<(), ArgumentObjection<'a>> {
    let speaks = |name: &str| name == ANY_PROGRAM || name == line.program || name == line.program_name();
    for (program, rules) in patterns.iter().filter(|(name, _)| speaks(name)) {
        for (index, argument) in line.arguments.iter().enumerate() {
            if let Some(pattern) = rules.deny.iter().find(|pattern| pattern.matches(argument)) {
                return Err(ArgumentObjection::Denied { program, argument, pattern });
            }
            if let Some(allow) = &rules.allow
                && index > 0
                && !allow.iter().any(|pattern| pattern.matches(argument))
            {
                return Err(ArgumentObjection::NotAllowed { program, argument });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        ArgumentPattern::parse(pattern).unwrap().matches(text)
    }

    #[test]
    fn stars_stand_for_anything() {
        assert!(matches("-c", "-c") && !matches("-c", "-cx"));
        assert!(matches("-c*", "-ccore.pager=sh") && matches("-c*", "-c"));
        assert!(matches("*core.pager*", "alias.core.pager=x"));
        assert!(matches("a*b*c", "abbc") && !matches("a*b*c", "acb"));
        assert!(!matches("ab*ba", "aba") && matches("*", ""));
    }

    #[test]
    fn option_abuse_is_stopped_wherever_it_stands() {
        let patterns: ArgumentPatterns = serde_json::from_str(
            r#"{"git": {"deny": ["-c*", "--exec-path*", "--upload-pack*"]}, "make": {"allow": ["test", "-j*"]}}"#,
        )
        .unwrap();
        let passes = |line: &str| check(&patterns, &CommandLine::parse(line, &[]).unwrap()).is_ok();
        assert!(passes("git log --oneline") && passes("ls -c"));
        assert!(!passes("git -c core.pager=sh log") && !passes("git log -ccore.pager=sh"));
        assert!(!passes("/usr/bin/git --exec-path=. log"));
        assert!(passes("make all -j4 test") && !passes("make all SHELL=sh"));
    }

    proptest! {
        /// Against a slow reading of the same words.
        #[test]
        fn agrees_with_a_plain_reading(pattern in "[ab*]{1,8}", text in "[ab]{0,10}") {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match pattern.split_first() {
                    None => text.is_empty(),
                    Some((b'*', rest)) => (0..=text.len()).any(|at| slow(rest, &text[at..])),
                    Some((one, rest)) => text.first() == Some(one) && slow(rest, &text[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
