//! Being told when resources of a server change.

use std::collections::BTreeSet;

use aegis_mcp_client::{Client, Error, Interests};
use tokio_util::sync::DropGuard;

use super::server::Server;

/// Resources of one server that can be watched at once.
const MOST: usize = 1000;

/// What is watched by way of the newest version: one request that names it all.
#[derive(Debug, Default)]
pub(super) struct Watched {
    uris: BTreeSet<String>,
    listening: Option<DropGuard>,
}

impl Server {
    /// Asks to be told of a resource, or no longer.
    pub(super) async fn watch(&self, client: &Client, uri: &str, on: bool) -> Result<(), Error> {
        if !client.version().stateless() {
            return client.subscribe(uri, on).await;
        }
        let mut watched = self.watched();
        if on {
            if watched.uris.len() >= MOST {
                return Err(Error::TooManyPending { limit: MOST });
            }
            watched.uris.insert(uri.to_owned());
        } else {
            watched.uris.remove(uri);
        }
        let interests = Interests { updates_of: watched.uris.clone(), ..Interests::default() };
        watched.listening = (!interests.is_empty()).then(|| client.listen(&interests));
        Ok(())
    }
}
