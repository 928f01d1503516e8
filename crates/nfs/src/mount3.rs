//! MOUNT version 3 (RFC 1813, appendix I): from the name of an export to its first handle.

use bytes::Bytes;

use crate::xdr::{Decoder, Encoder, Garbled};

pub const PROGRAM: u32 = 100_005;
pub const VERSION: u32 = 3;
const MAX_PATH: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Null,
    Mount(Bytes),
    /// Who has mounted what: nobody's business.
    Dump,
    Unmount,
    UnmountAll,
    /// Which exports there are: their names are secrets.
    Export,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok = 0,
    NotFound = 2,
    Access = 13,
    NotADirectory = 20,
    ServerFault = 10006,
}

impl Call {
    /// `None` for a procedure that there is not.
    pub fn parse(procedure: u32, mut arguments: Decoder) -> Result<Option<Self>, Garbled> {
        let call = match procedure {
            0 => Self::Null,
            1 => Self::Mount(arguments.opaque(MAX_PATH)?),
            2 => Self::Dump,
            3 => {
                arguments.opaque(MAX_PATH)?;
                Self::Unmount
            }
            4 => Self::UnmountAll,
            5 => Self::Export,
            _ => return Ok(None),
        };
        arguments.end().map(|()| Some(call))
    }
}

/// The answer to MNT. Any client may be anybody, so both flavours of credentials are named.
pub fn mounted(answer: &mut Encoder, handle: Result<&[u8], Status>) {
    match handle {
        Ok(handle) => {
            answer.word(Status::Ok as u32).opaque(handle).word(2).word(1).word(0);
        }
        Err(status) => {
            answer.word(status as u32);
        }
    }
}

/// The answer to DUMP and EXPORT: an empty list.
pub fn nothing_to_list(answer: &mut Encoder) {
    answer.flag(false);
}
