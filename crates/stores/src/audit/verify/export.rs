//! Reads an exported file for the verifier. Lines have one spelling, so that bodies are taken byte for byte.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;

use super::{
    VerifyError,
    pipe::{Enough, Item, Pipe},
};
use crate::audit::{
    digest::Digest,
    export::{FORMAT, Header},
    head::Head,
    key::PublicKey,
    log::MAX_BODY,
};

/// More than the longest line we write.
const LONGEST_LINE: u64 = MAX_BODY as u64 + 1024;

#[derive(Deserialize)]
struct HeaderLine {
    export: Header,
}

#[derive(Deserialize)]
struct HeadLine {
    head: Head,
}

enum Stop {
    Failed(VerifyError),
    Enough,
}

impl From<Enough> for Stop {
    fn from(_: Enough) -> Self {
        Self::Enough
    }
}

pub(super) fn read(file: Box<dyn Read + Send>, key: &PublicKey, mut pipe: Pipe) {
    let result = match lines(file, key, &mut pipe) {
        Ok(()) | Err(Stop::Enough) => Ok(()),
        Err(Stop::Failed(error)) => Err(error),
    };
    pipe.finish(result);
}

fn lines(file: Box<dyn Read + Send>, key: &PublicKey, pipe: &mut Pipe) -> Result<(), Stop> {
    let mut reader = BufReader::with_capacity(256 << 10, file);
    let mut line = Vec::new();
    let mut next_line = |line: &mut Vec<u8>| {
        line.clear();
        reader
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', line)
            .map_err(|error| Stop::Failed(VerifyError::Export(error)))
    };
    next_line(&mut line)?;
    let Ok(HeaderLine { export: header }) = serde_json::from_slice(&line) else {
        return Err(Stop::Failed(VerifyError::NotAnExport));
    };
    if header.format != FORMAT {
        return Err(Stop::Failed(VerifyError::NewerExport { found: header.format }));
    }
    pipe.item(Item::Announced(header.records))?;
    let mut records = 0;
    for number in 2.. {
        if next_line(&mut line)? == 0 {
            break;
        }
        let whole = line.pop_if(|byte| *byte == b'\n').is_some();
        if let Some((seq, hash, body)) = record(&line) {
            records += 1;
            pipe.record(seq, Some(hash), body)?;
        } else if let Ok(HeadLine { head }) = serde_json::from_slice(&line) {
            pipe.item(match head.check(key) {
                Ok(()) => Item::Head(Box::new(head)),
                Err(fault) => Item::BadHead(head.size, fault),
            })?;
        } else if whole || records >= header.records {
            pipe.item(Item::BadLine(number))?;
        }
        // Otherwise the file was cut in the middle of its last line, which the number of records shows.
    }
    Ok(())
}

/// `{"seq":N,"hash":"…","body":…}`, as written by [`crate::audit::export`].
fn record(line: &[u8]) -> Option<(i64, Digest, &[u8])> {
    let rest = line.strip_prefix(b"{\"seq\":")?;
    let digits = rest.iter().position(|byte| *byte == b',')?;
    let seq = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
    let rest = rest[digits..].strip_prefix(b",\"hash\":\"")?;
    let (hash, rest) = rest.split_at_checked(64)?;
    let body = rest.strip_prefix(b"\",\"body\":")?.strip_suffix(b"}")?;
    Some((seq, Digest::parse(hash)?, body))
}
