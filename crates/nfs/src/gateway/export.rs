//! A volume handed to one agent for a while.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use aegis_core::{Caller, Timestamp, VolumePath};
use aegis_routes::files::{
    Attachment,
    attached::{FileFacts, FileKind, Identity},
};
use serde::Serialize;

use super::{
    accesses::{Accesses, Site},
    handle::{ExportId, Handle, HandleKey, VolumeMark},
    listing::Listings,
    tree::{Spot, Tree},
};

/// Files that an export has made lately and may write whatever their mode.
const MOST_MADE: usize = 256;

#[derive(Debug)]
pub(super) struct Export {
    pub(super) id: ExportId,
    /// As people name it.
    pub(super) name: String,
    pub(super) caller: Caller,
    pub(super) attachment: Attachment,
    pub(super) volume: VolumeMark,
    /// What a client mounts; whoever knows it may.
    pub(super) secret: String,
    pub(super) created: Timestamp,
    pub(super) expires: Timestamp,
    pub(super) accesses: Accesses,
    pub(super) listings: Listings,
    pub(super) requests: AtomicU64,
    tree: Mutex<Tree>,
    made: Mutex<VecDeque<Identity>>,
    until: Instant,
    ended: AtomicBool,
}

/// An export as operators see it. Its mount path is shown once, when it is made.
#[derive(Debug, Clone, Serialize)]
pub struct ExportSummary {
    pub id: String,
    pub tenant: String,
    pub user: String,
    pub context: String,
    pub volume: String,
    pub created: Timestamp,
    pub expires: Timestamp,
    /// Requests that were answered.
    pub requests: u64,
}

/// What is needed to make one.
#[derive(Debug)]
pub(super) struct NewExport {
    pub(super) id: ExportId,
    pub(super) name: String,
    pub(super) caller: Caller,
    pub(super) attachment: Attachment,
    pub(super) secret: String,
    pub(super) root: Identity,
    pub(super) lasting: Duration,
}

impl Export {
    pub(super) fn new(new: NewExport) -> Self {
        let NewExport { id, name, caller, attachment, secret, root, lasting } = new;
        let volume = attachment.volume();
        let created = Timestamp::now();
        Self {
            volume: VolumeMark::of(volume.id.as_str()),
            tree: Mutex::new(Tree::new(volume.mount_path.clone(), root)),
            id,
            name,
            caller,
            attachment,
            secret,
            created,
            expires: created.plus(lasting),
            accesses: Accesses::default(),
            listings: Listings::default(),
            requests: AtomicU64::new(0),
            made: Mutex::default(),
            until: Instant::now() + lasting,
            ended: AtomicBool::new(false),
        }
    }

    pub(super) fn is_live(&self) -> bool {
        !self.ended.load(Ordering::Relaxed) && Instant::now() < self.until
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn summary(&self) -> ExportSummary {
        ExportSummary {
            id: self.name.clone(),
            tenant: self.caller.tenant.to_string(),
            user: self.caller.user.to_string(),
            context: self.caller.context.to_string(),
            volume: self.attachment.volume().id.to_string(),
            created: self.created,
            expires: self.expires,
            requests: self.requests.load(Ordering::Relaxed),
        }
    }

    pub(super) fn site<'a>(&'a self, plane: &'a aegis_plane::Plane) -> Site<'a> {
        Site { plane, caller: &self.caller, attachment: &self.attachment }
    }

    pub(super) fn spot(&self, file: u64) -> Option<Spot> {
        self.tree().spot(file)
    }

    /// The handle of a file that was seen under a name in a directory.
    pub(super) fn handle(&self, key: &HandleKey, directory: u64, name: &str, facts: &FileFacts) -> Vec<u8> {
        let is_directory = facts.kind == FileKind::Directory;
        let file = self.tree().enter(directory, name, facts.identity, is_directory);
        self.handle_of(key, file)
    }

    pub(super) fn handle_of(&self, key: &HandleKey, file: u64) -> Vec<u8> {
        key.seal(&Handle { export: self.id, volume: self.volume, file })
    }

    /// Whoever makes a file that nobody may write, may write it: that is how such files come to be.
    pub(super) fn created(&self, identity: Identity) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.push_front(identity);
        made.truncate(MOST_MADE);
    }

    pub(super) fn has_created(&self, identity: &Identity) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(identity)
    }

    pub(super) fn removed(&self, identity: &Identity) {
        self.tree().leave(identity);
    }

    pub(super) fn renamed(&self, directory: u64, name: &str, facts: &FileFacts) {
        self.tree().enter(directory, name, facts.identity, facts.kind == FileKind::Directory);
    }

    pub(super) fn mount_path(&self) -> &VolumePath {
        &self.attachment.volume().mount_path
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
