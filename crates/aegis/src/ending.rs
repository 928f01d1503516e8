//! How a command ends: the one table of exit codes.

use std::{fmt::Write as _, process::ExitCode};

use aegis_core::{ViolationKind, violation::Layer};

/// Exit codes that scripts can rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Done,
    Failed,
    /// Clap uses the same code.
    Usage,
    Denied,
    Waiting,
}

impl Ending {
    pub const ALL: [Self; 5] = [Self::Done, Self::Failed, Self::Usage, Self::Denied, Self::Waiting];

    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Denied => 3,
            Self::Waiting => 4,
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => {
                "failed: a tool, the node or the state of things stood in the way, or a check found something"
            }
            Self::Usage => "bad usage: an option, an argument, or a name that is not there",
            Self::Denied => "denied: by policy, by an approver, or because nobody decided in time",
            Self::Waiting => "waiting: a person has to agree first",
        }
    }

    /// How a command ends whose request was refused like this.
    pub fn of(kind: ViolationKind) -> Self {
        match (kind, kind.layer()) {
            (ViolationKind::ToolNotFound, _) => Self::Usage,
            // The command was right; things are not as it takes them to be.
            (ViolationKind::Conflict | ViolationKind::ApprovalDecided, _) => Self::Failed,
            (_, Layer::Policy | Layer::Routing) => Self::Denied,
            (_, Layer::Contract) => Self::Usage,
            (_, Layer::Identity | Layer::Node) => Self::Failed,
        }
    }
}

impl From<Ending> for ExitCode {
    fn from(ending: Ending) -> Self {
        Self::from(ending.code())
    }
}

/// The exit codes, as `aegis help` shows them.
pub fn table() -> String {
    Ending::ALL.iter().fold("Exit codes:".to_owned(), |mut table, ending| {
        let _ = write!(table, "\n  {}  {}", ending.code(), ending.meaning());
        table
    })
}

/// A mistake of whoever typed the command, and what to type instead.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Mistake {
    pub message: String,
    pub next: Option<String>,
}

impl Mistake {
    pub fn new(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { message: message.into(), next: Some(next.into()) }
    }

    /// Words that the command line does not have, as clap tells of them.
    pub fn misread(told: &str) -> Self {
        let message = told.trim().trim_start_matches("error: ").to_owned();
        Self { message, next: Some("aegis help, or --help after a command, shows what there is".to_owned()) }
    }
}

/// What stands in the way of a command that is right, and how it is cleared away.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Obstacle {
    pub message: String,
    pub next: String,
}

impl Obstacle {
    pub fn new(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { message: message.into(), next: next.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_the_same_codes() {
        let guide = include_str!("../../../docs/guide.md");
        for ending in Ending::ALL {
            let row = format!("| {} | {} |\n", ending.code(), ending.meaning());
            assert!(guide.contains(&row), "docs/guide.md lacks: {row}");
        }
    }

    #[test]
    fn only_rules_and_people_deny() {
        for kind in ViolationKind::ALL {
            let denied = Ending::of(*kind) == Ending::Denied;
            assert!(!denied || kind.http_status() == 403, "{kind}");
        }
        assert_eq!(Ending::of(ViolationKind::UnknownName), Ending::Usage);
        assert_eq!(Ending::of(ViolationKind::ToolNotFound), Ending::Usage);
        assert_eq!(Ending::of(ViolationKind::Conflict), Ending::Failed);
    }
}
