//! Commands against what the caller's context and the node's ceiling let run.
//!
//! The rules themselves are `aegis_core::command`; here is who is asked, in which order, and what a refusal says.

use aegis_core::{
    ToolSpec, Violation, ViolationKind,
    command::{
        ArgumentPatterns, CommandLine, CommandRules, Objection,
        arguments::{self, ArgumentObjection},
    },
    config::{Capability, CommandCeiling, security_context::Subcommands},
    redact,
    tool::Target,
};

/// Words of a caller's that a message repeats are cut here.
const LONGEST_SHOWN: usize = 120;
/// Allowed first arguments that a message lists.
const MOST_SHOWN: usize = 12;
/// A first argument that is longer is no name of a subcommand.
const LONGEST_WORD: usize = 32;

/// What holds for a call besides the capability that grants its tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds<'a> {
    /// The operator's own context runs what it likes, interpreters included; the sandbox confines it all the same.
    pub(super) unconstrained: bool,
    /// What the node lets anybody run.
    pub(super) ceiling: &'a CommandCeiling,
}

/// What a capability for a tool that runs programs needs besides the tool's name.
pub(super) fn example_for(tool: &ToolSpec) -> String {
    let programs: Vec<&str> = tool
        .targets
        .iter()
        .flat_map(|target| match target {
            Target::Command { .. } => vec!["make"],
            Target::Program { program } => vec![program.as_ref()],
            Target::Choice { programs, .. } => programs.iter().map(|(_, program)| program.as_ref()).collect(),
            _ => Vec::new(),
        })
        .collect();
    match programs.is_empty() {
        true => String::new(),
        false => format!(", command_allowlist: [{}]", programs.join(", ")),
    }
}

/// Every declaration must let the command through: several of them intersect. Without one, nothing runs.
pub(super) fn within(
    capability: &Capability,
    command: &CommandLine,
    place: &str,
    bounds: Bounds<'_>,
) -> Result<(), Violation> {
    let Capability { command_allowlist, subcommand_allowlist, argument_patterns, .. } = capability;
    if command_allowlist.is_none() && subcommand_allowlist.is_none() && !bounds.unconstrained {
        return Err(Violation::new(
            ViolationKind::CommandNotAllowed,
            format!("the program `{}` is not allowed: no command is granted", shown(&command.program)),
        )
        .rule(format!("{place} has neither command_allowlist nor subcommand_allowlist"))
        .hint(format!("an operator can grant it there: `subcommand_allowlist: {{{}}}`", entry_of(command))));
    }
    if let Some(programs) = command_allowlist {
        let list = Subcommands::List(programs.clone());
        check(&list, command, &format!("{place}.command_allowlist"))?;
    }
    if let Some(subcommands) = subcommand_allowlist {
        check(subcommands, command, &format!("{place}.subcommand_allowlist"))?;
    }
    if let Some(patterns) = argument_patterns {
        check_arguments(patterns, command, &format!("{place}.argument_patterns"))?;
    }
    let CommandCeiling { commands, argument_patterns } = bounds.ceiling;
    if let Some(commands) = commands {
        check(commands, command, "spec.exec.ceiling.commands")?;
    }
    check_arguments(argument_patterns, command, "spec.exec.ceiling.argument_patterns")
}

