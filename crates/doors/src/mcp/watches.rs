//! Resources that clients watch. A server is told once, however many clients want to know, and told to stop when the
//! last of them is gone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use aegis_core::{Call, Caller};
use aegis_plane::Plane;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

pub(crate) const SUBSCRIBE: &str = "mcp.resources.subscribe";
const UNSUBSCRIBE: &str = "mcp.resources.unsubscribe";

#[derive(Debug, Default)]
pub(crate) struct Watches {
    counts: Mutex<HashMap<(String, String), usize>>,
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
        let place = (server.to_owned(), uri.to_owned());
        *self.counts().entry(place.clone()).or_default() += 1;
        Watch { home: Arc::clone(self), plane: Arc::clone(plane), caller, place }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<(String, String), usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody watches a resource.
#[derive(Debug)]
pub(crate) struct Watch {
    home: Arc<Watches>,
    plane: Arc<Plane>,
    caller: Caller,
    place: (String, String),
}

impl Watch {
    pub(crate) fn server(&self) -> &str {
        &self.place.0
    }

    pub(crate) fn uri(&self) -> &str {
        &self.place.1
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
        let call = Call::new(UNSUBSCRIBE, arguments(&self.place.0, &self.place.1));
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
