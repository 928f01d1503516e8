//! Resources that clients watch. The route is told to stop when the last client of a principal is gone; what others watch
//! is theirs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aegis_core::{Call, Caller, secret::Principal};
use aegis_plane::Plane;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub(crate) const SUBSCRIBE: &str = "mcp.resources.subscribe";
const UNSUBSCRIBE: &str = "mcp.resources.unsubscribe";

#[derive(Debug, Default)]
pub(crate) struct Watches {
    counts: Mutex<HashMap<Place, usize>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    principal: Principal,
    server: String,
    uri: String,
}

impl Place {
    /// Whether word of a resource is for those who watch here: what comes on a principal's own connection is theirs alone.
    fn hears(&self, server: &str, uri: &str, whose: Option<&Principal>) -> bool {
        self.server == server && self.uri == uri && whose.is_none_or(|whose| *whose == self.principal)
    }
}

impl Watches {
    /// Counts one more who watches, for as long as the guard is held. That they may was decided.
    pub(crate) fn enter(
        self: &Arc<Self>,
        plane: &Arc<Plane>,
        caller: Caller,
        server: &str,
        uri: &str,
    ) -> Watch {
        let place =
            Place { principal: Principal::from(&caller), server: server.to_owned(), uri: uri.to_owned() };
        *self.counts().entry(place.clone()).or_default() += 1;
        Watch { home: Arc::clone(self), plane: Arc::clone(plane), caller, place }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Place, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody watches a resource.
#[derive(Debug)]
pub(crate) struct Watch {
    home: Arc<Watches>,
    plane: Arc<Plane>,
    caller: Caller,
    place: Place,
}

impl Watch {
    pub(crate) fn hears(&self, server: &str, uri: &str, whose: Option<&Principal>) -> bool {
        self.place.hears(server, uri, whose)
    }

    pub(crate) fn uri(&self) -> &str {
        &self.place.uri
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        {
            let mut counts = self.home.counts();
            match counts.get_mut(&self.place) {
                Some(count) if *count > 1 => {
                    *count -= 1;
                    return;
                }
                _ => drop(counts.remove(&self.place)),
            }
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (plane, caller) = (Arc::clone(&self.plane), self.caller.clone());
        let call = Call::new(UNSUBSCRIBE, arguments(&self.place.server, &self.place.uri));
        runtime.spawn(async move {
            // The watch is over in any case; the record says how the server took it.
            let _ = plane.call(caller, call, CancellationToken::new()).await;
        });
    }
}

pub(crate) fn arguments(server: &str, uri: &str) -> Map<String, Value> {
    [("server", server), ("uri", uri)]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_to_one_principal_is_for_nobody_else() {
        let anna = Principal { tenant: "t".into(), user: "anna".into() };
        let bert = Principal { tenant: "t".into(), user: "bert".into() };
        let place = Place { principal: anna.clone(), server: "s".into(), uri: "memo://one".into() };
        assert!(place.hears("s", "memo://one", None) && place.hears("s", "memo://one", Some(&anna)));
        assert!(!place.hears("s", "memo://one", Some(&bert)));
        assert!(!place.hears("s", "memo://two", None) && !place.hears("other", "memo://one", None));
    }
}
