//! Servers of the configuration file, with those that were added laid beside them.

use std::path::PathBuf;

use aegis_core::{
    Timestamp,
    config::{McpServer, SecretRef, upstream::check_added},
    id::UserId,
};
use aegis_stores::registry::{AddedServer, Registry};
use serde::Serialize;

use super::ServerError;

/// Where a server comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerSource {
    /// `spec.mcp_servers` of the configuration file.
    File,
    /// An operator added it.
    Added,
}

#[derive(Debug, Clone, Serialize)]
pub struct Configured {
    pub source: ServerSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_by: Option<UserId>,
    /// Why an added server is not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<String>,
    pub server: McpServer,
}

#[derive(Debug)]
pub struct ServerLayers {
    /// The configuration file, whether or not there is one yet.
    file: Option<PathBuf>,
    own: Vec<McpServer>,
    added: Vec<(AddedServer, McpServer)>,
}

impl ServerLayers {
    /// `own` are those of the configuration file.
    pub async fn load(
        registry: &Registry,
        file: Option<PathBuf>,
        own: Vec<McpServer>,
    ) -> Result<Self, ServerError> {
        let stored = registry.added_servers().await?;
        let read = |row: AddedServer| match serde_json::from_str(&row.text) {
            Ok(server) => Ok((row, server)),
            Err(source) => Err(ServerError::Stored { name: row.name, source }),
        };
        let added = stored.into_iter().map(read).collect::<Result<_, _>>()?;
        let layers = Self { file, own, added };
        layers.warn_of_hidden();
        Ok(layers)
    }

    /// All that are used.
    pub fn servers(&self) -> Vec<McpServer> {
        self.configured().into_iter().filter(|one| one.hidden.is_none()).map(|one| one.server).collect()
    }

    /// By name, with those that were added and are not used.
    pub(super) fn configured(&self) -> Vec<Configured> {
        let mut used = self.own.clone();
        let own = self.own.iter().map(|server| Configured {
            source: ServerSource::File,
            added: None,
            added_by: None,
            hidden: None,
            server: server.clone(),
        });
        let mut all: Vec<Configured> = own.collect();
        for (row, server) in &self.added {
            // The file may have come to claim the same since.
            let hidden = check_added(&used, server).err();
            if hidden.is_none() {
                used.push(server.clone());
            }
            all.push(Configured {
                source: ServerSource::Added,
                added: Some(row.added),
                added_by: Some(row.added_by.clone()),
                hidden,
                server: server.clone(),
            });
        }
        all.sort_by(|one, other| one.server.name.cmp(&other.server.name));
        all
    }

    pub(super) fn in_file(&self, name: &str) -> bool {
        self.own.iter().any(|server| server.name == name)
    }

    pub(super) fn added(&self, name: &str) -> Option<&McpServer> {
        self.added.iter().find(|(row, _)| row.name == name).map(|(_, server)| server)
    }

    /// When an added server was added, and by whom.
    pub(super) fn origin(&self, name: &str) -> Option<(Timestamp, UserId)> {
        let (row, _) = self.added.iter().find(|(row, _)| row.name == name)?;
        Some((row.added, row.added_by.clone()))
    }

    pub(super) fn place(&self) -> String {
        self.file.as_ref().map_or_else(|| "the configuration".to_owned(), |file| file.display().to_string())
    }

    pub(super) fn add(&mut self, row: AddedServer, server: McpServer) {
        self.added.push((row, server));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.added.retain(|(row, _)| row.name != name);
    }

    pub(super) fn replace_own(&mut self, file: PathBuf, own: Vec<McpServer>) {
        self.file = Some(file);
        self.own = own;
        self.warn_of_hidden();
    }

    fn warn_of_hidden(&self) {
        for one in self.configured() {
            if let Some(reason) = &one.hidden {
                tracing::warn!(server = %one.server.name, %reason, "an added server is not used");
            }
        }
    }
}

/// Whether a reference can lead to the secret of this name, for some caller.
pub(super) fn may_mean(reference: &SecretRef, secret: &str) -> bool {
    let SecretRef::Stored(name) = reference else { return false };
    let (wanted, given): (Vec<&str>, Vec<&str>) = (name.split('/').collect(), secret.split('/').collect());
    wanted.len() == given.len()
        && wanted.iter().zip(given).all(|(wanted, given)| *wanted == given || wanted.contains('{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_means_its_secret_and_those_of_callers() {
        let means = |reference: &str, secret: &str| may_mean(&SecretRef::parse(reference), secret);
        assert!(means("secret:a/b", "a/b") && !means("secret:a/b", "a/c"));
        assert!(means("secret:gh/{user}", "gh/ann") && !means("secret:gh/{user}", "gh/ann/x"));
        assert!(!means("env:a", "a"));
    }
}
