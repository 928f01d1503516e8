//! Proves a log, or names the first thing that is wrong with it. Needs the log and the public key, nothing else.

mod database;
mod diagnose;
mod export;
mod fault;
mod pipe;

use std::{fmt, io::Read, path::PathBuf, sync::mpsc::Receiver, thread};

use serde::Serialize;

pub use self::fault::{Fault, FaultKind};
use self::{
    diagnose::{AHEAD, BEHIND, Suspect, diagnose},
    pipe::{Batch, Item, Record},
};
use super::{
    digest::Digest,
    head::{Head, HeadFault},
    key::PublicKey,
    merkle::Frontier,
};

#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error("can't read the audit log {path}: {source}")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{path} is not an audit log of aegis: give its audit.db, or a file made by `aegis audit export`")]
    NotALog { path: PathBuf },
    #[error(
        "{path} was written in format {found}, which this aegis does not know: use the newer one that wrote it"
    )]
    Newer { path: PathBuf, found: i64 },
    #[error("this is not a file made by `aegis audit export`: its first line does not announce one")]
    NotAnExport,
    #[error(
        "the exported file has format {found}, which this aegis does not know: use the newer one that wrote it"
    )]
    NewerExport { found: u64 },
    #[error("can't read the exported file: {0}")]
    Export(#[source] std::io::Error),
    #[error("the kept head does not hold by itself: {0}; give the head and the key of the same node")]
    KeptHead(HeadFault),
    #[error("the thread that reads the log could not start: {0}")]
    NoThread(#[source] std::io::Error),
}

/// Where the log is read from.
pub enum Source {
    /// The database of a node, running or not. One consistent view of it is read.
    Database(PathBuf),
    /// What [`super::export`] wrote.
    Export(Box<dyn Read + Send>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(path) => f.debug_tuple("Database").field(path).finish(),
            Self::Export(_) => f.write_str("Export"),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Records that are sound: all of them, or those before the fault.
    pub records: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Signed heads that hold.
    pub heads: u64,
    pub last_head: Option<Head>,
    /// Records that no head covers yet. They chain, but whoever can write the database could have written them; a
    /// running node signs them within its `head_every`.
    pub unsigned: u64,
    pub fault: Option<Fault>,
}

impl Report {
    pub fn is_sound(&self) -> bool {
        self.fault.is_none()
    }
}

/// Checks chain, heads and signatures. `kept` is a head saved elsewhere earlier: with it, a log that was rewritten or
/// set back as a whole, with its heads, is found out as well.
pub fn verify(source: Source, key: &PublicKey, kept: Option<&Head>) -> Result<Report, VerifyError> {
    if let Some(kept) = kept {
        kept.check(key).map_err(VerifyError::KeptHead)?;
    }
    let (pipe, batches, used) = pipe::pipe();
    // Moved in, so that a reader that is ahead learns at the first fault that it can stop.
    thread::scope(move |scope| {
        // Signatures are checked where the log is read: hashing is the longer half.
        thread::Builder::new()
            .name("audit-reader".into())
            .spawn_scoped(scope, move || match source {
                Source::Database(path) => database::read(&path, key, pipe),
                Source::Export(file) => export::read(file, key, pipe),
            })
            .map_err(VerifyError::NoThread)?;
        let mut check = Check::new(kept);
        while let Ok(batch) = batches.recv() {
            let batch = batch?;
            if let Err(stopped) = check.batch(&batch) {
                let fault = match stopped {
                    Stopped::Fault(fault) => fault,
                    Stopped::Misfit(at) => check.explain(&batch, at, &batches),
                };
                return Ok(check.report(Some(fault)));
            }
            // The reader may be done and gone.
            drop(used.send(batch));
        }
        let fault = check.at_end();
        Ok(check.report(fault))
    })
}

struct Check<'a> {
    frontier: Frontier,
    /// The last hashes, oldest first; grows to twice [`BEHIND`] and is then cut.
    behind: Vec<Digest>,
    bytes: u64,
    heads: u64,
    last_head: Option<Head>,
    announced: Option<u64>,
    /// The first head that came before the records it covers. It waits for them.
    early: Option<Head>,
    kept: Option<&'a Head>,
}

enum Stopped {
    Fault(Fault),
    /// This item of the batch is a record that does not fit.
    Misfit(usize),
}

impl<'a> Check<'a> {
    fn new(kept: Option<&'a Head>) -> Self {
        Self {
            frontier: Frontier::default(),
            behind: vec![Digest::ZERO],
            bytes: 0,
            heads: 0,
            last_head: None,
            announced: None,
            early: None,
            kept,
        }
    }

    fn size(&self) -> u64 {
        self.frontier.size()
    }

    fn batch(&mut self, batch: &Batch) -> Result<(), Stopped> {
        for (index, item) in batch.items.iter().enumerate() {
            match item {
                Item::Record(record) => {
                    if !self.record(record, &batch.bytes) {
                        return Err(Stopped::Misfit(index));
                    }
                    self.waiting_heads().map_err(Stopped::Fault)?;
                }
                Item::Head(head) => self.head(head).map_err(Stopped::Fault)?,
                Item::BadHead(size, fault) => return Err(Stopped::Fault(Fault::of_head(*size, *fault))),
                Item::Announced(records) => self.announced = Some(*records),
                Item::BadLine(line) => {
                    let fault = Fault::at(self.size() + 1, FaultKind::MalformedLine { line: *line });
                    return Err(Stopped::Fault(fault));
                }
            }
        }
        Ok(())
    }

    fn record(&mut self, record: &Record, bytes: &[u8]) -> bool {
        let next = self.size() + 1;
        let body = &bytes[record.body.clone()];
        let previous = self.behind.last().copied().unwrap_or(Digest::ZERO);
        let hash = Digest::of_entry(&previous, next, body);
        if u64::try_from(record.seq) != Ok(next) || record.hash != Some(hash) {
            return false;
        }
        self.frontier.push(hash);
        self.bytes += body.len() as u64;
        if self.behind.len() == 2 * BEHIND {
            self.behind.drain(..BEHIND);
        }
        self.behind.push(hash);
        true
    }

    fn head(&mut self, head: &Head) -> Result<(), Fault> {
        if head.size > self.size() {
            // Whether records are missing at the end or in between shows in what follows.
            self.early.get_or_insert_with(|| head.clone());
            return Ok(());
        }
        if head.size < self.size() {
            return Err(Fault::of_head(head.size, HeadFault::Malformed));
        }
        if head.root != self.frontier.root() {
            let sound = self.last_head.as_ref().map_or(0, |head| head.size);
            let kind = FaultKind::Rewritten { head: head.size };
            return Err(Fault::at((sound + 1).min(head.size), kind).through(head.size));
        }
        self.heads += 1;
        self.last_head = Some(head.clone());
        Ok(())
    }

    /// Looks at the heads that were waiting for the record just read.
    fn waiting_heads(&mut self) -> Result<(), Fault> {
        if let Some(early) = self.early.take_if(|early| early.size == self.frontier.size()) {
            self.head(&early)?;
        }
        match self.kept {
            Some(kept) if kept.size == self.size() && kept.root != self.frontier.root() => {
                Err(Fault::at(1, FaultKind::NotAsKept { head: kept.size }).through(kept.size))
            }
            _ => Ok(()),
        }
    }

    fn at_end(&self) -> Option<Fault> {
        let size = self.size();
        let beyond = self.early.as_ref().or(self.kept).filter(|head| head.size > size);
        if let Some(head) = beyond {
            return Some(Fault::at(size + 1, FaultKind::Truncated { head: head.size }).through(head.size));
        }
        let announced = self.announced.filter(|announced| *announced > size)?;
        Some(Fault::at(size + 1, FaultKind::CutOff { announced }).through(announced))
    }

    /// Collects what stands after the break and says what it looks like.
    fn explain(&self, batch: &Batch, at: usize, more: &Receiver<Result<Batch, VerifyError>>) -> Fault {
        let mut suspects = Vec::new();
        let mut collect = |batch: &Batch, from: usize| {
            for item in &batch.items[from..] {
                if let Item::Record(record) = item
                    && suspects.len() < AHEAD
                {
                    let body = batch.bytes[record.body.clone()].to_vec();
                    suspects.push(Suspect { seq: record.seq, hash: record.hash, body });
                }
            }
            suspects.len() == AHEAD
        };
        let mut full = collect(batch, at);
        while !full && let Ok(Ok(batch)) = more.recv() {
            full = collect(&batch, 0);
        }
        diagnose(self.size() + 1, &self.behind, &suspects)
    }

    fn report(self, fault: Option<Fault>) -> Report {
        let sealed = self.last_head.as_ref().map_or(0, |head| head.size);
        Report {
            records: self.size(),
            bytes: self.bytes,
            heads: self.heads,
            unsigned: self.size() - sealed,
            last_head: self.last_head,
            fault,
        }
    }
}
