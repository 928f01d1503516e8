use clap::{Command, CommandFactory};

use super::*;

fn walk(command: &Command, path: &str, look: &mut dyn FnMut(&Command, &str)) {
    look(command, path);
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        walk(inner, &format!("{path} {}", inner.get_name()), look);
    }
}

/// What is missing from the manual.
fn gaps(look: impl Fn(&Command) -> Vec<String>) -> Vec<String> {
    let mut root = Cli::command();
    root.build();
    let mut gaps = Vec::new();
    walk(&root, "aegis", &mut |command, path| {
        gaps.extend(look(command).into_iter().map(|gap| format!("{path}: {gap}")));
    });
    gaps
}

#[test]
fn every_command_and_argument_says_what_it_is() {
    let silent = gaps(|command| {
        let about = command.get_about().is_none().then(|| "no help".to_owned());
        let arguments = command.get_arguments().filter(|argument| argument.get_help().is_none());
        about.into_iter().chain(arguments.map(|argument| argument.get_id().to_string())).collect()
    });
    assert_eq!(silent, Vec::<String>::new());
}

#[test]
fn every_command_that_does_something_has_an_example() {
    let without = gaps(|command| {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let shown = help.lines().any(|line| {
            let words = line.trim_start();
            line.starts_with("  ") && words.contains("aegis ") && words.contains(command.get_name())
        });
        (!command.has_subcommands() && !shown).then(|| "no example".to_owned()).into_iter().collect()
    });
    assert_eq!(without, Vec::<String>::new());
}

/// An example that can't be typed is worse than none.
#[test]
fn examples_are_commands_that_there_are() {
    let wrong = gaps(|command| {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = help.lines().filter_map(|line| line.strip_prefix("  aegis ")).collect();
        let plain = lines.into_iter().filter(|line| !line.contains(['\'', '"', '|', '>', '$', '&']));
        plain
            .filter_map(|line| {
                let words = line.split("   #").next().unwrap_or_default().split_whitespace();
                let parsed = Cli::try_parse_from(std::iter::once("aegis").chain(words));
                parsed.err().map(|error| format!("`{line}`: {error}"))
            })
            .collect()
    });
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_port_is_an_address_of_this_machine() {
    for text in ["8392", ":8392", "localhost:8392", "127.0.0.1:8392"] {
        assert_eq!(address(text).unwrap().to_string(), "127.0.0.1:8392");
    }
    assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
    for text in ["", "127.0.0.1", "83920", "example.org:80", "::"] {
        assert!(address(text).unwrap_err().contains("such as 127.0.0.1:8392"), "{text}");
    }
}

#[test]
fn close_words_for_a_verdict_are_taken() {
    for (word, verdict) in [
        ("denied", Verdict::Refused),
        ("ok", Verdict::Done),
        ("error", Verdict::Failed),
        ("done", Verdict::Done),
    ] {
        let parsed = Cli::try_parse_from(["aegis", "audit", "tail", "--verdict", word]).unwrap();
        let super::Command::Audit(Audit::Tail { verdict: found, .. }) = parsed.command else {
            panic!("{word}")
        };
        assert_eq!(found, Some(verdict), "{word}");
    }
}
