//! Which approvals have been used up, for a node that starts again after a kill.

use std::collections::HashMap;

use aegis_core::{id::ApprovalId, record::CallResult};
use rusqlite::OptionalExtension;
use serde::Deserialize;

use super::read::{LogReader, ReadError};

/// The approval that a call went by, and how it ended.
#[derive(Deserialize)]
struct GlanceAtEnd {
    approval: Option<ApprovalId>,
    result: Option<CallResult>,
}

impl LogReader {
    /// Which of these approvals have been used up, each with how its call ended, where it has. Goes through what was
    /// written since the first of them was.
    pub fn used_approvals(
        &self,
        approvals: &[ApprovalId],
    ) -> Result<HashMap<ApprovalId, Option<CallResult>>, ReadError> {
        let look = || -> rusqlite::Result<_> {
            let mut used = HashMap::new();
            let mut first = i64::MAX;
            let mut marked =
                self.connection.prepare("SELECT seq FROM consumed_approvals WHERE approval = ?1")?;
            for approval in approvals {
                let seq = marked.query_row([approval.as_str()], |row| row.get::<_, i64>(0)).optional()?;
                if let Some(seq) = seq {
                    first = first.min(seq);
                    used.insert(approval.clone(), None);
                }
            }
            let mut entries = self.connection.prepare("SELECT body FROM entries WHERE seq >= ?1")?;
            let mut rows = entries.query([first])?;
            while let Some(row) = rows.next()? {
                let body = row.get_ref(0)?.as_bytes().unwrap_or_default();
                if let Ok(GlanceAtEnd { approval: Some(approval), result: Some(result) }) =
                    serde_json::from_slice(body)
                    && let Some(ended) = used.get_mut(&approval)
                {
                    *ended = Some(result);
                }
            }
            Ok(used)
        };
        look().map_err(|error| self.failed(error))
    }
}
