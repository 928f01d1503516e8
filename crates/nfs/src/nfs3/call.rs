use bytes::Bytes;

use super::{MAX_HANDLE, Time};
use crate::{
    MAX_TRANSFER,
    xdr::{Decoder, Garbled},
};

/// Longer ones are told to be too long by whoever answers.
const MAX_NAME: usize = 1024;
const MAX_TARGET: usize = 4096;

macro_rules! procedures {
    ($($name:ident = $number:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Procedure {
            $($name = $number,)*
        }

        impl Procedure {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub fn of(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

procedures! {
    Null = 0,
    GetAttr = 1,
    SetAttr = 2,
    Lookup = 3,
    Access = 4,
    ReadLink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    MkDir = 9,
    SymLink = 10,
    MkNod = 11,
    Remove = 12,
    RmDir = 13,
    Rename = 14,
    Link = 15,
    ReadDir = 16,
    ReadDirPlus = 17,
    FsStat = 18,
    FsInfo = 19,
    PathConf = 20,
    Commit = 21,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Null,
    GetAttr { handle: Bytes },
    SetAttr { handle: Bytes, new: NewAttributes, guard: Option<Time> },
    Lookup { directory: Bytes, name: Bytes },
    Access { handle: Bytes, wanted: u32 },
    ReadLink { handle: Bytes },
    Read { handle: Bytes, offset: u64, count: u32 },
    Write { handle: Bytes, offset: u64, stability: Stability, data: Bytes },
    Create { directory: Bytes, name: Bytes, how: How },
    MkDir { directory: Bytes, name: Bytes, new: NewAttributes },
    SymLink { directory: Bytes, name: Bytes, target: Bytes },
    MkNod { directory: Bytes },
    Remove { directory: Bytes, name: Bytes },
    RmDir { directory: Bytes, name: Bytes },
    Rename { from_directory: Bytes, from: Bytes, to_directory: Bytes, to: Bytes },
    Link { handle: Bytes, directory: Bytes },
    ReadDir { directory: Bytes, cookie: u64, verifier: u64, count: u32 },
    ReadDirPlus { directory: Bytes, cookie: u64, verifier: u64, count: u32 },
    FsStat { handle: Bytes },
    FsInfo { handle: Bytes },
    PathConf { handle: Bytes },
    Commit { handle: Bytes },
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    To(Time),
}

/// When a WRITE has to be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// By the next COMMIT.
    Unstable = 0,
    Data = 1,
    File = 2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Unchecked(NewAttributes),
    Guarded(NewAttributes),
    /// The same verifier again is the same request again.
    Exclusive(u64),
}

impl Call {
    pub fn parse(procedure: Procedure, arguments: Decoder) -> Result<Self, Garbled> {
        let mut a = arguments;
        let call = match procedure {
            Procedure::Null => Self::Null,
            Procedure::GetAttr => Self::GetAttr { handle: handle(&mut a)? },
            Procedure::SetAttr => {
                let (handle, new) = (handle(&mut a)?, attributes(&mut a)?);
                Self::SetAttr { handle, new, guard: a.optional(time)? }
            }
            Procedure::Lookup => Self::Lookup { directory: handle(&mut a)?, name: name(&mut a)? },
            Procedure::Access => Self::Access { handle: handle(&mut a)?, wanted: a.word()? },
            Procedure::ReadLink => Self::ReadLink { handle: handle(&mut a)? },
            Procedure::Read => Self::Read { handle: handle(&mut a)?, offset: a.double()?, count: a.word()? },
            Procedure::Write => {
                let (handle, offset, count) = (handle(&mut a)?, a.double()?, a.word()?);
                let stability = match a.word()? {
                    0 => Stability::Unstable,
                    1 => Stability::Data,
                    2 => Stability::File,
                    _ => return Err(Garbled),
                };
                let mut data = a.opaque(MAX_TRANSFER as usize)?;
                data.truncate(usize::try_from(count).unwrap_or(usize::MAX));
                Self::Write { handle, offset, stability, data }
            }
            Procedure::Create => {
                let (directory, name) = (handle(&mut a)?, name(&mut a)?);
                let how = match a.word()? {
                    0 => How::Unchecked(attributes(&mut a)?),
                    1 => How::Guarded(attributes(&mut a)?),
                    2 => How::Exclusive(a.double()?),
                    _ => return Err(Garbled),
                };
                Self::Create { directory, name, how }
            }
            Procedure::MkDir => {
                Self::MkDir { directory: handle(&mut a)?, name: name(&mut a)?, new: attributes(&mut a)? }
            }
            Procedure::SymLink => {
                let (directory, name) = (handle(&mut a)?, name(&mut a)?);
                attributes(&mut a)?;
                Self::SymLink { directory, name, target: a.opaque(MAX_TARGET)? }
            }
            Procedure::MkNod => {
                let directory = handle(&mut a)?;
                name(&mut a)?;
                // Devices, sockets and pipes are never made, so what follows does not matter.
                return Ok(Self::MkNod { directory });
            }
            Procedure::Remove => Self::Remove { directory: handle(&mut a)?, name: name(&mut a)? },
            Procedure::RmDir => Self::RmDir { directory: handle(&mut a)?, name: name(&mut a)? },
            Procedure::Rename => Self::Rename {
                from_directory: handle(&mut a)?,
                from: name(&mut a)?,
                to_directory: handle(&mut a)?,
                to: name(&mut a)?,
            },
            Procedure::Link => {
                let (handle, directory) = (handle(&mut a)?, handle(&mut a)?);
                name(&mut a)?;
                Self::Link { handle, directory }
            }
            Procedure::ReadDir => Self::ReadDir {
                directory: handle(&mut a)?,
                cookie: a.double()?,
                verifier: a.double()?,
                count: a.word()?,
            },
            Procedure::ReadDirPlus => {
                let (directory, cookie, verifier) = (handle(&mut a)?, a.double()?, a.double()?);
                // How much of the answer may be names: less than all of it, which is bounded anyway.
                a.word()?;
                Self::ReadDirPlus { directory, cookie, verifier, count: a.word()? }
            }
            Procedure::FsStat => Self::FsStat { handle: handle(&mut a)? },
            Procedure::FsInfo => Self::FsInfo { handle: handle(&mut a)? },
            Procedure::PathConf => Self::PathConf { handle: handle(&mut a)? },
            Procedure::Commit => {
                let handle = handle(&mut a)?;
                a.double()?;
                a.word()?;
                Self::Commit { handle }
            }
        };
        a.end().map(|()| call)
    }
}

fn handle(a: &mut Decoder) -> Result<Bytes, Garbled> {
    a.opaque(MAX_HANDLE)
}

fn name(a: &mut Decoder) -> Result<Bytes, Garbled> {
    a.opaque(MAX_NAME)
}

fn time(a: &mut Decoder) -> Result<Time, Garbled> {
    Ok(Time { seconds: a.word()?, nanoseconds: a.word()? })
}

fn set_time(a: &mut Decoder) -> Result<Option<SetTime>, Garbled> {
    match a.word()? {
        0 => Ok(None),
        1 => Ok(Some(SetTime::Now)),
        2 => Ok(Some(SetTime::To(time(a)?))),
        _ => Err(Garbled),
    }
}

fn attributes(a: &mut Decoder) -> Result<NewAttributes, Garbled> {
    Ok(NewAttributes {
        mode: a.optional(Decoder::word)?,
        uid: a.optional(Decoder::word)?,
        gid: a.optional(Decoder::word)?,
        size: a.optional(Decoder::double)?,
        atime: set_time(a)?,
        mtime: set_time(a)?,
    })
}
