//! The thread that writes the log: everything that has queued goes into one transaction. Another thread syncs it.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aegis_core::{
    Timestamp,
    config::AuditConfig,
    id::CallId,
    record::{Entry, NodeRecord},
};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use serde_json::Map;

use super::{
    chain::{Chain, LoadError},
    error::AuditError,
    files::Files,
    head::Head,
    key::AuditKey,
    queue::{Answer, Append, Mark, Queue, Request},
    syncer::{Owed, Syncer},
};
use crate::data_dir::DataDir;

/// Pauses between attempts while the log can't be written.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How far the log has got, for whoever asks.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) size: AtomicU64,
    pub(super) sealed: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Writer {
    connection: Connection,
    key: AuditKey,
    queue: Arc<Queue>,
    chain: Chain,
    /// Every call that has begun and not ended, and perhaps some whose beginning was not written: most calls that end
    /// never said that they began, and need not be looked for.
    begun: HashSet<CallId>,
    head_every: Duration,
    head_every_entries: u64,
    head_at: Instant,
    /// Taken on without anybody waiting, and not yet on disk because of an outage.
    kept: Vec<Append>,
    outage: Option<Outage>,
    files: Files,
    syncer: Syncer,
    /// Held so that no other process writes while this one may.
    data: DataDir,
}

/// A time during which nothing could be written.
#[derive(Debug)]
struct Outage {
    since: Timestamp,
    error: AuditError,
    /// Entries that were refused because of it.
    refused: u64,
    retry_at: Instant,
    pause: Duration,
}

/// Why a head may be wanted now, besides the number of entries.
#[derive(Debug)]
struct Sealing {
    asked: bool,
    due: bool,
}

impl Writer {
    pub(super) fn new(
        (connection, chain, files, syncer): (Connection, Chain, Files, Syncer),
        begun: HashSet<CallId>,
        key: AuditKey,
        queue: Arc<Queue>,
        marks: &Marks,
        config: &AuditConfig,
        data: DataDir,
    ) -> Self {
        marks.size.store(chain.size(), Ordering::Release);
        marks.sealed.store(chain.sealed(), Ordering::Release);
        Self {
            connection,
            key,
            queue,
            chain,
            begun,
            head_every: config.head_every.0,
            head_every_entries: u64::from(config.head_every_entries.max(1)),
            head_at: Instant::now(),
            kept: Vec::new(),
            outage: None,
            files,
            syncer,
            data,
        }
    }

    /// Runs until the queue closes, or this thread panics; either way, whoever waits learns it.
    pub(super) fn run(mut self) {
        struct Ended(Arc<Queue>);
        impl Drop for Ended {
            fn drop(&mut self) {
                self.0.end(Err(AuditError::Closed));
            }
        }
        let ended = Ended(self.queue.clone());
        loop {
            let work = self.queue.take(self.due());
            if let Some(error) = self.syncer.failure() {
                self.fail(error);
            }
            self.serve(work.requests, work.closing);
            if work.closing {
                break;
            }
        }
        let Self { connection, data, syncer, outage, kept, .. } = self;
        let synced = syncer.finish();
        let result = match outage {
            None => synced,
            Some(outage) => {
                let lost = kept.len();
                tracing::error!(lost, error = %outage.error, "the audit log closed with entries it could not write");
                Err(outage.error)
            }
        };
        if let Err((_, error)) = connection.close() {
            // Nothing is lost: what was committed is in the write-ahead log.
            tracing::warn!(%error, "the audit log's file did not close cleanly");
        }
        drop(data);
        ended.0.end(result);
    }

    /// When there is something to do although nobody asks.
    fn due(&self) -> Option<Instant> {
        match &self.outage {
            Some(outage) => Some(outage.retry_at),
            None if self.chain.size() > self.chain.sealed() => self.head_at.checked_add(self.head_every),
            None => None,
        }
    }

