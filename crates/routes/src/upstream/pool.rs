//! Connections of those servers where each principal has their own.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use aegis_core::{config::McpServer, secret::Principal};
use aegis_mcp_client::Client;
use tokio::time::Instant;

use super::{World, reason::Reason, server::Server};

/// One that could not be opened is not tried again at once.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

#[derive(derive_more::Debug)]
pub(super) struct Pool {
    #[debug("{}", self.len())]
    places: Mutex<HashMap<Principal, Arc<Place>>>,
    most: usize,
    idle: Duration,
    began: Instant,
}

/// Held while a connection is opened, so that one is opened for all who wait.
struct Place {
    client: tokio::sync::Mutex<Opened>,
    /// Milliseconds since the pool began.
    used: AtomicU64,
}

enum Opened {
    Not,
    Client(Arc<Client>),
    Failed { reason: String, at: Instant },
}

impl Pool {
    pub(super) fn new(server: &McpServer) -> Self {
        Self {
            places: Mutex::default(),
            most: server.limits.max_connections as usize,
            idle: server.limits.idle_timeout.0,
            began: Instant::now(),
        }
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Principal, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.places().len()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) async fn get(
        &self,
        server: &Arc<Server>,
        world: &Arc<World>,
        principal: &Principal,
    ) -> Result<Arc<Client>, String> {
        let place = self.place(principal)?;
        place.used.store(self.now(), Ordering::Relaxed);
        let mut opened = place.client.lock().await;
        match &*opened {
            Opened::Client(client) if client.ended().is_none() => return Ok(Arc::clone(client)),
            Opened::Failed { reason, at } if at.elapsed() < AFTER_FAILURE => return Err(reason.clone()),
            _ => {}
        }
        let patience = server.config.limits.start_timeout.0;
        let tried = match tokio::time::timeout(patience, server.open(world, Some(principal))).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(Reason::of(&error).redacted(world)),
            Err(_) => Err(format!("it was not ready within {} s", patience.as_secs_f32()).into()),
        };
        match tried {
            Ok(client) => {
                let client = Arc::new(client);
                *opened = Opened::Client(Arc::clone(&client));
                Ok(client)
            }
            Err(reason) => {
                let whose = &principal.user;
                server.logs.add(&format!("[no connection for {whose}: {}]", reason.whole));
                let name = &server.config.name;
                let reason = format!("no connection to `{name}` for this caller: {}", reason.told);
                *opened = Opened::Failed { reason: reason.clone(), at: Instant::now() };
                Err(reason)
            }
        }
    }

    fn place(&self, principal: &Principal) -> Result<Arc<Place>, String> {
        let mut places = self.places();
        if let Some(place) = places.get(principal) {
            return Ok(Arc::clone(place));
        }
        if places.len() >= self.most {
            let idle = places
                .iter()
                .filter(|(_, place)| place.is_idle())
                .min_by_key(|(_, place)| place.used.load(Ordering::Relaxed))
                .map(|(principal, _)| principal.clone());
            match idle {
                Some(idle) => drop(places.remove(&idle)),
                None => {
                    return Err(format!(
                        "all {} connections to the server are in use (limits.max_connections)",
                        self.most
                    ));
                }
            }
        }
        let place = Arc::new(Place {
            client: tokio::sync::Mutex::new(Opened::Not),
            used: AtomicU64::new(self.now()),
        });
        places.insert(principal.clone(), Arc::clone(&place));
        Ok(place)
    }

    /// Closes what nobody has used for a while.
    pub(super) fn sweep(&self) {
        let now = self.now();
        let idle = u64::try_from(self.idle.as_millis()).unwrap_or(u64::MAX);
        self.places().retain(|_, place| {
            now.saturating_sub(place.used.load(Ordering::Relaxed)) < idle || !place.is_idle()
        });
    }

    pub(super) fn close(&self) {
        self.places().clear();
    }
}

impl Place {
    /// Nobody waits on it.
    fn is_idle(&self) -> bool {
        match self.client.try_lock() {
            Ok(opened) => match &*opened {
                Opened::Client(client) => client.pending() == 0,
                Opened::Not | Opened::Failed { .. } => true,
            },
            Err(_) => false,
        }
    }
}
