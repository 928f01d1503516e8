//! Being told when resources of a server change.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use aegis_core::{config::upstream::Identity, secret::Principal};
use aegis_mcp_client::{Client, Error, Interests};
use tokio_util::sync::DropGuard;

use super::server::Server;

/// Resources of one server that one principal can watch at once.
const MOST: usize = 1000;
/// And all principals together.
const MOST_OF_ALL: usize = 10_000;

/// Who watches what. Nobody ends the watch of another: a server is told to stop when the last one has.
#[derive(Debug, Default)]
pub(super) struct Watched {
    by: BTreeMap<Principal, BTreeSet<String>>,
    /// By way of the newest version: one request on each connection that names it all. Of `None` where all share one.
    listening: HashMap<Option<Principal>, DropGuard>,
}

impl Watched {
    /// `false` when they watch it already.
    fn add(&mut self, principal: &Principal, uri: &str) -> Result<bool, Error> {
        let own = self.by.get(principal);
        if own.is_some_and(|own| own.contains(uri)) {
            return Ok(false);
        }
        if own.is_some_and(|own| own.len() >= MOST) {
            return Err(Error::TooManyPending { limit: MOST });
        }
        if self.by.values().map(BTreeSet::len).sum::<usize>() >= MOST_OF_ALL {
            return Err(Error::TooManyPending { limit: MOST_OF_ALL });
        }
        Ok(self.by.entry(principal.clone()).or_default().insert(uri.to_owned()))
    }

    /// `false` when they did not watch it.
    fn remove(&mut self, principal: &Principal, uri: &str) -> bool {
        let Some(own) = self.by.get_mut(principal) else { return false };
        let watched = own.remove(uri);
        if own.is_empty() {
            self.by.remove(principal);
        }
        watched
    }

    /// What is watched on a connection.
    fn on(&self, connection: Option<&Principal>) -> BTreeSet<String> {
        match connection {
            Some(principal) => self.by.get(principal).cloned().unwrap_or_default(),
            None => self.by.values().flatten().cloned().collect(),
        }
    }
}

impl Server {
    /// Asks to be told of a resource, or no longer, on behalf of a principal whose connection this is.
    pub(super) async fn watch(
        &self,
        client: &Client,
        principal: &Principal,
        uri: &str,
        on: bool,
    ) -> Result<(), Error> {
        let connection = match self.config.identity {
            Identity::Shared => None,
            Identity::PerPrincipal => Some(principal.clone()),
        };
        let mut fresh = false;
        {
            let mut watched = self.watched();
            if on {
                fresh = watched.add(principal, uri)?;
            } else if !watched.remove(principal, uri) {
                return Ok(());
            }
            let left = watched.on(connection.as_ref());
            if client.version().stateless() {
                let interests = Interests { updates_of: left, ..Interests::default() };
                if interests.is_empty() {
                    watched.listening.remove(&connection);
                } else {
                    watched.listening.insert(connection, client.listen(&interests));
                }
                return Ok(());
            }
            if !on && left.contains(uri) {
                return Ok(());
            }
        }
        let told = client.subscribe(uri, on).await;
        if fresh && told.is_err() {
            self.watched().remove(principal, uri);
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_ends_the_watch_of_another() {
        let anna = Principal { tenant: "t".into(), user: "anna".into() };
        let bert = Principal { tenant: "t".into(), user: "bert".into() };
        let mut watched = Watched::default();
        assert!(watched.add(&anna, "memo://one").unwrap());
        assert!(!watched.add(&anna, "memo://one").unwrap());
        assert!(!watched.remove(&bert, "memo://one"));
        assert!(watched.on(None).contains("memo://one"));
        assert!(watched.on(Some(&bert)).is_empty(), "a connection of one's own has one's own watches");
        assert!(watched.add(&bert, "memo://one").unwrap());
        assert!(watched.remove(&anna, "memo://one"));
        assert!(watched.on(None).contains("memo://one") && watched.on(Some(&anna)).is_empty());
        assert!(watched.remove(&bert, "memo://one") && watched.on(None).is_empty());
    }

    #[test]
    fn one_principal_leaves_room_for_others() {
        let anna = Principal { tenant: "t".into(), user: "anna".into() };
        let bert = Principal { tenant: "t".into(), user: "bert".into() };
        let mut watched = Watched::default();
        for number in 0..MOST {
            watched.add(&anna, &format!("memo://{number}")).unwrap();
        }
        assert!(matches!(watched.add(&anna, "memo://more"), Err(Error::TooManyPending { .. })));
        assert!(watched.add(&bert, "memo://more").unwrap());
    }
}
