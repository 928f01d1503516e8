//! Programs whose short options say more than their letters do.

/// What is known of the program that words are given to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Program {
    kind: Kind,
    /// Which of `PASSWORD_OPTIONS` are followed by a password, with or without a blank between. A bit for each, and it
    /// only gets more of them: a later word that happens to be a program's name takes nothing away.
    options: u8,
    /// Whether it takes several letters after one dash, as `curl -su ann:pw`. Stays once it is so, like those.
    clusters: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `-u ann:pw` may be a name and a password.
    Unknown,
    /// Its `-u` has nothing to do with passwords.
    Harmless,
    /// Such a one that takes a password after `login`.
    Containers,
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

/// Options of curl that have no value, and may stand in one word before another.
const FLAGS: &[u8] = b"aBfgGiIjJklLMnNOpqRsSvVZ#0123456:";

/// The same of MySQL's programs.
const VALUELESS: &[u8] = b"ABCEfGHinNqrstvVwX";

/// Words before the name of a program.
const BEFORE: [&str; 8] = ["sudo", "env", "xargs", "time", "nohup", "exec", "command", "nice"];

impl Program {
    pub(super) const UNKNOWN: Self = Self { kind: Kind::Unknown, options: 0, clusters: false };

    /// The program that a word names, by its last part.
    pub(super) fn named(word: &str) -> Self {
        let name = word.split_whitespace().next().unwrap_or_default();
        let name = name.trim_matches(['"', '\'']).rsplit('/').next().unwrap_or_default();
        let kind = match name {
            name if CONTAINERS.contains(&name) => Kind::Containers,
            name if HARMLESS.contains(&name) => Kind::Harmless,
            _ => Kind::Unknown,
        };
        Self { kind, options: options(|_, programs| programs.contains(&name)), clusters: name == "curl" }
    }

    /// What is known after another of its words.
    pub(super) fn having(self, word: &str) -> Self {
        // Wherever it stands: that something is hidden too much is the smaller harm.
        let named = Self::named(word);
        let mut known = self.options | named.options;
        if self.kind == Kind::Containers && word == "login" {
            known |= options(|option, _| option == "-p");
        }
        Self { options: known, clusters: self.clusters || named.clusters, ..self }
    }

    /// Whether a name and a password may follow this option.
    pub(super) fn is_user_option(self, word: &str) -> bool {
        let clustered = || self.clustered_user(word).is_some_and(str::is_empty);
        (USERS.contains(&word) && !(self.is_harmless() && word == "-u")) || clustered()
    }

    /// The value of an option for a name and a password that is one word with it: `-uann:pw`, `--user=ann:pw`.
    pub(super) fn joined_user(self, word: &str) -> Option<&str> {
        let joined = USERS.iter().find_map(|option| {
            let rest = word.strip_prefix(option)?;
            match option.starts_with("--") {
                true => rest.strip_prefix('='),
                false => (!(self.is_harmless() && *option == "-u")).then_some(rest),
            }
        });
        joined.or_else(|| self.clustered_user(word))
    }

    /// What follows the option for a name and a password, where others stand in the same word before it.
    fn clustered_user(self, word: &str) -> Option<&str> {
        let letters = word.strip_prefix('-').filter(|_| self.clusters)?;
        letters
            .trim_start_matches(|letter: char| letter.is_ascii() && FLAGS.contains(&(letter as u8)))
            .strip_prefix(['u', 'U'])
    }

    /// What follows an option for a password within the same word; empty when the next word is it.
    pub(super) fn password(self, word: &str) -> Option<&str> {
        let known = PASSWORD_OPTIONS.iter().enumerate().filter(|(bit, _)| self.options & (1 << bit) != 0);
        known.map(|(_, (option, _))| option).find_map(|option| {
            word.strip_prefix(option).or_else(|| match *option {
                "-p" => clustered_password(word),
                _ => None,
            })
        })
    }

    fn is_harmless(self) -> bool {
        self.kind != Kind::Unknown && self.options == 0
    }
}

/// What follows `-p` where options without a value stand in the same word before it: `mysql -vpX`. One that nothing
/// follows asks for the password.
fn clustered_password(word: &str) -> Option<&str> {
    let letters = word.strip_prefix('-').filter(|letters| !letters.starts_with('-'))?;
    let rest =
        letters.trim_start_matches(|letter: char| letter.is_ascii() && VALUELESS.contains(&(letter as u8)));
    rest.strip_prefix('p').filter(|password| rest.len() < letters.len() && !password.is_empty())
}

/// The bits of those that are meant.
fn options(meant: impl Fn(&str, &[&str]) -> bool) -> u8 {
    let bits = PASSWORD_OPTIONS.iter().enumerate();
    bits.filter(|(_, (option, programs))| meant(option, programs)).fold(0, |all, (bit, _)| all | 1 << bit)
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
