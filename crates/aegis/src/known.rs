//! The tools and names that policies and contexts are held against.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use aegis_core::{
    config::{
        McpServer, NodeConfig, SecurityContext, StorageConfig, ToolPattern, security_context::Doubt,
        upstream::check_added,
    },
    id::CallId,
};
use aegis_doors::Doors;
use aegis_gates::policy::Schema;
use aegis_plane::contexts::{self, Source};
use aegis_routes::{Catalog, upstream::remember};
use aegis_stores::{
    DataDir,
    data_dir::DataDirError,
    registry::{read_accepted_definitions, read_added_servers, read_applied_contexts},
};
use anyhow::Context;

use crate::{
    cli::Global,
    locate,
    node::{ActiveConfig, catalog},
};

/// What a node of this configuration and data directory would have, to be looked at: nothing of the node itself is
/// opened, and nothing is made in its data directory.
#[derive(Debug)]
pub struct Known {
    pub config: NodeConfig,
    pub catalog: Catalog,
    /// Contexts that an operator applied.
    pub applied: Vec<SecurityContext>,
    /// Names that tools of MCP servers have, or will have.
    claims: Vec<ToolPattern>,
    /// Of MCP servers, by name.
    servers: Vec<String>,
    _scratch: Scratch,
}

/// An empty directory for the volumes of tools that are only looked at.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Known {
    /// With the configuration that applies. Blocks.
    pub fn read(global: &Global) -> anyhow::Result<Self> {
        let config = locate::read_config(locate::config_file(global)?.as_deref())?;
        Self::of(config, Some(&locate::data_dir(global)?))
    }

    /// Without a data directory nothing was applied or added. Blocks.
    pub fn of(config: NodeConfig, data: Option<&Path>) -> anyhow::Result<Self> {
        let mut elsewhere = config.clone();
        // Its volumes may be on another machine than the one that looks.
        elsewhere.spec.storage = StorageConfig::default();
        let scratch = Scratch(std::env::temp_dir().join(format!("aegis-policy-{}", CallId::fresh())));
        let active = Arc::new(ActiveConfig::new(None, elsewhere));
        let catalog = catalog(&active, &scratch.0, Arc::new(|| true))?;
        let paths = match data.map(DataDir::read_only).transpose() {
            Ok(paths) => paths,
            // A node that was never started. Any other mistake might hide what was applied.
            Err(DataDirError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let mut servers = config.spec.mcp_servers.clone();
        let mut applied = Vec::new();
        if let Some(registry) = paths.map(|paths| paths.registry_database()) {
            applied = read_applied(&registry)?;
            for added in read_added(&registry)? {
                // As in the node, one that clashes with what is there is not used.
                if check_added(&servers, &added).is_ok() {
                    servers.push(added);
                }
            }
            let accepted = read_accepted_definitions(&registry)?.into_iter();
            let accepted: Vec<_> = accepted.map(|pin| (pin.server, pin.definition)).collect();
            remember(&catalog, &servers, &accepted);
        }
        let claims = servers.iter().flat_map(McpServer::claims).collect();
        let servers = servers.into_iter().map(|server| server.name).collect();
        Ok(Self { config, catalog, applied, claims, servers, _scratch: scratch })
    }

    pub fn schema(&self) -> Schema {
        Schema::of(&self.catalog.specs()).expecting(self.claims.clone())
    }

    /// The contexts in force: of the node, with the configuration file's laid over what was applied.
    pub fn contexts(&self) -> Vec<SecurityContext> {
        let mut contexts = self.config.contexts();
        for applied in self.applied_in_force() {
            contexts.retain(|below| below.name != applied.name);
            contexts.push(applied.clone());
        }
        contexts
    }

    /// Those that somebody wrote: of the file first, then what was applied and is in force.
    fn own(&self) -> impl Iterator<Item = &SecurityContext> {
        self.config.spec.security_contexts.iter().chain(self.applied_in_force())
    }

    /// What was applied and the file has no other of.
    fn applied_in_force(&self) -> impl Iterator<Item = &SecurityContext> {
        let of_file = &self.config.spec.security_contexts;
        self.applied.iter().filter(|applied| !of_file.iter().any(|own| own.name == applied.name))
    }

    /// What of the contexts that somebody wrote is about nothing.
    pub fn doubts(&self) -> Vec<Doubt> {
        let own: Vec<SecurityContext> = self.own().cloned().collect();
        contexts::doubts(&own, &self.catalog, self.claims.clone(), &self.servers)
    }
}

fn read_applied(registry: &Path) -> anyhow::Result<Vec<SecurityContext>> {
    read_applied_contexts(registry)?
        .iter()
        .map(|row| {
            serde_json::from_str(&row.text)
                .with_context(|| format!("the applied context `{}` can't be read", row.name))
        })
        .collect()
}

fn read_added(registry: &Path) -> anyhow::Result<Vec<McpServer>> {
    read_added_servers(registry)?
        .iter()
        .map(|row| {
            serde_json::from_str(&row.text)
                .with_context(|| format!("the added server `{}` can't be read", row.name))
        })
        .collect()
}

/// Says in the log what of the contexts in force is about nothing.
pub async fn warn_of_doubts(doors: &Doors) {
    let in_force = doors.contexts.list().await;
    let own = in_force.into_iter().filter(|found| found.source != Source::Shipped);
    let own: Vec<SecurityContext> = own.map(|found| found.context).collect();
    for doubt in doors.doubts(&own) {
        tracing::warn!("{doubt}");
    }
}
