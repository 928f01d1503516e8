//! Where programs of MCP servers went, on record: they belong to no call.

use aegis_core::{
    Event, Timestamp,
    progress::{Listener, Progress},
    record::{Entry, NodeRecord},
    redact,
};
use aegis_stores::audit::AuditLog;
use tokio_util::task::TaskTracker;

use crate::{bus::Bus, heard::recorded_as};

#[derive(Debug)]
pub struct Journal {
    audit: AuditLog,
    bus: Bus,
    /// Records that are being written.
    writing: TaskTracker,
}

impl Journal {
    pub fn new(audit: AuditLog, bus: Bus) -> Self {
        Self { audit, bus, writing: TaskTracker::new() }
    }

    /// Waits for what was announced before. For when no server runs any more, and before the log is closed.
    pub async fn close(&self) {
        self.writing.close();
        self.writing.wait().await;
    }
}

impl Listener for Journal {
    fn progress(&self, _: Progress) {}

    fn event(&self, event: Event) {
        if let Some(action) = recorded_as(event.name) {
            let (action, mut detail) = (action.to_owned(), event.detail.clone());
            redact::detail(&mut detail);
            let record = NodeRecord { time: Timestamp::now(), action, caller: None, detail };
            let audit = self.audit.clone();
            self.writing.spawn(async move {
                if let Err(error) = audit.record(&Entry::Node(record)).await {
                    tracing::error!(%error, "a connection of an MCP server could not be recorded");
                }
            });
        }
        self.bus.announce_node(event);
    }

    fn records(&self) -> bool {
        self.audit.health().is_ok()
    }
}
