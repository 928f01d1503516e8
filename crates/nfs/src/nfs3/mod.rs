//! NFS version 3 (RFC 1813): requests as they are read, answers as they are written.

mod call;
mod reply;

pub use call::{Call, How, NewAttributes, Procedure, SetTime, Stability};
pub use reply::{
    Attributes, Before, Change, DirectoryEntry, FileSystem, Found, Kind, Limits, Listed, PathFacts, Piece,
    Reply, Written, failed,
};

pub const PROGRAM: u32 = 100_003;
pub const VERSION: u32 = 3;
/// RFC 1813, section 2.4.
pub const MAX_HANDLE: usize = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Time {
    pub seconds: u32,
    pub nanoseconds: u32,
}

/// RFC 1813, section 2.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Permission = 1,
    NotFound = 2,
    Io = 5,
    Access = 13,
    Exists = 17,
    CrossDevice = 18,
    NotADirectory = 20,
    IsADirectory = 21,
    Invalid = 22,
    TooLarge = 27,
    NoSpace = 28,
    ReadOnly = 30,
    NameTooLong = 63,
    NotEmpty = 66,
    Quota = 69,
    Stale = 70,
    BadHandle = 10001,
    NotSync = 10002,
    BadCookie = 10003,
    NotSupported = 10004,
    TooSmall = 10005,
    ServerFault = 10006,
    BadType = 10007,
    JukeBox = 10008,
}

/// What ACCESS asks about.
pub mod access {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
}
