//! What is wrong with a log, said so that a person can find it.

use std::fmt;

use serde::Serialize;

use crate::audit::head::HeadFault;

/// The first thing that is wrong. What lies before it is sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
pub struct Fault {
    /// The first bad record; where a head is at fault, the last record that it covers.
    pub seq: u64,
    /// The last record that the fault is about.
    pub through: u64,
    #[serde(flatten)]
    pub kind: FaultKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "kebab-case")]
pub enum FaultKind {
    /// The content does not match the hash it was stored with.
    Changed,
    /// Records are missing.
    Removed,
    /// The records do not belong here: those that follow were written without them.
    Inserted,
    /// The record that belongs here stands elsewhere.
    Reordered { found_at: u64 },
    /// The log ends before what a signed head covers.
    Truncated { head: u64 },
    /// An exported file ends before the number of records it announces.
    CutOff { announced: u64 },
    /// The records chain, but are not those that were signed: the chain was rewritten. The bad record is in the
    /// range.
    Rewritten { head: u64 },
    /// The log does not contain the history that a head kept elsewhere proves.
    NotAsKept { head: u64 },
    /// A head was not signed with the key.
    BadSignature { head: u64 },
    /// A head was signed with another key than the one given.
    WrongKey { head: u64 },
    /// A head can't be read, or stands where it does not belong.
    MalformedHead { head: u64 },
    /// A line of an exported file is neither a record nor a head.
    MalformedLine { line: u64 },
}

impl Fault {
    pub(in crate::audit) fn at(seq: u64, kind: FaultKind) -> Self {
        Self { seq, through: seq, kind }
    }

    #[must_use]
    pub(in crate::audit) fn through(mut self, seq: u64) -> Self {
        self.through = seq;
        self
    }

    pub(in crate::audit) fn of_head(head: u64, fault: HeadFault) -> Self {
        Self::at(
            head,
            match fault {
                HeadFault::Malformed => FaultKind::MalformedHead { head },
                HeadFault::WrongKey => FaultKind::WrongKey { head },
                HeadFault::BadSignature => FaultKind::BadSignature { head },
            },
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = |f: &mut fmt::Formatter<'_>, one: &str, many: &str| {
            if self.seq == self.through {
                write!(f, "record {} {one}", self.seq)
            } else {
                write!(f, "records {} to {} {many}", self.seq, self.through)
            }
        };
        match self.kind {
            FaultKind::Changed => records(
                f,
                "was changed: its hash does not follow from its content and the record before it",
                "were changed",
            ),
            FaultKind::Removed => records(f, "was removed", "were removed"),
            FaultKind::Inserted => records(
                f,
                "was inserted: the records around it were written without it",
                "were inserted: the records around them were written without them",
            ),
            FaultKind::Reordered { found_at } => {
                write!(f, "record {} was moved: what belongs there stands at {found_at}", self.seq)
            }
            FaultKind::Truncated { head } => {
                records(f, "is missing", "are missing")?;
                write!(f, ": the log was cut off, for a signed head covers {head} records")
            }
            FaultKind::CutOff { announced } => {
                records(f, "is missing", "are missing")?;
                write!(f, ": the file announces {announced} and ends before")
            }
            FaultKind::Rewritten { head } => write!(
                f,
                "the chain was rewritten: the first {head} records are not those that were signed, and the first bad \
                 one is among {} to {}",
                self.seq, self.through
            ),
            FaultKind::NotAsKept { head } => write!(
                f,
                "the log is not the one the kept head was signed over: its first {head} records differ, and the first \
                 bad one is among {} to {}",
                self.seq, self.through
            ),
            FaultKind::BadSignature { head } => {
                write!(f, "the head over {head} records is forged: its signature is not the key's")
            }
            FaultKind::WrongKey { head } => {
                write!(f, "the head over {head} records was signed with another key than the one given")
            }
            FaultKind::MalformedHead { head } => {
                write!(f, "the head over {head} records can't be read, or stands in the wrong place")
            }
            FaultKind::MalformedLine { line } => {
                write!(f, "line {line}, where record {} belongs, is neither a record nor a head", self.seq)
            }
        }
    }
}
