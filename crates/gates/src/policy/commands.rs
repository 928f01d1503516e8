//! The three ways to write a command allowlist, lowered to one: program → any first argument, or these.

use std::collections::{BTreeMap, BTreeSet};

use aegis_core::{
    Violation, ViolationKind,
    config::{Capability, security_context::Subcommands},
};

/// A program with its arguments, split before any rule looks at it. Never a shell line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) program: String,
    pub(super) first_argument: Option<String>,
}

impl CommandLine {
    /// `command` alone is split by POSIX rules; with `args` it is the program itself.
    pub(super) fn parse(command: &str, args: Option<&[String]>) -> Option<Self> {
        let mut words = match args {
            Some(args) => std::iter::once(command.to_owned()).chain(args.iter().cloned()).collect(),
            None => shlex::split(command)?,
        }
        .into_iter();
        let program = words.next().filter(|program| !program.is_empty())?;
        Some(Self { program, first_argument: words.next() })
    }
}

/// `None` for a program: any first argument, or none.
type Rules<'a> = BTreeMap<&'a str, Option<BTreeSet<&'a str>>>;

/// Every declaration must let the command through: several of them intersect.
pub(super) fn within(capability: &Capability, command: &CommandLine, place: &str) -> Result<(), Violation> {
    if let Some(programs) = &capability.command_allowlist {
        let rules = programs.iter().map(|program| (program.as_str(), None)).collect();
        check(&rules, command, &format!("{place}.command_allowlist"))?;
    }
    if let Some(subcommands) = &capability.subcommand_allowlist {
        let rules: Rules<'_> = match subcommands {
            Subcommands::Map(map) => map
                .iter()
                .map(|(program, firsts)| {
                    let firsts: BTreeSet<&str> = firsts.iter().map(String::as_str).collect();
                    (program.as_str(), (!firsts.is_empty()).then_some(firsts))
                })
                .collect(),
            Subcommands::List(programs) => programs.iter().map(|program| (program.as_str(), None)).collect(),
        };
        check(&rules, command, &format!("{place}.subcommand_allowlist"))?;
    }
    Ok(())
}

fn check(rules: &Rules<'_>, command: &CommandLine, place: &str) -> Result<(), Violation> {
    let Some(firsts) = rules.get(command.program.as_str()) else {
        return Err(Violation::new(
            ViolationKind::CommandNotAllowed,
            format!("the program `{}` is not allowed", command.program),
        )
        .rule(place));
    };
    let Some(firsts) = firsts else { return Ok(()) };
    match &command.first_argument {
        Some(first) if firsts.contains(first.as_str()) => Ok(()),
        first => Err(Violation::new(
            ViolationKind::SubcommandNotAllowed,
            match first {
                Some(first) => format!("`{} {first}` is not allowed", command.program),
                None => format!("`{}` is allowed only with certain first arguments", command.program),
            },
        )
        .rule(format!("{place}.{}", command.program))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capability(text: &str) -> Capability {
        serde_json::from_str(&format!(r#"{{"tool_pattern": "cmd.run", {text}}}"#)).unwrap()
    }

    fn verdict(capability: &Capability, command: &str) -> Result<(), ViolationKind> {
        within(capability, &CommandLine::parse(command, None).unwrap(), "x").map_err(|v| v.kind)
    }

    #[test]
    fn map_list_and_intersection() {
        let map = capability(r#""subcommand_allowlist": {"git": ["status"], "make": []}"#);
        assert_eq!(verdict(&map, "git status -s"), Ok(()));
        assert_eq!(verdict(&map, "git push"), Err(ViolationKind::SubcommandNotAllowed));
        assert_eq!(verdict(&map, "git"), Err(ViolationKind::SubcommandNotAllowed));
        assert_eq!(verdict(&map, "make"), Ok(()));
        assert_eq!(verdict(&map, "sh -c 'git status'"), Err(ViolationKind::CommandNotAllowed));
        let both = capability(r#""subcommand_allowlist": ["git", "ls"], "command_allowlist": ["ls"]"#);
        assert_eq!(verdict(&both, "ls"), Ok(()));
        assert_eq!(verdict(&both, "git status"), Err(ViolationKind::CommandNotAllowed));
    }

    #[test]
    fn splitting_happens_before_the_rules() {
        let given =
            |text: &str| CommandLine::parse(text, None).map(|line| (line.program, line.first_argument));
        assert_eq!(given("'git' \"st\"atus"), Some(("git".into(), Some("status".into()))));
        assert_eq!(given("git && curl"), Some(("git".into(), Some("&&".into()))));
        assert_eq!(given(""), None);
        assert_eq!(given("'unclosed"), None);
        let line = CommandLine::parse("git status", Some(&[]));
        assert_eq!(line.map(|line| line.program), Some("git status".into()));
    }
}
