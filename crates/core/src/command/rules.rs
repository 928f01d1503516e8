//! Which commands may be run. Seeds write it in three shapes; all become one table: program → with which first
//! arguments.

use std::collections::{BTreeMap, BTreeSet};

use super::{interpreter, line::CommandLine};
use crate::config::security_context::Subcommands;

/// Every program that a name on the search path can be, but no interpreter.
pub const ANY_PROGRAM: &str = "*";

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

/// Why a command may not be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objection<'a> {
    /// No rule names the program.
    Program,
    /// Only a rule for every program, or for all in a directory, covers it, and it runs whatever it is given.
    Interpreter,
    /// The program is there, the first argument is not among these.
    Subcommand { allowed: &'a BTreeSet<String> },
}

/// Commands by name. What is not in here can't be run.
///
/// A name is the program as callers write it. A name that ends in `/*` stands for every program in that directory,
/// and `*` alone for every program that is named without a directory; neither for an interpreter.
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
    pub fn of_subcommands(subcommands: &Subcommands) -> Self {
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
            Subcommands::List(names) => Self::of_lines(names),
        }
    }

    /// `["pytest", "npm test"]`: a command alone allows any arguments, with a word after it only that one.
    ///
    /// A longer line allows nothing: to keep only its first two words would allow more than was written.
    pub fn of_lines(lines: &[String]) -> Self {
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

    /// Whether the command may be run, and if not, what stands against it.
    pub fn check(&self, line: &CommandLine) -> Result<(), Objection<'_>> {
        match self.rule_for(&line.program)? {
            command if command.permits(line.first_argument()) => Ok(()),
            Command::Only(allowed) => Err(Objection::Subcommand { allowed }),
            Command::Any => Ok(()),
        }
    }

    /// The most precise rule about a program.
    fn rule_for(&self, program: &str) -> Result<&Command, Objection<'_>> {
        if let Some(command) = self.0.get(program).filter(|_| program != ANY_PROGRAM) {
            return Ok(command);
        }
        if let Some((directory, name)) = program.rsplit_once('/') {
            let plain = !name.is_empty() && !program.split('/').any(|component| component == "..");
            let rule = self.0.get(&format!("{directory}/*")).filter(|_| plain).ok_or(Objection::Program)?;
            // Of all in a directory, as of all on the search path, those that run anything are named one by one.
            return if interpreter::is_one(name) { Err(Objection::Interpreter) } else { Ok(rule) };
        }
        match self.0.get(ANY_PROGRAM) {
            // A file of that very name is not what the rule speaks of.
            Some(_) if program == ANY_PROGRAM => Err(Objection::Program),
            Some(_) if interpreter::is_one(program) => Err(Objection::Interpreter),
            Some(command) => Ok(command),
            None => Err(Objection::Program),
        }
    }

    /// What both allow: several declarations narrow each other.
    pub fn and(&self, other: &Self) -> Self {
        let names: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        let both = |name: &String| match name.as_str() {
            ANY_PROGRAM => Some(self.0.get(ANY_PROGRAM)?.and(other.0.get(ANY_PROGRAM)?)),
            name => Some(self.rule_for(name).ok()?.and(other.rule_for(name).ok()?)),
        };
        names.into_iter().filter_map(|name| Some((name.clone(), both(name)?))).collect()
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

/// What is wrong with an entry of an allowlist, for whoever wrote it.
pub fn mistake_in(entry: &str) -> Option<&'static str> {
    let words: Vec<&str> = entry.split_whitespace().collect();
    let program = match words.as_slice() {
        [program] | [program, _] => *program,
        [] => return Some("name a program"),
        _ => {
            return Some("write a program, or a program and its first argument; more words can't be checked");
        }
    };
    let name = program.strip_suffix("/*").unwrap_or(program);
    if program != ANY_PROGRAM && name.contains('*') {
        return Some(
            "write a program, `*` for every program but interpreters, or a directory that ends in `/*`",
        );
    }
    if program.split('/').any(|component| component == "..") {
        return Some("write the directory without `..`");
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(lines: &[&str]) -> CommandRules {
        CommandRules::of_lines(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
    }

    fn permits(rules: &CommandRules, line: &str) -> bool {
        rules.check(&CommandLine::parse(line, &[]).unwrap()).is_ok()
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
        for entry in ["npm run build", "", "gi*", "../x", "a/../*"] {
            assert!(mistake_in(entry).is_some(), "{entry}");
        }
        for entry in ["npm test", "*", "./bin/*", "/usr/bin/git"] {
            assert!(mistake_in(entry).is_none(), "{entry}");
        }
    }

    #[test]
    fn every_program_is_no_interpreter_and_nothing_with_a_directory() {
        let any = lines(&["*"]);
        assert!(permits(&any, "gcc -c x.c") && permits(&any, "git push"));
        for interpreter in ["bash", "sh -c x", "python3.12 x.py", "node x.js", "env x", "xargs x", "perl"] {
            let line = CommandLine::parse(interpreter, &[]).unwrap();
            assert_eq!(any.check(&line), Err(Objection::Interpreter), "{interpreter}");
        }
        assert!(!permits(&any, "./gcc") && !permits(&any, "/bin/sh"));
        assert!(permits(&lines(&["*", "python3"]), "python3 x.py"));
        assert!(!permits(&any, "'*'"));
    }

    #[test]
    fn directories_cover_what_is_in_them() {
        let rules = lines(&["./bin/*", "/usr/bin/git status"]);
        assert!(permits(&rules, "./bin/tool x") && permits(&rules, "/usr/bin/git status"));
        for line in ["bin/tool", "./bin/deep/tool", "./bin/../x", "/usr/bin/git push", "git status", "./bin/"]
        {
            assert!(!permits(&rules, line), "{line}");
        }
    }

    #[test]
    fn directories_cover_no_interpreter() {
        let rules = lines(&["/usr/bin/*", "/bin/*", "/bin/python3"]);
        assert!(permits(&rules, "/usr/bin/git push") && permits(&rules, "/bin/python3 x.py"));
        for interpreter in ["/usr/bin/bash -c x", "/usr/bin/env x", "/bin/sh", "/usr/bin/python3.12 x.py"] {
            let line = CommandLine::parse(interpreter, &[]).unwrap();
            assert_eq!(rules.check(&line), Err(Objection::Interpreter), "{interpreter}");
        }
    }

    fn rules() -> impl Strategy<Value = CommandRules> {
        let program = prop_oneof![
            Just("*".to_owned()),
            Just("./bin/*".to_owned()),
            Just("./bin/a".to_owned()),
            Just("./bin/sh".to_owned()),
            Just("sh".to_owned()),
            "[ab]".prop_map(|name| name),
        ];
        let command = prop_oneof![
            Just(Command::Any),
            prop::collection::btree_set("[xyz]", 1..3).prop_map(Command::Only),
        ];
        prop::collection::vec((program, command), 0..5).prop_map(|all| all.into_iter().collect())
    }

    proptest! {
        /// Narrowing by tables is narrowing by verdicts.
        #[test]
        fn both_allow_what_each_allows(
            one in rules(),
            other in rules(),
            program in prop::sample::select(vec!["a", "b", "c", "sh", "bash", "./bin/a", "./bin/b", "./bin/sh", "./c", "*"]),
            first in prop::option::of("[xyz]"),
        ) {
            let line = CommandLine { program: program.to_owned(), arguments: first.into_iter().collect() };
            let each = one.check(&line).is_ok() && other.check(&line).is_ok();
            prop_assert_eq!(one.and(&other).check(&line).is_ok(), each);
        }

        /// A program that nobody named, and that no wildcard stands for, never runs.
        #[test]
        fn closed_by_default(rules in rules(), program in "[c-z]{2,6}", first in prop::option::of("[xyz]")) {
            let line = CommandLine { program, arguments: first.into_iter().collect() };
            if rules.get("*").is_none() && line.program != "sh" {
                prop_assert_eq!(rules.check(&line), Err(Objection::Program));
            }
        }
    }
}