fn check(allowed: &Subcommands, command: &CommandLine, place: &str) -> Result<(), Violation> {
    let rules = CommandRules::of_subcommands(allowed);
    let program = shown(&command.program);
    let entry = match allowed {
        Subcommands::Map(_) => entry_of(command),
        Subcommands::List(_) => scalar(&shown(&command.program)),
    };
    let Err(objection) = rules.check(command) else { return Ok(()) };
    Err(match objection {
        Objection::Program => Violation::new(
            ViolationKind::CommandNotAllowed,
            format!("the program `{program}` is not allowed"),
        )
        .rule(place)
        .hint(format!(
            "use an allowed program ({}), or ask an operator to add `{entry}` there",
            listed(rules.iter().map(|(name, _)| name))
        )),
        Objection::Interpreter => Violation::new(
            ViolationKind::CommandNotAllowed,
            format!("`{program}` runs whatever it is given, so no wildcard covers it"),
        )
        .rule(format!(
            "{place}: `*` stands for programs that are no shells, interpreters or starters of others"
        ))
        .hint(format!("an operator can grant it by its own name, with `{entry}` there")),
        Objection::Subcommand { allowed } => Violation::new(
            ViolationKind::SubcommandNotAllowed,
            match command.first_argument() {
                Some(_) => format!("`{program} {}` is not allowed", shown_argument(command, 0)),
                None => format!("`{program}` is allowed only with certain first arguments"),
            },
        )
        .rule(format!("{place}.{program}"))
        .hint({
            let allowed = listed(allowed.iter().map(String::as_str));
            match command.first_argument() {
                Some(_) => format!(
                    "its first argument must be one of: {allowed}; an operator can add `{}`",
                    scalar(&shown_argument(command, 0))
                ),
                None => format!("its first argument must be one of: {allowed}"),
            }
        }),
    })
}

fn check_arguments(patterns: &ArgumentPatterns, command: &CommandLine, place: &str) -> Result<(), Violation> {
    let Err(objection) = arguments::check(patterns, command) else { return Ok(()) };
    let shown_word = |argument: &str| {
        let place = command.arguments.iter().position(|word| word == argument);
        place.map_or_else(|| shown(argument), |place| shown_argument(command, place))
    };
    let refused = |message: String| Violation::new(ViolationKind::SubcommandNotAllowed, message);
    Err(match objection {
        ArgumentObjection::Denied { program, argument, pattern } => refused(format!(
            "the argument `{}` of `{}` is not allowed",
            shown_word(argument),
            shown(&command.program)
        ))
        .rule(format!("{place}.{program}.deny: {pattern}"))
        .hint("leave it out; options like this one can make the program run another"),
        ArgumentObjection::NotAllowed { program, argument } => refused(format!(
            "the argument `{}` of `{}` is not among those allowed",
            shown_word(argument),
            shown(&command.program)
        ))
        .rule(format!("{place}.{program}.allow"))
        .hint("leave it out, or ask an operator to allow it there"),
    })
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    let more = names.len().saturating_sub(MOST_SHOWN);
    names.truncate(MOST_SHOWN);
    match (names.is_empty(), more) {
        (true, _) => "there are none".into(),
        (false, 0) => names.join(", "),
        (false, more) => format!("{} and {more} more", names.join(", ")),
    }
}

