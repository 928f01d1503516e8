//! What the registry keeps in memory of enrolments and sessions. Changed only with the store locked.

use std::{collections::HashMap, sync::Arc};

use aegis_core::{Timestamp, id::CredentialId};

use super::{
    MOST_ENROLMENTS,
    enrolment::{Enrolment, WorkloadHash},
    session::{LiveSession, Session},
};

/// Sessions per generation; two generations are held. A hundred thousand live ones fit into one, so that none of them is
/// forgotten when the generations change.
const GENERATION: usize = 1 << 17;

#[derive(Debug, Default)]
pub(in crate::registry) struct Memory {
    enrolments: HashMap<WorkloadHash, Arc<Enrolment>>,
    /// As with tokens: when the young generation is full it becomes the old one, and what was not used since is
    /// forgotten.
    young: HashMap<[u8; 32], Arc<LiveSession>>,
    old: HashMap<[u8; 32], Arc<LiveSession>>,
}

impl Memory {
    pub(super) fn know(&mut self, enrolments: impl IntoIterator<Item = (WorkloadHash, Enrolment)>) {
        self.enrolments.extend(enrolments.into_iter().map(|(hash, enrolment)| (hash, Arc::new(enrolment))));
    }

    /// Whether another enrolment can be held, once those are gone that can't be used any more.
    pub(super) fn has_room(&mut self, now: Timestamp) -> bool {
        if self.enrolments.len() >= MOST_ENROLMENTS {
            self.enrolments.retain(|_, enrolment| enrolment.usable_at(now).is_ok());
        }
        self.enrolments.len() < MOST_ENROLMENTS
    }

    pub(super) fn enrolment(&self, hash: &WorkloadHash) -> Option<Arc<Enrolment>> {
        self.enrolments.get(hash).cloned()
    }

    pub(super) fn replace(&mut self, (hash, enrolment): (WorkloadHash, Enrolment)) {
        if let Some(known) = self.enrolments.get_mut(&hash) {
            *known = Arc::new(enrolment);
        }
    }

    pub(super) fn session(&mut self, token_hash: &[u8; 32]) -> Option<Arc<LiveSession>> {
        if let Some(live) = self.young.get(token_hash) {
            return Some(Arc::clone(live));
        }
        let live = self.old.remove(token_hash)?;
        self.keep(*token_hash, Arc::clone(&live));
        Some(live)
    }

    pub(super) fn keep(&mut self, token_hash: [u8; 32], live: Arc<LiveSession>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token_hash, live);
    }

    /// Forgets a session, and others of the same execution: the store says what has become of them. Rare, so it may
    /// look at everything.
    pub(super) fn forget_session(&mut self, session: &Session) {
        let other = |live: &Arc<LiveSession>| {
            live.session.id != session.id && live.session.execution != session.execution
        };
        self.young.retain(|_, live| other(live));
        self.old.retain(|_, live| other(live));
    }

    /// Forgets what an enrolment or token stands behind: the store says what has become of it.
    pub(in crate::registry) fn forget_credential(&mut self, id: &CredentialId) {
        self.enrolments.retain(|_, enrolment| &enrolment.id != id);
        self.young.retain(|_, live| &live.session.credential != id);
        self.old.retain(|_, live| &live.session.credential != id);
    }
}
