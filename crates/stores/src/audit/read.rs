//! Reading the log as people do: the newest first, filtered, or as it grows.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use aegis_core::{
    Timestamp,
    config::ToolPattern,
    id::{TenantId, UserId},
    record::Entry,
};
use rusqlite::{Connection, Row};
use serde::{Deserialize, Serialize};

use super::{
    database::{OpenError, open_reader},
    digest::Digest,
    head::Head,
};

/// Rows per query. Each query is its own view of the log, so that a long read does not hold up the writer's file.
const PAGE: usize = 256;

/// Records are nearly in the order of their times. A scan back for `since` goes on this far past it.
pub(super) const DISORDER: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(
        "there is no audit log at {path}: start a node with `aegis up` first, or name another with --data"
    )]
    Missing { path: PathBuf },
    #[error("can't read the audit log {path}: {source}")]
    Database { path: PathBuf, source: rusqlite::Error },
    #[error("{path} is not an audit log of aegis: give its audit.db")]
    NotALog { path: PathBuf },
    #[error(
        "{path} was written in format {found}, which this aegis does not know: use the newer one that wrote it"
    )]
    Newer { path: PathBuf, found: i64 },
}

/// A record as it is stored.
#[derive(Debug, Clone)]
pub struct Stored {
    pub seq: u64,
    /// None when what is stored can't be a hash.
    pub hash: Option<Digest>,
    pub body: Vec<u8>,
    /// What the body says, or why it can't be read.
    pub entry: Result<Entry, String>,
}

/// Which entries are wanted. What is not set does not matter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub tenant: Option<TenantId>,
    pub user: Option<UserId>,
    pub tool: Option<ToolPattern>,
    pub status: Option<Status>,
    pub kind: Option<Kind>,
    /// From this instant on.
    pub since: Option<Timestamp>,
    /// Up to and including this instant.
    pub until: Option<Timestamp>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Done,
    Failed,
    Refused,
    Unknown,
}

impl Status {
    pub const ALL: [Self; 4] = [Self::Done, Self::Failed, Self::Refused, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or_else(|| format!("`{text}` is no status: use done, failed, refused or unknown"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Intent,
    Call,
    Node,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Intent, Self::Call, Self::Node];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Call => "call",
            Self::Node => "node",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or_else(|| format!("`{text}` is no kind of entry: use intent, call or node"))
    }
}

impl Filter {
    pub fn matches(&self, entry: &Entry) -> bool {
        self.fits(&Facts::of(entry))
    }

    fn fits(&self, facts: &Facts<'_>) -> bool {
        fn same(wanted: Option<&str>, found: Option<&str>) -> bool {
            wanted.is_none() || wanted == found
        }
        same(self.kind.map(Kind::as_str), Some(facts.kind))
            && self.since.is_none_or(|since| facts.time >= since)
            && self.until.is_none_or(|until| facts.time <= until)
            && same(self.status.map(Status::as_str), facts.status)
            && self.tool.as_ref().is_none_or(|wanted| facts.tool.is_some_and(|tool| wanted.matches(tool)))
            && same(self.tenant.as_ref().map(TenantId::as_str), facts.tenant)
            && same(self.user.as_ref().map(UserId::as_str), facts.user)
    }

    /// Whether everything before an entry of this time is too old as well.
    fn ends_at(&self, time: Timestamp) -> bool {
        self.since.is_some_and(|since| time < since.minus(DISORDER))
    }
}

/// What filters look at.
struct Facts<'a> {
    kind: &'a str,
    time: Timestamp,
    tenant: Option<&'a str>,
    user: Option<&'a str>,
    tool: Option<&'a str>,
    status: Option<&'a str>,
}

impl<'a> Facts<'a> {
    fn of(entry: &'a Entry) -> Self {
        let (kind, time, caller, tool, status) = match entry {
            Entry::Intent(intent) => {
                (Kind::Intent, intent.time, Some(&intent.caller), Some(intent.tool.as_str()), None)
            }
            Entry::Call(call) => (
                Kind::Call,
                call.time,
                Some(&call.caller),
                Some(call.tool.as_str()),
                Some(call.result.status()),
            ),
            Entry::Node(node) => (Kind::Node, node.time, node.caller.as_ref(), None, None),
        };
        Self {
            kind: kind.as_str(),
            time,
            tenant: caller.map(|caller| caller.tenant.as_str()),
            user: caller.map(|caller| caller.user.as_str()),
            tool,
            status,
        }
    }
}

/// The same out of a body, without reading the rest of it: a scan passes over many entries for each it shows.
#[derive(Deserialize)]
struct Glance<'a> {
    #[serde(borrow)]
    entry: Cow<'a, str>,
    time: Timestamp,
    #[serde(borrow)]
    caller: Option<GlanceAtCaller<'a>>,
    #[serde(borrow)]
    tool: Option<Cow<'a, str>>,
    #[serde(borrow)]
    result: Option<GlanceAtResult<'a>>,
}

#[derive(Deserialize)]
struct GlanceAtCaller<'a> {
    #[serde(borrow)]
    tenant: Cow<'a, str>,
    #[serde(borrow)]
    user: Cow<'a, str>,
}

