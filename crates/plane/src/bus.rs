//! Announces events to whoever listens. A slow listener misses events and is told how many; it never slows a call,
//! and it never was the record.

use std::sync::Arc;

use aegis_core::{
    Event, Timestamp,
    event::Announcement,
    id::{CallId, TenantId},
    redact,
};
use tokio::sync::broadcast;

const SLOTS: usize = 4096;

#[derive(Debug, Clone)]
pub struct Bus {
    sender: broadcast::Sender<Arc<Announcement>>,
}

impl Default for Bus {
    fn default() -> Self {
        Self { sender: broadcast::Sender::new(SLOTS) }
    }
}

impl Bus {
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Announcement>> {
        self.sender.subscribe()
    }

    pub fn listeners(&self) -> usize {
        self.sender.receiver_count()
    }

    /// An event of one call, for subscribers of its tenant. `tool` is a name that the catalog knows, or one that is masked.
    pub fn announce(&self, tenant: &TenantId, call: CallId, tool: &str, event: Event) {
        self.send(|| Announcement {
            time: Timestamp::now(),
            tenant: Some(tenant.clone()),
            call: Some(call),
            tool: Some(tool.to_owned()),
            event,
        });
    }

    /// An event of a tenant that belongs to no call.
    pub fn announce_to(&self, tenant: &TenantId, event: Event) {
        self.send(|| Announcement {
            time: Timestamp::now(),
            tenant: Some(tenant.clone()),
            call: None,
            tool: None,
            event,
        });
    }

    /// An event of the node itself.
    pub fn announce_node(&self, event: Event) {
        self.send(|| Announcement { time: Timestamp::now(), tenant: None, call: None, tool: None, event });
    }

    fn send(&self, announcement: impl FnOnce() -> Announcement) {
        if self.sender.receiver_count() > 0 {
            let mut announcement = announcement();
            // Paths, names and reasons come from calls.
            redact::detail(&mut announcement.event.detail);
            // Fails only when the last listener has just left.
            let _ = self.sender.send(Arc::new(announcement));
        }
    }
}
