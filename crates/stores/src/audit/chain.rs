//! Where the log stands: its last hash, the tree's edge, the last head.

use rusqlite::{Connection, OptionalExtension};

use super::{
    digest::Digest,
    head::{Head, HeadFault},
    key::PublicKey,
    merkle::Frontier,
    verify::{Fault, FaultKind},
};

#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) frontier: Frontier,
    pub(super) last: Digest,
    pub(super) head: Option<Head>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Damaged(#[from] Fault),
}

impl Chain {
    pub(super) fn empty() -> Self {
        Self { frontier: Frontier::default(), last: Digest::ZERO, head: None }
    }

    pub(super) fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// How many entries the last head covers.
    pub(super) fn sealed(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.size)
    }

    /// Takes the next entry in. Returns its number.
    pub(super) fn append(&mut self, body: &[u8]) -> u64 {
        let seq = self.size() + 1;
        self.last = Digest::of_entry(&self.last, seq, body);
        self.frontier.push(self.last);
        seq
    }

    /// Continues from the last head, checking it and every entry after it. What the head covers is left to
    /// `verify`, so that a start costs the same however long the log is.
    pub(super) fn load(connection: &Connection, key: &PublicKey) -> Result<Self, LoadError> {
        let mut chain = Self::load_head(connection, key)?;
        let mut entries =
            connection.prepare("SELECT seq, body, hash FROM entries WHERE seq > ?1 ORDER BY seq")?;
        let mut rows = entries.query([chain.size()])?;
        while let Some(row) = rows.next()? {
            let (seq, body, stored): (u64, Vec<u8>, Vec<u8>) = row.try_into()?;
            let next = chain.size() + 1;
            if seq != next {
                return Err(Fault::at(next, FaultKind::Removed).through(seq - 1).into());
            }
            chain.append(&body);
            if stored != chain.last.as_bytes() {
                return Err(Fault::at(seq, FaultKind::Changed).into());
            }
        }
        Ok(chain)
    }

    fn load_head(connection: &Connection, key: &PublicKey) -> Result<Self, LoadError> {
        let head = connection
            .query_row("SELECT body, signature, frontier FROM heads ORDER BY size DESC LIMIT 1", [], |row| {
                let head = Head::parse(row.get_ref(0)?.as_bytes()?, row.get_ref(1)?.as_bytes()?);
                Ok((head, row.get::<_, Vec<u8>>(2)?))
            })
            .optional()?;
        let Some((head, frontier)) = head else {
            return Ok(Self::empty());
        };
        let head = head.map_err(|fault| Fault::of_head(0, fault))?;
        head.check(key).map_err(|fault| Fault::of_head(head.size, fault))?;
        let frontier = Frontier::from_bytes(head.size, &frontier)
            .filter(|frontier| frontier.root() == head.root)
            .ok_or_else(|| Fault::of_head(head.size, HeadFault::Malformed))?;
        let last = Self::last_sealed(connection, head.size)?;
        Ok(Self { frontier, last, head: Some(head) })
    }

    /// The hash of the last entry under the head, which the next one builds on.
    fn last_sealed(connection: &Connection, size: u64) -> Result<Digest, LoadError> {
        if size == 0 {
            return Ok(Digest::ZERO);
        }
        let entry = |seq: u64| {
            connection
                .query_row("SELECT body, hash FROM entries WHERE seq = ?1", [seq], |row| {
                    Ok((row.get::<_, Vec<u8>>(0)?, Digest::from_slice(row.get_ref(1)?.as_bytes()?)))
                })
                .optional()
        };
        let missing = || -> Result<Fault, LoadError> {
            let there: Option<u64> =
                connection.query_row("SELECT max(seq) FROM entries", [], |row| row.get(0))?;
            Ok(match there {
                Some(there) if there > size => Fault::at(size, FaultKind::Removed),
                there => Fault::at(there.unwrap_or(0) + 1, FaultKind::Truncated { head: size }).through(size),
            })
        };
        let Some((body, Some(hash))) = entry(size)? else { return Err(missing()?.into()) };
        let previous = match size {
            1 => Some(Digest::ZERO),
            _ => entry(size - 1)?.and_then(|(_, hash)| hash),
        };
        match previous {
            Some(previous) if Digest::of_entry(&previous, size, &body) == hash => Ok(hash),
            _ => Err(Fault::at(size, FaultKind::Changed).into()),
        }
    }
}
