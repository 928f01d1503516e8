//! The log as the plane holds it.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use aegis_core::{
    Timestamp,
    config::AuditConfig,
    record::{Entry, Intent, NodeRecord},
};
use rusqlite::Connection;
use serde_json::Map;
use tokio::sync::oneshot;

use super::{
    chain::{Chain, LoadError},
    database,
    error::AuditError,
    files::Files,
    head::Head,
    key::{AuditKey, DigestKey, PublicKey},
    place::{may_begin, unopenable},
    queue::{Append, Mark, Queue, Request},
    syncer::Syncer,
    verify::{Fault, FaultKind},
    writer::{Marks, Writer},
};
use crate::{data_dir::DataDir, new_database::NewDatabaseError};

/// The longest entry. Arguments are stored redacted, so real ones stay far below.
pub const MAX_BODY: usize = 1 << 20;

/// The audit log, open for writing. Clones share one writer; it ends when the last is dropped.
#[derive(Debug, Clone)]
pub struct AuditLog {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    queue: Arc<Queue>,
    marks: Arc<Marks>,
    public_key: PublicKey,
    unfinished: Vec<Intent>,
    digest_key: DigestKey,
    path: PathBuf,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.begin_closing();
    }
}

/// How far the log has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Entries on disk.
    pub entries: u64,
    /// Of these, how many the last signed head covers.
    pub sealed: u64,
}

