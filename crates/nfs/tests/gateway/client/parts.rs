//! What requests and answers are made of.

use aegis_nfs::xdr::{Decoder, Encoder};
use bytes::Bytes;

use super::Said;

/// NFS statuses by number.
pub(crate) mod says {
    pub(crate) const PERM: u32 = 1;
    pub(crate) const NOENT: u32 = 2;
    pub(crate) const ACCES: u32 = 13;
    pub(crate) const EXIST: u32 = 17;
    pub(crate) const XDEV: u32 = 18;
    pub(crate) const NOTDIR: u32 = 20;
    pub(crate) const ISDIR: u32 = 21;
    pub(crate) const INVAL: u32 = 22;
    pub(crate) const ROFS: u32 = 30;
    pub(crate) const NAMETOOLONG: u32 = 63;
    pub(crate) const NOTEMPTY: u32 = 66;
    pub(crate) const DQUOT: u32 = 69;
    pub(crate) const STALE: u32 = 70;
    pub(crate) const BADHANDLE: u32 = 10001;
    pub(crate) const NOT_SYNC: u32 = 10002;
    pub(crate) const BAD_COOKIE: u32 = 10003;
    pub(crate) const NOTSUPP: u32 = 10004;
    pub(crate) const TOOSMALL: u32 = 10005;
    pub(crate) const JUKEBOX: u32 = 10008;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) kind: u32,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) number: u64,
    pub(crate) mtime: (u32, u32),
    pub(crate) ctime: (u32, u32),
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Set {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) mtime: Option<(u32, u32)>,
}

pub(super) fn write_set(a: &mut Encoder, set: &Set) {
    a.optional(set.mode, |a, mode| {
        a.word(mode);
    });
    a.optional(set.uid, |a, uid| {
        a.word(uid);
    });
    a.flag(false);
    a.optional(set.size, |a, size| {
        a.double(size);
    });
    a.word(0);
    match set.mtime {
        None => a.word(0),
        Some((seconds, nanoseconds)) => a.word(2).word(seconds).word(nanoseconds),
    };
}

pub(super) fn made(mut d: Decoder) -> Said<Bytes> {
    assert!(d.flag().unwrap(), "a handle");
    let handle = d.opaque(64).unwrap();
    after(&mut d);
    change(&mut d);
    Ok(handle)
}

pub(super) fn attributes(d: &mut Decoder) -> Attributes {
    let mut word = || d.word().unwrap();
    let (kind, mode, links, uid, gid) = (word(), word(), word(), word(), word());
    let size = d.double().unwrap();
    d.double().unwrap();
    d.double().unwrap();
    d.double().unwrap();
    let number = d.double().unwrap();
    d.double().unwrap();
    let mut time = || (d.word().unwrap(), d.word().unwrap());
    let (mtime, ctime) = (time(), time());
    Attributes { kind, mode, links, uid, gid, size, number, mtime, ctime }
}

pub(super) fn after(d: &mut Decoder) -> Option<Attributes> {
    d.flag().unwrap().then(|| attributes(d))
}

pub(super) fn change(d: &mut Decoder) {
    if d.flag().unwrap() {
        for _ in 0..3 {
            d.double().unwrap();
        }
    }
    after(d);
}
