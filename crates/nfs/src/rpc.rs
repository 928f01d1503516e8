//! Remote procedure calls (RFC 5531): the envelope around every request and answer.

use bytes::Bytes;

use crate::xdr::{Decoder, Encoder, Garbled};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
/// RFC 5531, section 8.2.
const MAX_CREDENTIAL: usize = 400;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// A request as far as all programs have it in common.
#[derive(Debug, Clone)]
pub struct Call {
    pub xid: u32,
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
    pub arguments: Decoder,
}

/// Why there is no call to answer.
#[derive(Debug)]
pub enum NoCall {
    /// Nothing can be answered: it is no call, or its number can't be read.
    Unanswerable,
    /// The answer that says what is wrong.
    Refused(Vec<u8>),
}

impl From<Garbled> for NoCall {
    fn from(_: Garbled) -> Self {
        Self::Unanswerable
    }
}

impl Call {
    /// Who the client says it is is not looked at: anybody can write a user id into a request.
    pub fn parse(record: Bytes) -> Result<Self, NoCall> {
        let mut reader = Decoder::new(record);
        let xid = reader.word()?;
        if reader.word()? != CALL {
            return Err(NoCall::Unanswerable);
        }
        if reader.word()? != RPC_VERSION {
            return Err(NoCall::Refused(denied(xid, |answer| {
                answer.word(0).word(RPC_VERSION).word(RPC_VERSION);
            })));
        }
        let (program, version, procedure) = (reader.word()?, reader.word()?, reader.word()?);
        let flavour = reader.word()?;
        reader.opaque(MAX_CREDENTIAL)?;
        reader.word()?;
        reader.opaque(MAX_CREDENTIAL)?;
        if !matches!(flavour, AUTH_NONE | AUTH_SYS) {
            // AUTH_ERROR, AUTH_BADCRED
            return Err(NoCall::Refused(denied(xid, |answer| {
                answer.word(1).word(1);
            })));
        }
        Ok(Self { xid, program, version, procedure, arguments: reader })
    }
}

fn denied(xid: u32, why: impl FnOnce(&mut Encoder)) -> Vec<u8> {
    let mut answer = Encoder::default();
    answer.word(xid).word(REPLY).word(1);
    why(&mut answer);
    answer.into_bytes()
}

/// How far an accepted call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    Success,
    NoSuchProgram,
    /// With the lowest and the highest version there is.
    OtherVersion(u32, u32),
    NoSuchProcedure,
    GarbageArguments,
}

/// The head of an answer; of a success, the result follows.
pub fn accepted(xid: u32, how: Accepted, room: usize) -> Encoder {
    let mut answer = Encoder::with_capacity(room + 24);
    answer.word(xid).word(REPLY).word(0).word(AUTH_NONE).word(0);
    match how {
        Accepted::Success => answer.word(0),
        Accepted::NoSuchProgram => answer.word(1),
        Accepted::OtherVersion(low, high) => answer.word(2).word(low).word(high),
        Accepted::NoSuchProcedure => answer.word(3),
        Accepted::GarbageArguments => answer.word(4),
    };
    answer
}