impl AuditLog {
    /// Opens the log of this data directory, making log and key on first use. Blocks; call it before serving, or on
    /// a thread for blocking work.
    pub fn open(data: &DataDir, config: &AuditConfig) -> Result<Self, AuditError> {
        let path = data.audit_database();
        let sqlite = |source| AuditError::Unopenable { path: path.clone(), source: Arc::new(source) };
        let may_begin = may_begin(data)?;
        // Part of the file from the moment it has its name: a start that fails later leaves a log that says the same.
        let first = (may_begin && data.has_earlier_registry()).then(begun_anew).transpose()?;
        if may_begin {
            database::ensure(&path, first.as_deref()).map_err(|error| match error {
                NewDatabaseError::Sqlite(source) => sqlite(source),
                NewDatabaseError::Directory(error) => error.into(),
            })?;
        }
        let connection = database::open_writer(&path, may_begin, first.as_deref())
            .map_err(|error| unopenable(data, error))?;
        let signed = connection.query_row("SELECT EXISTS (SELECT 1 FROM heads)", [], |row| row.get(0));
        let key = AuditKey::open(data, signed.map_err(sqlite)?)?;
        let chain = Chain::load(&connection, key.public()).map_err(|error| failed(&path, error))?;
        let unfinished = unfinished(&connection).map_err(|error| failed(&path, error))?;

        let begun = unfinished.iter().map(|intent| intent.call).collect();
        let (queue, marks) = (Arc::new(Queue::new()), Arc::default());
        let handle = Handle {
            queue: Arc::clone(&queue),
            marks: Arc::clone(&marks),
            public_key: key.public().clone(),
            unfinished,
            digest_key: key.digest_key(),
            path,
        };
        let no_thread = |error| AuditError::NoThread(Arc::new(error));
        let files = Files::of(&handle.path)?;
        let syncer =
            Syncer::start(files.clone(), Arc::clone(&queue), Arc::clone(&marks)).map_err(no_thread)?;
        let parts = (connection, chain, files, syncer);
        let writer = Writer::new(parts, begun, key, queue, &marks, config, data.clone());
        std::thread::Builder::new()
            .name("audit-writer".into())
            .spawn(move || writer.run())
            .map_err(no_thread)?;
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Takes an entry on. It is on disk within a fraction of a second, but may be lost if the node dies before.
    /// Waits only while the queue is full.
    pub async fn record(&self, entry: &Entry) -> Result<(), AuditError> {
        let (body, mark) = serialise(entry)?;
        self.handle.queue.append(Append { body, mark, answer: None }).await
    }

    /// Writes an entry and returns its number once it is on disk. After an error or a cancellation it may be in the log
    /// all the same, which is then the record of an attempt that nobody acted on. An entry that uses up an approval is
    /// refused alone, with [`AuditError::Consumed`], when another has used it up before.
    pub async fn record_durable(&self, entry: &Entry) -> Result<u64, AuditError> {
        let (body, mark) = serialise(entry)?;
        let (answer, answered) = oneshot::channel();
        self.handle.queue.append(Append { body, mark, answer: Some(answer) }).await?;
        answered.await.map_err(|_| AuditError::Closed)?
    }

    /// Signs a head over everything queued so far, or returns the last one when nothing has come since.
    pub async fn seal(&self) -> Result<Head, AuditError> {
        self.health()?;
        let (answer, answered) = oneshot::channel();
        self.handle.queue.push(Request::Seal(answer))?;
        answered.await.map_err(|_| AuditError::Closed)?
    }

    /// An error while nothing can be recorded; calls must then be refused.
    pub fn health(&self) -> Result<(), AuditError> {
        self.handle.queue.health()
    }

    /// Calls that had begun and not ended when the node last stopped. Each wants a record that says so.
    pub fn unfinished_intents(&self) -> &[Intent] {
        &self.handle.unfinished
    }

    /// The file, for whoever wants to read it beside the writer.
    pub fn path(&self) -> &Path {
        &self.handle.path
    }

    pub fn progress(&self) -> Progress {
        Progress {
            sealed: self.handle.marks.sealed.load(Ordering::Acquire),
            entries: self.handle.marks.size.load(Ordering::Acquire),
        }
    }

    pub fn public_key(&self) -> &PublicKey {
        &self.handle.public_key
    }

    /// What stands in the log for the digest of something that the log does not show whole. A plain digest would let
    /// whoever reads the log find what was hidden by trying: there are ten thousand numbers of four digits.
    pub fn keyed(&self, digest: &str) -> String {
        self.handle.digest_key.keyed(digest)
    }

    /// Writes what is queued, signs a last head, and lets go of the files and of the data directory. Dropping the
    /// last clone does the same, without anybody learning whether it succeeded.
    pub async fn close(&self) -> Result<(), AuditError> {
        self.handle.queue.close().await.map_err(|_| AuditError::Closed)?
    }
}

/// The first entry of a log that is made where an earlier node has been at work: its log was taken away, or it was
/// killed before it had made one.
fn begun_anew() -> Result<Vec<u8>, AuditError> {
    let record = NodeRecord {
        time: Timestamp::now(),
        action: "audit-begun-anew".into(),
        caller: None,
        detail: Map::new(),
    };
    serialise(&Entry::Node(record)).map(|(body, _)| body)
}

fn serialise(entry: &Entry) -> Result<(Vec<u8>, Mark), AuditError> {
    let body = serde_json::to_vec(entry).map_err(|error| AuditError::Unserialisable(Arc::new(error)))?;
    if body.len() > MAX_BODY {
        return Err(AuditError::TooLarge { bytes: body.len() });
    }
    let mark = match entry {
        Entry::Intent(intent) => Mark::Begins(intent.call, intent.approval.clone()),
        Entry::Call(record) => Mark::Ends(record.call, record.approval.clone()),
        Entry::Node(_) => Mark::Neither,
    };
    Ok((body, mark))
}

fn failed(path: &Path, error: LoadError) -> AuditError {
    match error {
        LoadError::Sqlite(source) => {
            AuditError::Unopenable { path: path.to_owned(), source: Arc::new(source) }
        }
        LoadError::Damaged(fault) => AuditError::Damaged { path: path.to_owned(), fault },
    }
}

fn unfinished(connection: &Connection) -> Result<Vec<Intent>, LoadError> {
    let mut statement = connection.prepare(
        "SELECT open_intents.seq, body FROM open_intents LEFT JOIN entries USING (seq) ORDER BY open_intents.seq",
    )?;
    let mut rows = statement.query([])?;
    let mut intents = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, body) = (row.get::<_, u64>(0)?, row.get_ref(1)?);
        let body = body.as_blob().map_err(|_| Fault::at(seq, FaultKind::Removed))?;
        match serde_json::from_slice(body) {
            Ok(Entry::Intent(intent)) => intents.push(intent),
            _ => return Err(Fault::at(seq, FaultKind::Changed).into()),
        }
    }
    Ok(intents)
}
