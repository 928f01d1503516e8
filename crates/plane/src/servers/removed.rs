//! What goes with a server that is removed, and what it leaves behind.

use aegis_core::{
    Caller,
    config::{McpServer, SecretRef, upstream::suggested_name},
};
use aegis_stores::registry::{RegistryError, SecretStoreError};
use serde::Serialize;
use serde_json::json;

use super::{Configured, ServerError, Servers, layers, unknown};

/// A server that is there no more.
#[derive(Debug, Clone)]
pub struct Removed {
    pub configured: Configured,
    /// Stored secrets that went with it: of a sign-in nobody else has any use for the tokens, nor for the secret of a
    /// client that the node registered for it.
    pub forgotten: Vec<String>,
    /// Stored secrets that it was given, and that are still there: also those that should have gone and could not.
    pub left: Vec<LeftSecret>,
}

#[derive(Debug, Clone, Serialize)]
pub struct LeftSecret {
    pub name: String,
    /// Other servers that are given it.
    pub used_by: Vec<String>,
}

impl Servers {
    /// Ends an added server and forgets it, with what was accepted of it and its sign-in, not with what was rejected.
    pub async fn remove(&self, name: &str, operator: &Caller) -> Result<Removed, ServerError> {
        let mut layers = self.layers.lock().await;
        if layers.in_file(name) {
            return Err(ServerError::InFile { name: name.to_owned(), place: layers.place() });
        }
        let Some(configured) = layers.configured().into_iter().find(|one| one.server.name == name) else {
            let all = layers.servers();
            return Err(unknown(name, all.iter().map(|server| server.name.as_str())));
        };
        self.record("upstream-removed", name, [], operator).await?;
        self.registry.remove_server(name).await?;
        layers.remove(name);
        self.live.replace(layers.servers()).await;
        // Only now: as long as it runs, whatever it lists is written down again.
        self.registry.forget_pins(name).await?;
        // One that is switched off, or not used now, may be used again.
        let others: Vec<McpServer> = layers.configured().into_iter().map(|one| one.server).collect();
        // While the layers are held nobody adds a server that would miss them.
        let (forgotten, left) = self.forget_secrets(&configured.server, &others, operator).await;
        drop(layers);
        Ok(Removed { configured, forgotten, left })
    }

    /// The server is gone by now, whatever becomes of its secrets.
    async fn forget_secrets(
        &self,
        gone: &McpServer,
        others: &[McpServer],
        operator: &Caller,
    ) -> (Vec<String>, Vec<LeftSecret>) {
        let mut names: Vec<&str> = gone
            .references()
            .filter_map(|reference| match reference {
                SecretRef::Stored(name) if !reference.is_per_principal() => Some(name.as_str()),
                _ => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        let (mut forgotten, mut left) = (Vec::new(), Vec::new());
        for name in names {
            // One that can't be opened is there as well.
            if matches!(self.registry.secret(&self.tenant, name).await, Ok(None)) {
                continue;
            }
            let uses = |server: &&McpServer| server.references().any(|one| layers::may_mean(one, name));
            let used_by: Vec<String> = others.iter().filter(uses).map(|server| server.name.clone()).collect();
            if !used_by.is_empty() || !is_of_sign_in(gone, name) {
                left.push(LeftSecret { name: name.to_owned(), used_by });
                continue;
            }
            match self.forget_secret(gone, name, operator).await {
                Ok(()) => forgotten.push(name.to_owned()),
                // Somebody was quicker.
                Err(ServerError::Registry(RegistryError::Secret(SecretStoreError::Missing(_)))) => {}
                Err(error) => {
                    tracing::warn!(server = %gone.name, secret = name, %error, "a secret of a removed server is left");
                    left.push(LeftSecret { name: name.to_owned(), used_by });
                }
            }
        }
        (forgotten, left)
    }

    async fn forget_secret(
        &self,
        gone: &McpServer,
        name: &str,
        operator: &Caller,
    ) -> Result<(), ServerError> {
        let about = [("tenant", json!(self.tenant)), ("name", json!(name))];
        self.record("secret-deleted", &gone.name, about, operator).await?;
        self.registry.delete_secret(&self.tenant, name).await?;
        Ok(())
    }
}

/// Whether a secret came with the sign-in to this server: the tokens, or what the node got when it registered itself.
/// One that an operator named for the client is theirs.
fn is_of_sign_in(server: &McpServer, secret: &str) -> bool {
    let Some(oauth) = &server.oauth else { return false };
    let means =
        |reference: &Option<SecretRef>| reference.as_ref().is_some_and(|one| layers::may_mean(one, secret));
    means(&oauth.sign_in)
        || (oauth.registered
            && secret == suggested_name(&server.name, "client-secret")
            && means(&oauth.client_secret))
}