/// The command as an entry of a `subcommand_allowlist`: with its first argument where that is a plain word, since such
/// a grant is the smallest.
fn entry_of(command: &CommandLine) -> String {
    let program = scalar(&shown(&command.program));
    let is_plain = |first: &str| {
        first.starts_with(|letter: char| letter.is_ascii_alphabetic())
            && first.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    match command.first_argument().filter(|first| first.len() <= LONGEST_WORD && is_plain(first)) {
        Some(_) => format!("{program}: [{}]", scalar(&shown_argument(command, 0))),
        None => format!("{program}: []"),
    }
}

/// A word as YAML takes it for text.
fn scalar(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-+".contains(&byte);
    let starts_plainly =
        word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/' || first == '_');
    let meant = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    if starts_plainly && word.bytes().all(plain) && !meant.contains(&word.to_ascii_lowercase().as_str()) {
        return word.to_owned();
    }
    serde_json::Value::from(word).to_string()
}

/// An argument for people and the record: without a secret that it is or holds.
fn shown_argument(command: &CommandLine, place: usize) -> String {
    let words = redact::arguments_of(&command.program, &command.arguments[..=place]);
    words.last().map(|word| shown(word)).unwrap_or_default()
}

/// A word for people and the record.
fn shown(word: &str) -> String {
    let word = redact::words(&[word]).concat();
    match word.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NO_CEILING: CommandCeiling =
        CommandCeiling { commands: None, argument_patterns: ArgumentPatterns::new() };

    fn capability(text: &str) -> Capability {
        serde_json::from_str(&format!(r#"{{"tool_pattern": "cmd.run"{text}}}"#)).unwrap()
    }

    fn judged(capability: &Capability, command: &str, bounds: Bounds<'_>) -> Result<(), Violation> {
        within(capability, &CommandLine::parse(command, &[]).unwrap(), "x", bounds)
    }

    fn verdict(capability: &Capability, command: &str) -> Result<(), ViolationKind> {
        let bounds = Bounds { unconstrained: false, ceiling: &NO_CEILING };
        judged(capability, command, bounds).map_err(|violation| violation.kind)
    }

    #[test]
    fn map_list_and_intersection() {
        let map = capability(r#", "subcommand_allowlist": {"git": ["status"], "make": []}"#);
        assert_eq!(verdict(&map, "git status -s"), Ok(()));
        assert_eq!(verdict(&map, "git push"), Err(ViolationKind::SubcommandNotAllowed));
        assert_eq!(verdict(&map, "git"), Err(ViolationKind::SubcommandNotAllowed));
        assert_eq!(verdict(&map, "make"), Ok(()));
        assert_eq!(verdict(&map, "sh -c 'git status'"), Err(ViolationKind::CommandNotAllowed));
        let both = capability(r#", "subcommand_allowlist": ["git", "ls"], "command_allowlist": ["ls"]"#);
        assert_eq!(verdict(&both, "ls"), Ok(()));
        assert_eq!(verdict(&both, "git status"), Err(ViolationKind::CommandNotAllowed));
        let lines = capability(r#", "command_allowlist": ["pytest", "npm test"]"#);
        assert_eq!(verdict(&lines, "npm test"), Ok(()));
        assert_eq!(verdict(&lines, "npm publish"), Err(ViolationKind::SubcommandNotAllowed));
    }

    #[test]
    fn nothing_is_granted_by_silence_except_to_the_operator() {
        let silent = capability("");
        assert_eq!(verdict(&silent, "ls"), Err(ViolationKind::CommandNotAllowed));
        let operator = Bounds { unconstrained: true, ceiling: &NO_CEILING };
        assert_eq!(judged(&silent, "bash -c x", operator), Ok(()));
    }

    #[test]
    fn the_ceiling_holds_for_everybody() {
        let ceiling: CommandCeiling = serde_json::from_str(
            r#"{"commands": {"*": [], "git": ["status"]}, "argument_patterns": {"*": {"deny": ["--output*"]}}}"#,
        )
        .unwrap();
        let bounds = Bounds { unconstrained: true, ceiling: &ceiling };
        let verdict = |line: &str| judged(&capability(""), line, bounds).map_err(|violation| violation.kind);
        assert_eq!(verdict("make all"), Ok(()));
        assert_eq!(verdict("git push"), Err(ViolationKind::SubcommandNotAllowed));
        assert_eq!(verdict("python3 x.py"), Err(ViolationKind::CommandNotAllowed));
        assert_eq!(verdict("sort --output=x"), Err(ViolationKind::SubcommandNotAllowed));
    }

    #[test]
    fn refusals_say_what_where_and_what_to_do() {
        let git = capability(
            r#", "subcommand_allowlist": {"git": ["diff", "log"]}, "argument_patterns": {"git": {"deny": ["-O*"]}}"#,
        );
        let bounds = Bounds { unconstrained: false, ceiling: &NO_CEILING };
        let refused = judged(&git, "git push origin", bounds).unwrap_err();
        assert_eq!(refused.message, "`git push` is not allowed");
        assert_eq!(refused.rule.as_deref(), Some("x.subcommand_allowlist.git"));
        assert_eq!(
            refused.hint.as_deref(),
            Some("its first argument must be one of: diff, log; an operator can add `push`")
        );
        let refused = judged(&git, "git log -Osh", bounds).unwrap_err();
        assert_eq!(refused.rule.as_deref(), Some("x.argument_patterns.git.deny: -O*"));
        let long = format!("git {}", "x".repeat(5000));
        assert!(judged(&git, &long, bounds).unwrap_err().message.len() < 300);
    }

    #[test]
    fn a_refusal_holds_the_entry_that_would_grant_it() {
        let bounds = Bounds { unconstrained: false, ceiling: &NO_CEILING };
        let hint =
            |capability: &Capability, line: &str| judged(capability, line, bounds).unwrap_err().hint.unwrap();
        let silent = capability("");
        for (line, entry) in [
            ("git push origin", "{git: [push]}"),
            ("make -j4", "{make: []}"),
            ("'my tool' x", r#"{"my tool": [x]}"#),
            ("true", r#"{"true": []}"#),
            ("./run.sh yes", r#"{"./run.sh": ["yes"]}"#),
        ] {
            let hint = hint(&silent, line);
            assert!(hint.ends_with(&format!("`subcommand_allowlist: {entry}`")), "{hint}");
            // It reads back as a grant of that very command.
            let granting = capability(&format!(r#", "subcommand_allowlist": {}"#, as_json(entry)));
            assert_eq!(verdict(&granting, line), Ok(()), "{entry}");
        }
        let map = capability(r#", "subcommand_allowlist": {"git": ["status"]}"#);
        assert!(hint(&map, "ls -a").contains("add `ls: []` there"));
        assert!(hint(&map, "git push").ends_with("an operator can add `push`"));
        let list = capability(r#", "command_allowlist": ["git", "*"]"#);
        assert!(hint(&list, "bash -c x").contains("`bash`"));
    }

    fn as_json(entry: &str) -> serde_json::Value {
        aegis_core::document::parse::<serde_json::Value>(entry).unwrap().value
    }

    #[test]
    fn no_refusal_repeats_a_secret() {
        let narrow = capability(
            r#", "subcommand_allowlist": {"curl": ["-s"], "psql": []}, "argument_patterns": {"psql": {"allow": ["-h*"]}}"#,
        );
        let bounds = Bounds { unconstrained: false, ceiling: &NO_CEILING };
        for line in [
            "curl --token=s3cr3t-word",
            "psql -c --password s3cr3t-word",
            "psql -c PGPASSWORD=s3cr3t-word",
            "PGPASSWORD=s3cr3t-word psql",
        ] {
            let refused = judged(&narrow, line, bounds).unwrap_err();
            assert!(!format!("{refused:?}").contains("s3cr3t-word"), "{refused:?}");
        }
    }

    proptest! {
        /// No second list, pattern or ceiling ever lets through what one refuses.
        #[test]
        fn declarations_only_narrow(
            first in prop::collection::vec("[ab*]|a x|b y", 0..3),
            second in prop::option::of(prop::collection::vec("[ab*]|a x|b y", 0..3)),
            cap in prop::option::of(prop::collection::vec("[ab*]|a x|b y", 0..3)),
            line in "(a|b|sh|c)( x| y)?",
        ) {
            let mut alone = capability("");
            alone.command_allowlist = Some(first);
            let mut narrowed = alone.clone();
            narrowed.subcommand_allowlist = second.map(Subcommands::List);
            let ceiling = CommandCeiling { commands: cap.map(Subcommands::List), ..NO_CEILING };
            let wide = Bounds { unconstrained: false, ceiling: &NO_CEILING };
            let low = Bounds { unconstrained: false, ceiling: &ceiling };
            if judged(&narrowed, &line, low).is_ok() {
                prop_assert!(judged(&alone, &line, wide).is_ok());
                prop_assert!(!line.starts_with("sh"));
            }
        }
    }
}