    fn serve(&mut self, requests: Vec<Request>, closing: bool) {
        let mut appends = std::mem::take(&mut self.kept);
        let mut seals = Vec::new();
        for request in requests {
            match request {
                Request::Append(append) => appends.push(append),
                Request::Seal(answer) => seals.push(answer),
            }
        }
        let now = Instant::now();
        if let Some(outage) = &self.outage
            && now < outage.retry_at
            && !closing
        {
            let error = outage.error.clone();
            self.refuse(appends, seals, &error);
            return;
        }
        let sealing =
            Sealing { asked: !seals.is_empty(), due: closing || self.due().is_some_and(|due| due <= now) };
        match self.write(&appends, &sealing) {
            Ok(numbers) => self.answer(appends, seals, numbers),
            Err(error) => {
                self.fail(error.clone());
                self.refuse(appends, seals, &error);
            }
        }
    }

    /// Commits the entries and, where due, a head. Returns the number of each entry; those that would have used up an
    /// approval a second time have none, and are not written.
    fn write(&mut self, appends: &[Append], sealing: &Sealing) -> Result<Vec<Option<u64>>, AuditError> {
        let unwritable = |error| AuditError::Unwritable(Arc::new(error));
        let mut chain = match &self.outage {
            None => self.chain.clone(),
            // A commit that reported failure may have reached the disk all the same. The disk says what is so.
            Some(_) => {
                self.files.check()?;
                if self.syncer.is_broken() {
                    rescue(&self.connection).map_err(unwritable)?;
                    self.syncer.recovered();
                }
                Chain::load(&self.connection, self.key.public()).map_err(|error| match error {
                    LoadError::Sqlite(error) => unwritable(error),
                    LoadError::Damaged(fault) => {
                        AuditError::Damaged { path: self.data.audit_database(), fault }
                    }
                })?
            }
        };
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(unwritable)?;
        let numbers = insert(&transaction, &mut chain, &mut self.begun, appends).map_err(unwritable)?;
        if let Some(outage) = &self.outage {
            insert(&transaction, &mut chain, &mut self.begun, &[outage.record()?]).map_err(unwritable)?;
        }
        let unsealed = chain.size() - chain.sealed();
        let due = sealing.asked || sealing.due || unsealed >= self.head_every_entries;
        // A head over the empty log is only for those who ask.
        let signed = (due && unsealed > 0) || (sealing.asked && chain.head.is_none());
        if signed {
            let head = Head::sign(&chain.frontier, Timestamp::now(), &self.key);
            insert_head(&transaction, &head, &chain).map_err(unwritable)?;
            chain.head = Some(head);
        }
        transaction.commit().map_err(unwritable)?;
        if signed {
            self.head_at = Instant::now();
        }
        self.chain = chain;
        for append in appends {
            if let Mark::Ends(call, _) = &append.mark {
                self.begun.remove(call);
            }
        }
        if let Some(outage) = self.outage.take() {
            tracing::info!(since = %outage.since, refused = outage.refused, "the audit log can be written again");
            self.queue.set_fault(None);
        }
        Ok(numbers)
    }

    /// Whoever waits is answered once the commit is on disk.
    fn answer(&self, appends: Vec<Append>, seals: Vec<Answer<Head>>, numbers: Vec<Option<u64>>) {
        let mut owed = Owed { reaches: (self.chain.size(), self.chain.sealed()), ..Owed::default() };
        for (number, append) in numbers.into_iter().zip(appends) {
            owed.bytes += append.body.len();
            if let Some(answer) = append.answer {
                owed.numbers.push((answer, number.ok_or_else(|| append.mark.consumed())));
            }
        }
        if let Some(head) = &self.chain.head {
            owed.heads.extend(seals.into_iter().map(|seal| (seal, head.clone())));
        }
        self.queue.begin_sync();
        self.syncer.hand_over(owed);
    }

    fn fail(&mut self, error: AuditError) {
        let retry_at = |pause| Instant::now() + pause;
        match &mut self.outage {
            None => {
                tracing::error!(%error, "the audit log can't be written; calls are refused until it can");
                self.outage = Some(Outage {
                    since: Timestamp::now(),
                    error: error.clone(),
                    refused: 0,
                    retry_at: retry_at(FIRST_PAUSE),
                    pause: FIRST_PAUSE,
                });
            }
            Some(outage) => {
                outage.error = error.clone();
                outage.pause = (outage.pause * 2).min(LONGEST_PAUSE);
                outage.retry_at = retry_at(outage.pause);
            }
        }
        self.queue.set_fault(Some(error));
    }

