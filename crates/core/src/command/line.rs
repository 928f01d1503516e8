//! A program with its arguments, split before any rule looks at it.

/// The kernel takes no longer one (`MAX_ARG_STRLEN`, with its NUL).
pub const LONGEST_ARGUMENT: usize = (128 << 10) - 1;
/// All words together. The kernel takes 2 MiB with the environment; nothing that is meant needs half of it.
pub const LONGEST_COMMAND: usize = 1 << 20;

/// What will be executed, word by word. Never a line for a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    pub program: String,
    pub arguments: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCommand {
    #[error("it names no program")]
    Empty,
    #[error("it has an unclosed quote, or ends in a backslash")]
    Unclosed,
    #[error("it has a NUL character, which no argument can hold")]
    Nul,
    #[error("one word of it has {0} bytes; {LONGEST_ARGUMENT} is the limit")]
    ArgumentTooLong(usize),
    #[error("its words have {0} bytes together; {LONGEST_COMMAND} is the limit")]
    TooLong(usize),
    #[error(
        "`{0}` has a meaning to shells only, and no shell reads this: give program and arguments apart, quote it if it is \
         meant as it stands, or run a shell that is granted to you"
    )]
    ForAShell(String),
}

impl CommandLine {
    /// `command` with arguments is the program itself. Without any it is a whole line, split by POSIX rules.
    pub fn parse(command: &str, arguments: &[String]) -> Result<Self, BadCommand> {
        let length = arguments.iter().map(String::len).sum::<usize>() + command.len();
        if length > LONGEST_COMMAND {
            return Err(BadCommand::TooLong(length));
        }
        let words = if arguments.is_empty() {
            for_no_shell(command)?;
            shlex::split(command).ok_or(BadCommand::Unclosed)?
        } else {
            std::iter::once(command).chain(arguments.iter().map(String::as_str)).map(str::to_owned).collect()
        };
        if words.iter().any(|word| word.contains('\0')) {
            return Err(BadCommand::Nul);
        }
        if let Some(long) = words.iter().find(|word| word.len() > LONGEST_ARGUMENT) {
            return Err(BadCommand::ArgumentTooLong(long.len()));
        }
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.trim().is_empty()).ok_or(BadCommand::Empty)?;
        Ok(Self { program, arguments: words.collect() })
    }

    /// What policy calls the subcommand.
    pub fn first_argument(&self) -> Option<&str> {
        self.arguments.first().map(String::as_str)
    }

    /// The last component of the program's name.
    pub fn program_name(&self) -> &str {
        self.program.rsplit('/').next().unwrap_or_default()
    }

    /// For people: every word quoted where it needs it.
    pub fn shown(&self) -> String {
        std::iter::once(&self.program)
            .chain(&self.arguments)
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// So that a person sees where a word begins and ends.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Refuses what a shell would act on. Split into plain words it would do something else than its writer meant.
fn for_no_shell(line: &str) -> Result<(), BadCommand> {
    let refused = |text: &str| Err(BadCommand::ForAShell(text.to_owned()));
    let mut characters = line.chars().peekable();
    let (mut double, mut at_word_start) = (false, true);
    while let Some(character) = characters.next() {
        let starts_word = std::mem::replace(&mut at_word_start, false);
        match character {
            '\\' => {
                characters.next();
            }
            '\'' if !double => while characters.next().is_some_and(|inside| inside != '\'') {},
            '"' => double = !double,
            '`' => return refused("`"),
            '$' => {
                let expands = |next: &char| next.is_ascii_alphanumeric() || "_{(?!#@*$-".contains(*next);
                if let Some(next) = characters.peek().filter(|next| expands(next)) {
                    return refused(&format!("${next}"));
                }
            }
            ';' | '&' | '|' | '<' | '>' | '(' | ')' if !double => {
                let mut operator = character.to_string();
                operator.extend(characters.next_if(|next| ";&|<>".contains(*next)));
                return refused(&operator);
            }
            // A line break ends a command; before and after it all white space is the same.
            '\n' if !double => {
                if characters.clone().any(|rest| !rest.is_whitespace()) {
                    return refused("a line break");
                }
                at_word_start = true;
            }
            // Shells read no further.
            '#' if !double && starts_word => return Ok(()),
            other => at_word_start = !double && other.is_whitespace(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(line: &str) -> Result<Vec<String>, BadCommand> {
        CommandLine::parse(line, &[]).map(|line| [vec![line.program], line.arguments].concat())
    }

    #[test]
    fn lines_are_split_as_a_shell_would() {
        assert_eq!(parsed("'git' \"st\"atus  -s").unwrap(), ["git", "status", "-s"]);
        assert_eq!(parsed("grep 'a|b' x\\;y").unwrap(), ["grep", "a|b", "x;y"]);
        assert_eq!(
            parsed("grep \"end$\" \"a>b\" \\$HOME '$(x)'").unwrap(),
            ["grep", "end$", "a>b", "$HOME", "$(x)"]
        );
        assert_eq!(parsed(" make test \n").unwrap(), ["make", "test"]);
        assert_eq!(parsed("ls # ; not read").unwrap(), ["ls"]);
        assert_eq!(parsed("echo a#b").unwrap(), ["echo", "a#b"]);
    }

    #[test]
    fn what_only_shells_understand_is_refused() {
        for line in [
            "git && curl x",
            "git status; rm x",
            "a|b",
            "a > b",
            "a &",
            "echo $HOME",
            "echo \"$HOME\"",
            "echo `id`",
            "echo \"`id`\"",
            "echo $(id)",
            "(ls)",
            "ls\nrm x",
            "cat <(ls)",
        ] {
            assert!(matches!(parsed(line), Err(BadCommand::ForAShell(_))), "{line}: {:?}", parsed(line));
        }
    }

    #[test]
    fn what_can_be_no_command() {
        assert_eq!(parsed(""), Err(BadCommand::Empty));
        assert_eq!(parsed("   "), Err(BadCommand::Empty));
        assert_eq!(parsed("''"), Err(BadCommand::Empty));
        assert_eq!(parsed("'unclosed"), Err(BadCommand::Unclosed));
        assert_eq!(parsed("a\0b"), Err(BadCommand::Nul));
        let word = |text: &str| vec![text.to_owned()];
        assert_eq!(CommandLine::parse("a", &word("\0")), Err(BadCommand::Nul));
        assert_eq!(CommandLine::parse("", &word("a")), Err(BadCommand::Empty));
        let long = "x".repeat(LONGEST_ARGUMENT + 1);
        assert_eq!(CommandLine::parse("a", &word(&long)), Err(BadCommand::ArgumentTooLong(long.len())));
        let huge = vec!["x".repeat(1 << 20); 2];
        assert_eq!(CommandLine::parse("a", &huge), Err(BadCommand::TooLong((2 << 20) + 1)));
    }

    #[test]
    fn with_arguments_nothing_is_split() {
        let line = CommandLine::parse("git status", &["; rm -rf /".to_owned()]).unwrap();
        assert_eq!((line.program.as_str(), line.first_argument()), ("git status", Some("; rm -rf /")));
        assert_eq!(line.shown(), "'git status' '; rm -rf /'");
    }

    proptest! {
        /// Whatever is shown to a person is what runs.
        #[test]
        fn what_is_shown_reads_back(words in prop::collection::vec("[^\0]{0,12}", 1..6)) {
            prop_assume!(!words[0].trim().is_empty() && words.len() > 1);
            let line = CommandLine::parse(&words[0], &words[1..]).unwrap();
            prop_assert_eq!(CommandLine::parse(&line.shown(), &[]).unwrap(), line);
        }

        /// A line that is taken means to a shell what it means here: one command with these words.
        #[test]
        fn operators_outside_quotes_never_pass(before in "[a-z ]{1,8}", operator in "[;&|<>()`]", after in "[a-z ]{0,8}") {
            let line = format!("{before}{operator}{after}");
            prop_assert!(parsed(&line).is_err());
        }

        #[test]
        fn taken_lines_are_split_by_posix_rules(line in "[a-z'\"\\\\ ;$#|\n]{0,24}") {
            if let Ok(words) = parsed(&line) {
                prop_assert_eq!(Some(words), shlex::split(&line));
            }
        }
    }
}
