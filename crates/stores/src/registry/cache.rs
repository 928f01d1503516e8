//! What the registry keeps in memory.

use std::{collections::HashMap, sync::Arc, time::Duration};

use aegis_core::{Timestamp, id::CredentialId};

use super::token::{Token, TokenHash};

/// Tokens per generation; two generations are held.
const GENERATION: usize = 8192;

/// Tokens that were good when last looked up. Only what is in the store comes in, so a stranger can't fill it.
///
/// When the young generation is full it becomes the old one, and what was not used since is forgotten: no list to
/// keep in order, and never more than two generations in memory.
#[derive(Debug, Default)]
pub(super) struct Cache {
    young: HashMap<TokenHash, Arc<Token>>,
    old: HashMap<TokenHash, Arc<Token>>,
}

impl Cache {
    pub(super) fn get(&mut self, hash: &TokenHash) -> Option<Arc<Token>> {
        if let Some(token) = self.young.get(hash) {
            return Some(Arc::clone(token));
        }
        let token = self.old.remove(hash)?;
        self.insert(*hash, Arc::clone(&token));
        Some(token)
    }

    pub(super) fn insert(&mut self, hash: TokenHash, token: Arc<Token>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(hash, token);
    }

    /// Revoking is rare, so it may look at everything.
    pub(super) fn remove(&mut self, id: &CredentialId) {
        self.young.retain(|_, token| &token.id != id);
        self.old.retain(|_, token| &token.id != id);
    }
}

/// How exactly the last use of a token is known.
const COARSE: Duration = Duration::from_secs(3600);

/// Uses of tokens that are still to be written down.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// The last use noted for each token, pruned with the cache's bound.
    noted: HashMap<CredentialId, Timestamp>,
    pending: HashMap<CredentialId, Timestamp>,
}

impl Uses {
    /// Notes a use. True when somebody must now write: nobody is going to yet.
    pub(super) fn note(&mut self, token: &Token, now: Timestamp) -> bool {
        let last = self.noted.get(&token.id).copied().or(token.last_used);
        if last.is_some_and(|last| now < last.plus(COARSE)) {
            return false;
        }
        if self.noted.len() >= 2 * GENERATION {
            self.noted.retain(|_, noted| now < noted.plus(COARSE));
        }
        if self.noted.len() >= 2 * GENERATION {
            return false;
        }
        self.noted.insert(token.id.clone(), now);
        self.pending.insert(token.id.clone(), now);
        self.pending.len() == 1
    }

    pub(super) fn take(&mut self) -> HashMap<CredentialId, Timestamp> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use aegis_core::{
        caller::Tier,
        id::{ContextName, TenantId, UserId},
    };

    use super::*;

    fn token(number: usize) -> (TokenHash, Arc<Token>) {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        let token = Token {
            id: CredentialId::new(number.to_string()),
            tenant: TenantId::new("local"),
            user: UserId::new("u"),
            tier: Tier::User,
            context: ContextName::new("read-only"),
            created: Timestamp::from_millis(0),
            expires: None,
            revoked: None,
            note: None,
            last_used: None,
        };
        (TokenHash(hash), Arc::new(token))
    }

    #[test]
    fn stays_bounded_and_keeps_what_is_used() {
        let mut cache = Cache::default();
        let (favourite, favoured) = token(usize::MAX);
        cache.insert(favourite, favoured);
        for number in 0..10 * GENERATION {
            let (hash, token) = token(number);
            cache.insert(hash, token);
            assert!(cache.get(&favourite).is_some());
            assert!(cache.young.len() + cache.old.len() <= 2 * GENERATION);
        }
        assert!(cache.get(&token(0).0).is_none());
        cache.remove(&CredentialId::new(usize::MAX.to_string()));
        assert!(cache.get(&favourite).is_none());
    }

    #[test]
    fn a_use_is_noted_once_an_hour() {
        let mut uses = Uses::default();
        let (_, first) = token(1);
        let (_, second) = token(2);
        let start = Timestamp::from_millis(1_000_000);
        assert!(uses.note(&first, start));
        assert!(!uses.note(&second, start), "the first write will take it along");
        assert!(!uses.note(&first, start.plus(COARSE / 2)));
        assert_eq!(uses.take().len(), 2);
        assert!(!uses.note(&first, start.plus(COARSE / 2)));
        assert!(uses.note(&first, start.plus(COARSE)));
    }
}
