//! What goes with a server that is removed, and what it leaves behind.

use aegis_core::{
    Caller,
    config::{McpServer, SecretRef},
};
use aegis_stores::registry::{RegistryError, SecretStoreError};
use serde::Serialize;
use serde_json::json;

use super::{Configured, ServerError, Servers, layers, unknown};

/// A server that is there no more.
#[derive(Debug, Clone)]
pub struct Removed {
    pub configured: Configured,
    /// Stored secrets that went with it: of a sign-in nobody else has any use for the tokens.
    pub forgotten: Vec<String>,
    /// Stored secrets that it was given, and that are still there.
    pub left: Vec<LeftSecret>,
}

#[derive(Debug, Clone, Serialize)]
pub struct LeftSecret {
    pub name: String,
    /// Other servers that are given it.
    pub used_by: Vec<String>,
}

impl Servers {
    /// Ends an added server and forgets it, with what was accepted of it and its sign-in.
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
        self.registry.forget_pins(name).await?;
        layers.remove(name);
        self.live.replace(layers.servers()).await;
        // One that is switched off, or not used now, may be used again.
        let others: Vec<McpServer> = layers.configured().into_iter().map(|one| one.server).collect();
        drop(layers);
        let (forgotten, left) = self.forget_secrets(&configured.server, &others, operator).await?;
        Ok(Removed { configured, forgotten, left })
    }

    async fn forget_secrets(
        &self,
        gone: &McpServer,
        others: &[McpServer],
        operator: &Caller,
    ) -> Result<(Vec<String>, Vec<LeftSecret>), ServerError> {
        let sign_in = gone.oauth.as_ref().and_then(|oauth| oauth.sign_in.as_ref());
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
            if matches!(self.registry.secret(&operator.tenant, name).await, Ok(None)) {
                continue;
            }
            let uses = |server: &&McpServer| server.references().any(|one| layers::may_mean(one, name));
            let used_by: Vec<String> = others.iter().filter(uses).map(|server| server.name.clone()).collect();
            if !used_by.is_empty() || !sign_in.is_some_and(|one| layers::may_mean(one, name)) {
                left.push(LeftSecret { name: name.to_owned(), used_by });
                continue;
            }
            let about = json!({"tenant": operator.tenant, "name": name});
            self.record("secret-deleted", &gone.name, [("secret", about)], operator).await?;
            match self.registry.delete_secret(&operator.tenant, name).await {
                Ok(_) => forgotten.push(name.to_owned()),
                // Somebody was quicker.
                Err(RegistryError::Secret(SecretStoreError::Missing(_))) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((forgotten, left))
    }
}
