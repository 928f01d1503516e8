//! Reading and hashing side by side: the reading thread fills batches, the hashing thread hands them back empty.

use std::{
    ops::Range,
    sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
};

use super::VerifyError;
use crate::audit::{
    digest::Digest,
    head::{Head, HeadFault},
};

/// A batch is handed over when it holds this much. Small enough to stay in the processor's cache between the two.
const BATCH_BYTES: usize = 256 << 10;
const BATCHES: usize = 6;

#[derive(Debug)]
pub(super) enum Item {
    Record(Record),
    Head(Box<Head>),
    /// A head over this many records that does not hold by itself.
    BadHead(u64, HeadFault),
    /// How many records there must be, as far as that is known.
    Announced(u64),
    /// A line of this number makes no sense.
    BadLine(u64),
}

#[derive(Debug)]
pub(super) struct Record {
    /// As stored: a forger may write any number.
    pub(super) seq: i64,
    /// None when what is stored can't be a hash.
    pub(super) hash: Option<Digest>,
    pub(super) body: Range<usize>,
}

#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) items: Vec<Item>,
}

/// The reading end.
#[derive(Debug)]
pub(super) struct Pipe {
    batch: Batch,
    full: SyncSender<Result<Batch, VerifyError>>,
    empty: Receiver<Batch>,
}

/// The hashing side hung up: it has seen enough.
#[derive(Debug)]
pub(super) struct Enough;

pub(super) fn pipe() -> (Pipe, Receiver<Result<Batch, VerifyError>>, Sender<Batch>) {
    let (full, batches) = sync_channel(BATCHES);
    let (used, empty) = channel();
    (Pipe { batch: Batch::default(), full, empty }, batches, used)
}

impl Pipe {
    pub(super) fn record(&mut self, seq: i64, hash: Option<Digest>, body: &[u8]) -> Result<(), Enough> {
        let start = self.batch.bytes.len();
        self.batch.bytes.extend_from_slice(body);
        let body = start..self.batch.bytes.len();
        self.item(Item::Record(Record { seq, hash, body }))
    }

    pub(super) fn item(&mut self, item: Item) -> Result<(), Enough> {
        self.batch.items.push(item);
        if self.batch.bytes.len() < BATCH_BYTES { Ok(()) } else { self.hand_over() }
    }

    fn hand_over(&mut self) -> Result<(), Enough> {
        let mut next = self.empty.try_recv().unwrap_or_default();
        next.bytes.clear();
        next.items.clear();
        let batch = std::mem::replace(&mut self.batch, next);
        self.full.send(Ok(batch)).map_err(|_| Enough)
    }

    /// Hands over the rest, and how the reading went.
    pub(super) fn finish(mut self, result: Result<(), VerifyError>) {
        if self.hand_over().is_ok()
            && let Err(error) = result
        {
            // If the other side has hung up meanwhile, there is nobody to tell.
            drop(self.full.send(Err(error)));
        }
    }
}
