//! Programs whose short options say more than their letters do.

/// What is known of the program that words are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// `-u ann:pw` may be a name and a password.
    Unknown,
    /// Its `-u` has nothing to do with passwords.
    Harmless,
    /// Such a one that takes a password after `login`.
    Containers,
    /// This option is followed by a password, with or without a blank between.
    TakesPassword(&'static str),
}

/// Options whose value is a name, a colon and a password.
const USERS: [&str; 4] = ["-u", "-U", "--user", "--proxy-user"];

const PASSWORD_OPTIONS: [(&str, &[&str]); 5] = [
    (
        "-p",
        &[
            "mysql",
            "mysqldump",
            "mysqladmin",
            "mysqlimport",
            "mysqlcheck",
            "mysqlshow",
            "mariadb",
            "mariadb-dump",
            "mariadb-admin",
            "mongo",
            "mongosh",
            "mongodump",
            "mongorestore",
            "sshpass",
            "7z",
            "7za",
        ],
    ),
    ("-P", &["zip", "unzip", "sqlcmd", "bcp"]),
    ("-a", &["redis-cli", "valkey-cli"]),
    ("-w", &["ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldappasswd", "ldapwhoami"]),
    ("-A", &["ab"]),
];

const CONTAINERS: [&str; 4] = ["docker", "podman", "nerdctl", "buildah"];

/// Only those that nobody gives a password to.
const HARMLESS: [&str; 8] = ["sort", "uniq", "id", "ps", "ls", "du", "date", "tar"];

/// Words before the name of a program.
const BEFORE: [&str; 8] = ["sudo", "env", "xargs", "time", "nohup", "exec", "command", "nice"];

impl Program {
    /// The program that a word names, by its last part.
    pub(super) fn named(word: &str) -> Self {
        let name = word.split_whitespace().next().unwrap_or_default();
        let name = name.trim_matches(['"', '\'']).rsplit('/').next().unwrap_or_default();
        if let Some((option, _)) = PASSWORD_OPTIONS.iter().find(|(_, programs)| programs.contains(&name)) {
            return Self::TakesPassword(option);
        }
        match name {
            name if CONTAINERS.contains(&name) => Self::Containers,
            name if HARMLESS.contains(&name) => Self::Harmless,
            _ => Self::Unknown,
        }
    }

    /// What is known after another of its words.
    pub(super) fn having(self, word: &str) -> Self {
        match (self, Self::named(word)) {
            (Self::Containers, _) if word == "login" => Self::TakesPassword("-p"),
            // Wherever it stands: that something is hidden too much is the smaller harm.
            (_, takes @ Self::TakesPassword(_)) => takes,
            (known, _) => known,
        }
    }

    /// Whether a name and a password may follow this option.
    pub(super) fn is_user_option(self, word: &str) -> bool {
        USERS.contains(&word) && !(self.is_harmless() && word == "-u")
    }

    /// The value of an option for a name and a password that is one word with it: `-uann:pw`, `--user=ann:pw`.
    pub(super) fn joined_user(self, word: &str) -> Option<&str> {
        USERS.iter().find_map(|option| {
            let rest = word.strip_prefix(option)?;
            match option.starts_with("--") {
                true => rest.strip_prefix('='),
                false => (!(self.is_harmless() && *option == "-u")).then_some(rest),
            }
        })
    }

    /// What follows the program's option for a password within the same word; empty when the next word is it.
    pub(super) fn password(self, word: &str) -> Option<&str> {
        match self {
            Self::TakesPassword(option) => word.strip_prefix(option),
            _ => None,
        }
    }

    fn is_harmless(self) -> bool {
        matches!(self, Self::Harmless | Self::Containers)
    }
}

/// Whether the name of a program may follow this word, which stood where one may stand.
pub(super) fn goes_before(word: &str) -> bool {
    let is_variable = word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    });
    is_variable || BEFORE.contains(&word)
}

/// Whether a command ends with this word.
pub(super) fn ends_command(word: &str) -> bool {
    word.ends_with([';', '|', '&', '(', '{']) || matches!(word, "then" | "do" | "else")
}
