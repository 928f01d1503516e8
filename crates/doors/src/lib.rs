//! Doors let calls in: they authenticate, build a `Caller` and a `Call`, hand both to the plane, and put its reply
//! into the words of their protocol. A door decides nothing.

mod driven;
mod guard;
pub mod inside;
pub mod mcp;
mod rest;
mod seal;
pub mod serve;
mod strict;
mod wire;
mod words;

use std::sync::Arc;

use aegis_core::config::{NetworkConfig, SecurityContext, security_context::Doubt};
use aegis_gates::IdentityGate;
use aegis_nfs::gateway::Gateway;
use aegis_plane::{Contexts, Plane, Secrets, Servers, contexts};
use aegis_routes::upstream::Offers;
use aegis_stores::registry::Registry;
use axum::{Router, middleware};
use tokio_util::sync::CancellationToken;

/// What every door needs.
#[derive(Debug)]
pub struct Doors {
    pub plane: Arc<Plane>,
    pub contexts: Contexts,
    pub servers: Arc<Servers>,
    pub secrets: Secrets,
    /// What servers offer besides tools.
    pub offers: Arc<dyn Offers>,
    pub volumes: Arc<Gateway>,
    pub identity: IdentityGate,
    pub registry: Registry,
    pub network: NetworkConfig,
    /// The node's name, shown to clients.
    pub name: String,
    pub version: &'static str,
    /// Cancelled when the node begins to stop: long-lived streams end, new work is refused.
    pub stopping: CancellationToken,
}

impl Doors {
    /// What of `contexts` is about nothing that this node has.
    pub fn doubts(&self, contexts: &[SecurityContext]) -> Vec<Doubt> {
        let servers: Vec<String> = self.servers.statuses().into_iter().map(|status| status.name).collect();
        contexts::doubts(contexts, self.plane.catalog(), self.servers.patterns(), &servers)
    }
}

/// Everything that is served over HTTP.
pub fn router(doors: &Arc<Doors>) -> Router {
    let open = rest::open(doors).merge(seal::open(doors));
    let guarded = Router::new()
        .merge(mcp::routes(doors))
        .merge(rest::routes(doors))
        .merge(seal::routes(doors))
        .layer(middleware::from_fn_with_state(guard::Crowd::new(doors), guard::crowd_and_body));
    // Their credential is in the body, so nobody can ask for one before it is read: strangers may crowd these, and
    // these alone.
    let signed =
        seal::signed(doors).layer(middleware::from_fn_with_state(guard::Crowd::new(doors), guard::crowd));
    open.merge(guarded)
        .merge(signed)
        .layer(middleware::from_fn_with_state(Arc::clone(doors), guard::host_and_origin))
        .fallback(rest::not_found)
}
