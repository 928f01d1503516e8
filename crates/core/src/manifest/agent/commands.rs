//! Which commands `cmd.run` may run for an agent. A manifest can say it in four shapes; all become one.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::security_context::Subcommands;

/// With which first arguments a command may be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// With any, and with none.
    Any,
    /// With one of these.
    Only(BTreeSet<String>),
}

impl Command {
    pub fn permits(&self, first_argument: Option<&str>) -> bool {
        match (self, first_argument) {
            (Self::Any, _) => true,
            (Self::Only(allowed), Some(given)) => allowed.contains(given),
            (Self::Only(_), None) => false,
        }
    }

    /// What either allows.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Only(mut mine), Self::Only(theirs)) => {
                mine.extend(theirs);
                Self::Only(mine)
            }
            _ => Self::Any,
        }
    }

    /// What both allow.
    fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Any, both) | (both, Self::Any) => both.clone(),
            (Self::Only(mine), Self::Only(theirs)) => {
                Self::Only(mine.intersection(theirs).cloned().collect())
            }
        }
    }
}

/// Commands by name. What is not in here can't be run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandRules(BTreeMap<String, Command>);

impl CommandRules {
    pub fn get(&self, command: &str) -> Option<&Command> {
        self.0.get(command)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Command)> {
        self.0.iter().map(|(name, command)| (name.as_str(), command))
    }

    /// `git: [status, diff]`, `make: []` (any), or a plain list of commands.
    pub(super) fn of_subcommands(subcommands: &Subcommands) -> Self {
        match subcommands {
            Subcommands::Map(map) => map
                .iter()
                .map(|(name, firsts)| {
                    let command = if firsts.is_empty() {
                        Command::Any
                    } else {
                        Command::Only(firsts.iter().cloned().collect())
                    };
                    (name.clone(), command)
                })
                .collect(),
            Subcommands::List(names) => names.iter().map(|name| (name.clone(), Command::Any)).collect(),
        }
    }

    /// `["pytest", "npm test"]`: a command alone allows any arguments, with a word after it only that one.
    ///
    /// A longer line allows nothing: to keep only its first two words would allow more than was written.
    pub(super) fn of_lines(lines: &[String]) -> Self {
        lines
            .iter()
            .filter_map(|line| {
                let mut words = line.split_whitespace().map(str::to_owned);
                match (words.next(), words.next(), words.next()) {
                    (Some(name), None, None) => Some((name, Command::Any)),
                    (Some(name), Some(first), None) => Some((name, Command::Only(BTreeSet::from([first])))),
                    _ => None,
                }
            })
            .collect()
    }

    /// What both allow: several declarations narrow each other.
    pub fn and(&self, other: &Self) -> Self {
        self.0.iter().filter_map(|(name, mine)| Some((name.clone(), mine.and(other.0.get(name)?)))).collect()
    }
}

impl FromIterator<(String, Command)> for CommandRules {
    fn from_iter<I: IntoIterator<Item = (String, Command)>>(commands: I) -> Self {
        let mut rules = BTreeMap::new();
        for (name, command) in commands {
            let command = match rules.remove(&name) {
                Some(earlier) => command.or(earlier),
                None => command,
            };
            rules.insert(name, command);
        }
        Self(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> CommandRules {
        CommandRules::of_lines(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn shapes_of_one_rule() {
        let map = CommandRules::of_subcommands(
            &serde_json::from_str(r#"{"npm": ["test"], "pytest": []}"#).unwrap(),
        );
        assert_eq!(map, lines(&["pytest", "npm test"]));
        let list = CommandRules::of_subcommands(&serde_json::from_str(r#"["python", "pip"]"#).unwrap());
        assert_eq!(list, lines(&["pip", "python"]));
    }

    #[test]
    fn one_list_adds_up_and_several_narrow() {
        let rules = lines(&["git status", "git diff", "make", "make all"]);
        assert!(rules.get("git").is_some_and(|git| git.permits(Some("diff")) && !git.permits(Some("push"))));
        assert!(rules.get("git").is_some_and(|git| !git.permits(None)));
        assert!(rules.get("make").is_some_and(|make| make.permits(None)));

        let both = rules.and(&lines(&["git diff", "git push", "cargo"]));
        assert_eq!(both, lines(&["git diff"]));
        assert_eq!(rules.and(&lines(&["make all", "git"])), lines(&["git status", "git diff", "make all"]));
    }

    #[test]
    fn a_line_that_says_more_than_a_rule_can_hold_allows_nothing() {
        assert_eq!(lines(&["npm run build", "", "  "]), CommandRules::default());
    }
}
