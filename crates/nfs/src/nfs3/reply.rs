use bytes::Bytes;

use super::{Procedure, Stability, Status, Time};
use crate::xdr::Encoder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File = 1,
    Directory = 2,
    BlockDevice = 3,
    CharacterDevice = 4,
    Link = 5,
    Socket = 6,
    Fifo = 7,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    pub kind: Kind,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub used: u64,
    pub file_system: u64,
    pub number: u64,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
}

/// What a client compares to see whether somebody else changed the file in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    pub before: Option<Before>,
    pub after: Option<Attributes>,
}

/// An entry that was found or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub handle: Vec<u8>,
    pub attributes: Attributes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub attributes: Attributes,
    pub data: Bytes,
    pub end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub change: Change,
    pub count: u32,
    pub stability: Stability,
    pub verifier: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub number: u64,
    pub name: Vec<u8>,
    pub cookie: u64,
    /// For READDIRPLUS, where the entry may be looked at.
    pub found: Option<Found>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub directory: Attributes,
    pub verifier: u64,
    pub entries: Vec<DirectoryEntry>,
    pub end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystem {
    pub attributes: Attributes,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub total_files: u64,
    pub free_files: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub attributes: Attributes,
    pub transfer: u32,
    pub largest_file: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathFacts {
    pub attributes: Attributes,
    pub longest_name: u32,
}

/// The result of a call that succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Null,
    Attributes(Attributes),
    Changed(Change),
    Found { found: Found, directory: Option<Attributes> },
    Access { attributes: Attributes, allowed: u32 },
    Target { attributes: Attributes, target: Vec<u8> },
    Piece(Piece),
    Written(Written),
    Made { found: Found, directory: Change },
    Renamed { from: Change, to: Change },
    Listed { listed: Listed, plus: bool },
    FileSystem(FileSystem),
    Limits(Limits),
    PathFacts(PathFacts),
    Committed { change: Change, verifier: u64 },
}

impl Reply {
    /// About how long it will be.
    pub fn room(&self) -> usize {
        match self {
            Self::Piece(piece) => piece.data.len() + 256,
            Self::Listed { listed, .. } => {
                listed.entries.iter().map(DirectoryEntry::room).sum::<usize>() + 256
            }
            _ => 512,
        }
    }

    pub fn write(&self, to: &mut Encoder) {
        if matches!(self, Self::Null) {
            return;
        }
        to.word(0);
        match self {
            Self::Null => {}
            Self::Attributes(attributes) => write_attributes(to, attributes),
            Self::Changed(change) => write_change(to, change),
            Self::Found { found, directory } => {
                to.opaque(&found.handle);
                after(to, Some(&found.attributes));
                after(to, directory.as_ref());
            }
            Self::Access { attributes, allowed } => {
                after(to, Some(attributes));
                to.word(*allowed);
            }
            Self::Target { attributes, target } => {
                after(to, Some(attributes));
                to.opaque(target);
            }
            Self::Piece(Piece { attributes, data, end }) => {
                after(to, Some(attributes));
                to.word(u32::try_from(data.len()).unwrap_or(u32::MAX)).flag(*end).opaque(data);
            }
            Self::Written(Written { change, count, stability, verifier }) => {
                write_change(to, change);
                to.word(*count).word(*stability as u32).double(*verifier);
            }
            Self::Made { found, directory } => {
                to.flag(true).opaque(&found.handle);
                after(to, Some(&found.attributes));
                write_change(to, directory);
            }
            Self::Renamed { from, to: other } => {
                write_change(to, from);
                write_change(to, other);
            }
            Self::Listed { listed, plus } => write_list(to, listed, *plus),
            Self::FileSystem(found) => {
                after(to, Some(&found.attributes));
                to.double(found.total_bytes).double(found.free_bytes).double(found.free_bytes);
                to.double(found.total_files).double(found.free_files).double(found.free_files).word(0);
            }
            Self::Limits(limits) => {
                after(to, Some(&limits.attributes));
                for _ in 0..2 {
                    to.word(limits.transfer).word(limits.transfer).word(4096);
                }
                // Times to the nanosecond; symbolic links, times that can be set, and one answer for all of PATHCONF.
                to.word(64 << 10).double(limits.largest_file).word(0).word(1).word(0x02 | 0x08 | 0x10);
            }
            Self::PathFacts(facts) => {
                after(to, Some(&facts.attributes));
                to.word(1).word(facts.longest_name).flag(true).flag(true).flag(false).flag(true);
            }
            Self::Committed { change, verifier } => {
                write_change(to, change);
                to.double(*verifier);
            }
        }
    }
}

/// The result of a call that failed. Attributes may be left out, and are.
pub fn failed(to: &mut Encoder, procedure: Procedure, status: Status) {
    to.word(status as u32);
    let absent = match procedure {
        Procedure::Null | Procedure::GetAttr => 0,
        Procedure::Lookup
        | Procedure::Access
        | Procedure::ReadLink
        | Procedure::Read
        | Procedure::ReadDir
        | Procedure::ReadDirPlus
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf => 1,
        Procedure::Link => 3,
        Procedure::Rename => 4,
        _ => 2,
    };
    for _ in 0..absent {
        to.flag(false);
    }
}

impl DirectoryEntry {
    /// What the entry adds to an answer.
    pub fn room(&self) -> usize {
        let name = 8 + 4 + self.name.len().next_multiple_of(4) + 8 + 4;
        name + 8 + self.found.as_ref().map_or(0, |found| 84 + 4 + found.handle.len().next_multiple_of(4))
    }
}

fn write_list(to: &mut Encoder, listed: &Listed, plus: bool) {
    after(to, Some(&listed.directory));
    to.double(listed.verifier);
    for entry in &listed.entries {
        to.flag(true).double(entry.number).opaque(&entry.name).double(entry.cookie);
        if plus {
            after(to, entry.found.as_ref().map(|found| &found.attributes));
            to.optional(entry.found.as_ref(), |to, found| {
                to.opaque(&found.handle);
            });
        }
    }
    to.flag(false).flag(listed.end);
}

fn after(to: &mut Encoder, attributes: Option<&Attributes>) {
    to.optional(attributes, write_attributes);
}

fn write_time(to: &mut Encoder, time: Time) {
    to.word(time.seconds).word(time.nanoseconds);
}

fn write_attributes(to: &mut Encoder, a: &Attributes) {
    to.word(a.kind as u32).word(a.mode).word(a.links).word(a.uid).word(a.gid);
    to.double(a.size).double(a.used).word(0).word(0).double(a.file_system).double(a.number);
    for time in [a.atime, a.mtime, a.ctime] {
        write_time(to, time);
    }
}

fn write_change(to: &mut Encoder, change: &Change) {
    to.optional(change.before, |to, before| {
        to.double(before.size);
        write_time(to, before.mtime);
        write_time(to, before.ctime);
    });
    after(to, change.after.as_ref());
}