#[derive(Deserialize)]
struct GlanceAtResult<'a> {
    #[serde(borrow)]
    status: Cow<'a, str>,
}

impl Glance<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts {
            kind: &self.entry,
            time: self.time,
            tenant: self.caller.as_ref().map(|caller| &*caller.tenant),
            user: self.caller.as_ref().map(|caller| &*caller.user),
            tool: self.tool.as_deref(),
            status: self.result.as_ref().map(|result| &*result.status),
        }
    }
}

/// The log, open for reading beside whoever writes it. All methods block.
#[derive(Debug)]
pub struct LogReader {
    pub(super) connection: Connection,
    path: PathBuf,
}

impl LogReader {
    pub fn open(database: &Path) -> Result<Self, ReadError> {
        let path = database.to_owned();
        if !path.exists() {
            return Err(ReadError::Missing { path });
        }
        match open_reader(database) {
            Ok(connection) => Ok(Self { connection, path }),
            Err(OpenError::Sqlite(source)) => Err(ReadError::Database { path, source }),
            Err(OpenError::NotALog | OpenError::Empty) => Err(ReadError::NotALog { path }),
            Err(OpenError::Newer(found)) => Err(ReadError::Newer { path, found }),
        }
    }

    /// The number of the newest entry; 0 for an empty log.
    pub fn last(&self) -> Result<u64, ReadError> {
        self.connection
            .query_row("SELECT coalesce(max(seq), 0) FROM entries", [], |row| row.get(0))
            .map_err(|error| self.failed(error))
    }

    /// The newest signed head that can be read, unchecked.
    pub fn head(&self) -> Result<Option<Head>, ReadError> {
        let mut heads = self
            .connection
            .prepare_cached("SELECT body, signature FROM heads ORDER BY size DESC LIMIT 1")
            .map_err(|error| self.failed(error))?;
        let head = heads
            .query_map([], |row| {
                Ok(Head::parse(row.get_ref(0)?.as_bytes()?, row.get_ref(1)?.as_bytes()?).ok())
            })
            .and_then(|mut heads| heads.next().transpose());
        head.map(Option::flatten).map_err(|error| self.failed(error))
    }

    /// Up to `limit` matching entries, the newest first. An entry that can't be read matches every filter: better
    /// shown once too often than hidden.
    pub fn tail(&self, filter: &Filter, limit: usize) -> Result<Vec<Stored>, ReadError> {
        let query = "SELECT seq, body, hash FROM entries WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";
        let mut found = Vec::new();
        let mut before = i64::MAX;
        while found.len() < limit {
            let page = self.page(query, before, filter, &mut found)?;
            let Some(oldest) = page.last else { break };
            before = oldest;
            if page.last_time.is_some_and(|time| filter.ends_at(time)) {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Matching entries after `seq`, as they come.
    pub fn follow(self, after: u64, filter: Filter) -> Follow {
        Follow { reader: self, after: i64::try_from(after).unwrap_or(i64::MAX), filter }
    }

    /// Adds the matching entries of one page to `found`.
    fn page(
        &self,
        query: &str,
        bound: i64,
        filter: &Filter,
        found: &mut Vec<Stored>,
    ) -> Result<Page, ReadError> {
        let mut read = || -> rusqlite::Result<Page> {
            let mut statement = self.connection.prepare_cached(query)?;
            let mut rows = statement.query((bound, PAGE))?;
            let mut page = Page { last: None, last_time: None };
            while let Some(row) = rows.next()? {
                let body = row.get_ref(1)?.as_bytes().unwrap_or_default();
                let glance = serde_json::from_slice::<Glance<'_>>(body).ok();
                page.last = Some(row.get(0)?);
                page.last_time = glance.as_ref().map(|glance| glance.time);
                if glance.is_none_or(|glance| filter.fits(&glance.facts())) {
                    found.push(stored(row, body)?);
                }
            }
            Ok(page)
        };
        read().map_err(|error| self.failed(error))
    }

    pub(super) fn failed(&self, source: rusqlite::Error) -> ReadError {
        ReadError::Database { path: self.path.clone(), source }
    }
}

struct Page {
    /// The number of its last entry, none when the page is empty.
    last: Option<i64>,
    last_time: Option<Timestamp>,
}

/// Follows the log as another process writes it.
#[derive(Debug)]
pub struct Follow {
    reader: LogReader,
    after: i64,
    filter: Filter,
}

impl Follow {
    /// What has come since the last call, the oldest first; empty when nothing has. The caller decides how often to
    /// look; a look that finds nothing costs microseconds.
    pub fn more(&mut self) -> Result<Vec<Stored>, ReadError> {
        let query = "SELECT seq, body, hash FROM entries WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let mut found = Vec::new();
        while found.len() < PAGE
            && let Some(newest) = self.reader.page(query, self.after, &self.filter, &mut found)?.last
        {
            self.after = newest;
        }
        Ok(found)
    }
}

fn stored(row: &Row<'_>, body: &[u8]) -> rusqlite::Result<Stored> {
    Ok(Stored {
        // Only a forger writes numbers below 1.
        seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0),
        hash: row.get_ref(2)?.as_bytes().ok().and_then(Digest::from_slice),
        entry: serde_json::from_slice(body).map_err(|error| error.to_string()),
        body: body.to_vec(),
    })
}
