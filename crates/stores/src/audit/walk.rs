//! Walking the log from old to new without taking its entries apart, for readers that go over much of it.

use std::ops::ControlFlow;

use aegis_core::Timestamp;
use serde::Deserialize;

use super::read::{DISORDER, LogReader, ReadError};

/// Rows per query. Each query is its own view of the log, so that a long walk does not hold up the writer's file.
const STRIDE: usize = 4096;
/// How many unreadable entries in a row are stepped over to find one with a time.
const UNREADABLE: usize = 16;

#[derive(Deserialize)]
struct When {
    time: Timestamp,
}

impl LogReader {
    /// Hands each entry after number `after` to `each`, the oldest first, as its number and its body, until the log
    /// ends or `each` has seen enough.
    pub fn walk(
        &self,
        after: u64,
        mut each: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let mut after = i64::try_from(after).unwrap_or(i64::MAX);
        let mut stride = || -> rusqlite::Result<ControlFlow<()>> {
            let mut statement = self
                .connection
                .prepare_cached("SELECT seq, body FROM entries WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
            let mut rows = statement.query((after, STRIDE))?;
            let mut last = None;
            while let Some(row) = rows.next()? {
                let seq: i64 = row.get(0)?;
                last = Some(seq);
                // Only a forger writes numbers below 1, or a body that is no blob.
                let body = row.get_ref(1)?.as_bytes().unwrap_or_default();
                if each(u64::try_from(seq).unwrap_or(0), body).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            match last {
                Some(seq) => {
                    after = seq;
                    Ok(ControlFlow::Continue(()))
                }
                None => Ok(ControlFlow::Break(())),
            }
        };
        while stride().map_err(|error| self.failed(error))?.is_continue() {}
        Ok(())
    }

    /// A number up to which every entry is older than `time`, found without reading what lies before it.
    pub fn before(&self, time: Timestamp) -> Result<u64, ReadError> {
        let time = time.minus(DISORDER);
        let (mut older, mut newer) = (0, self.last()?);
        while older < newer {
            let middle = older + (newer - older) / 2;
            match self.time_after(middle)? {
                Some(found) if found < time => older = middle + 1,
                _ => newer = middle,
            }
        }
        Ok(older)
    }

    /// The time of the first entry after number `after` that says one.
    fn time_after(&self, after: u64) -> Result<Option<Timestamp>, ReadError> {
        let mut looked_at = 0;
        let mut found = None;
        self.walk(after, |_, body| {
            looked_at += 1;
            found = serde_json::from_slice::<When>(body).ok().map(|when| when.time);
            if found.is_some() || looked_at == UNREADABLE {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}