    /// Tells those who wait; keeps what nobody waits for, since it was taken on already.
    fn refuse(&mut self, appends: Vec<Append>, seals: Vec<Answer<Head>>, error: &AuditError) {
        let (mut bytes, mut refused) = (0, 0);
        for append in appends {
            match append.answer {
                None => self.kept.push(append),
                Some(answer) => {
                    bytes += append.body.len();
                    refused += 1;
                    drop(answer.send(Err(error.clone())));
                }
            }
        }
        for seal in seals {
            drop(seal.send(Err(error.clone())));
        }
        if let Some(outage) = &mut self.outage {
            outage.refused += refused;
        }
        self.queue.release(bytes);
    }
}

impl Outage {
    /// The outage is part of the record. Writing this entry is also what shows that it is over.
    fn record(&self) -> Result<Append, AuditError> {
        let mut detail = Map::new();
        detail.insert("since".into(), self.since.to_string().into());
        detail.insert("refused_entries".into(), self.refused.into());
        detail.insert("error".into(), self.error.to_string().into());
        let record =
            NodeRecord { time: Timestamp::now(), action: "audit-recovered".into(), caller: None, detail };
        let body = serde_json::to_vec(&Entry::Node(record))
            .map_err(|error| AuditError::Unserialisable(Arc::new(error)))?;
        Ok(Append { body, mark: Mark::Neither, answer: None })
    }
}

/// After a sync that failed, a second one may report success though the pages never reached the disk. Copying
/// everything into the database file writes them once more, under a sync of SQLite's own.
fn rescue(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| match row.get::<_, i64>(0)? {
        0 => Ok(()),
        // A reader holds on to the old log; the next attempt may find it gone.
        _ => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)),
    })
}

fn insert(
    transaction: &Transaction<'_>,
    chain: &mut Chain,
    begun: &mut HashSet<CallId>,
    appends: &[Append],
) -> rusqlite::Result<Vec<Option<u64>>> {
    let mut numbers = Vec::with_capacity(appends.len());
    let mut entry =
        transaction.prepare_cached("INSERT INTO entries (seq, body, hash) VALUES (?1, ?2, ?3)")?;
    for append in appends {
        if !use_up(transaction, &append.mark, chain.size() + 1)? {
            numbers.push(None);
            continue;
        }
        let seq = chain.append(&append.body);
        numbers.push(Some(seq));
        entry.execute((seq, &append.body, chain.last.as_bytes()))?;
        match &append.mark {
            Mark::Begins(call, _) => {
                begun.insert(*call);
                transaction
                    .prepare_cached("INSERT OR REPLACE INTO open_intents (call, seq) VALUES (?1, ?2)")?
                    .execute((call.to_string(), seq))?;
            }
            Mark::Ends(call, _) if begun.contains(call) => {
                transaction
                    .prepare_cached("DELETE FROM open_intents WHERE call = ?1")?
                    .execute([call.to_string()])?;
            }
            Mark::Ends(..) | Mark::Neither => {}
        }
    }
    Ok(numbers)
}

/// Marks the approval that an entry uses up. False when an earlier entry has done so.
fn use_up(transaction: &Transaction<'_>, mark: &Mark, seq: u64) -> rusqlite::Result<bool> {
    let approval = match mark {
        Mark::Begins(_, Some(approval)) => approval,
        Mark::Ends(call, Some(approval)) => {
            let begun = transaction
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM open_intents WHERE call = ?1)")?
                .query_row([call.to_string()], |row| row.get(0))?;
            // Its intent has used the approval up, which is what it was for.
            if begun {
                return Ok(true);
            }
            approval
        }
        _ => return Ok(true),
    };
    transaction
        .prepare_cached("INSERT OR IGNORE INTO consumed_approvals (approval, seq) VALUES (?1, ?2)")?
        .execute((approval.as_str(), seq))
        .map(|marked| marked == 1)
}

fn insert_head(transaction: &Transaction<'_>, head: &Head, chain: &Chain) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT INTO heads (size, body, signature, frontier) VALUES (?1, ?2, ?3, ?4)")?
        .execute((
            head.size,
            head.text().as_bytes(),
            &head.signature.as_bytes()[..],
            chain.frontier.to_bytes(),
        ))?;
    Ok(())
}
