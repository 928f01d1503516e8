//! NFS version 3 (RFC 1813) with its MOUNT protocol.
//!
//! `record`, `rpc`, `xdr`, `mount3` and `nfs3` are the wire: what a server reads and writes. They know no files, and they
//! trust no length that came over the wire: every record, string and list is bounded before room is made for it, and
//! nothing nests. `gateway` is a door: it finds out whose a request is, asks the plane, does it and answers.

pub mod gateway;
pub mod mount3;
pub mod nfs3;
pub mod record;
pub mod rpc;
pub mod xdr;

/// The largest piece of a file in one READ or WRITE.
pub const MAX_TRANSFER: u32 = 1 << 20;
/// A WRITE with its headers.
pub const MAX_RECORD: usize = MAX_TRANSFER as usize + (8 << 10);
